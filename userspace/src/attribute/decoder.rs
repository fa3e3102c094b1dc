//! Reads ahead: unpacks, checks, sorts and decodes events while the engine works on earlier ones.

use std::io::Read;
use std::sync::mpsc::{channel, sync_channel, Receiver, Sender, SyncSender};
use std::thread::{Scope, ScopedJoinHandle};

use anyhow::Result;

use crate::capture::reader::Reader;
use crate::engine::decode::decode;
use crate::engine::event::Event;
use crate::engine::processor::Processor;
use crate::engine::runtime_tasks::RuntimeTasks;

/// Number of events handed over at once, and of batches that may lie ready. Large batches keep hand-overs few, each of
/// which may have to wake a thread. But the batches must fit into the caches, because the engine reads what the decoder
/// has just written.
const BATCH_EVENTS: usize = 1024;
const BATCHES_AHEAD: usize = 2;

/// Results that are known once all events have been read.
pub struct End {
    pub end_ns: Option<u64>,
    pub records: u64,
    pub late: u64,
    pub truncated_at: Option<u64>,
}

/// Events in time order, from a separate thread.
pub struct Decoder<'scope> {
    batches: Receiver<Vec<Event>>,
    used: Sender<Vec<Event>>,
    thread: ScopedJoinHandle<'scope, Result<End>>,
}

impl<'scope> Decoder<'scope> {
    /// Begins to read.
    pub fn start<R: Read + Send + 'scope>(
        scope: &'scope Scope<'scope, '_>,
        reader: Reader<R>,
        processor: Processor,
    ) -> Decoder<'scope> {
        let (sender, batches) = sync_channel(BATCHES_AHEAD);
        let (used, back) = channel();
        let thread = scope.spawn(move || read(reader, &processor, &sender, &back));
        Decoder { batches, used, thread }
    }

    /// Returns the next events, `None` at the end or at damage. [`Decoder::end`] tells which of the two.
    pub fn next_batch(&mut self) -> Option<Vec<Event>> {
        self.batches.recv().ok()
    }

    /// Gives back a batch. The thread that allocated its events frees or reuses them.
    pub fn give_back(&self, batch: Vec<Event>) {
        let _ = self.used.send(batch); // at the end nobody receives it
    }

    /// Waits for the end and returns the results.
    ///
    /// # Errors
    /// Damaged or truncated input.
    pub fn end(self) -> Result<End> {
        drop(self.batches); // makes the thread stop, because nobody receives batches any more
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn read<R: Read>(
    mut reader: Reader<R>,
    processor: &Processor,
    sender: &SyncSender<Vec<Event>>,
    back: &Receiver<Vec<Event>>,
) -> Result<End> {
    let empty = || {
        let mut batch = back.try_recv().unwrap_or_else(|_| Vec::with_capacity(BATCH_EVENTS));
        batch.clear();
        batch
    };
    let mut tasks = RuntimeTasks::default();
    let mut batch = empty();
    let mut listening = true;
    let mut outcome = Ok(());
    while listening {
        let event = match reader.next_record() {
            Ok(Some(item)) => decode(item.cpu, item.record),
            Ok(None) => break,
            Err(error) => Err(error),
        };
        match event {
            Ok(None) => {}
            Ok(Some(mut event)) => {
                processor.renumber(&mut event);
                tasks.take(event, &mut batch);
            }
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        if batch.len() >= BATCH_EVENTS {
            let full = std::mem::replace(&mut batch, empty());
            listening = sender.send(full).is_ok();
        }
    }
    tasks.finish(&mut batch);
    let _ = sender.send(batch);
    outcome.map(|()| End {
        end_ns: reader.end_ns(),
        records: reader.records,
        late: reader.late,
        truncated_at: reader.truncated_at,
    })
}
