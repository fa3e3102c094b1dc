//! Writes behind: checks and encodes explained requests while the engine works on later ones.

use std::collections::BTreeMap;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use anyhow::{bail, Result};

use super::numbers::Numbers;
use crate::model::{check_conservation, Request, Segments};
use crate::output::Writer;

/// Number of segments handed over at once, and of batches that may wait to be written.
const BATCH_SEGMENTS: usize = 8192;
const BATCHES_BEHIND: usize = 2;

type Batch = Vec<(Request, Segments)>;

/// Results of writing.
#[derive(Debug, Default)]
pub struct Written {
    pub requests: u64,
    pub incomplete: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// The ids of requests in the tables.
    pub numbers: Numbers,
}

/// Writes the tables in a separate thread.
pub struct TableWriter {
    batch: Batch,
    segments: usize,
    sender: SyncSender<Batch>,
    thread: JoinHandle<Result<Written>>,
}

impl TableWriter {
    /// Begins to write.
    pub fn start(writer: Writer) -> TableWriter {
        let (sender, batches) = sync_channel(BATCHES_BEHIND);
        let thread = thread::spawn(move || write(writer, &batches));
        TableWriter { batch: Vec::new(), segments: 0, sender, thread }
    }

    /// Hands over a request and its segments. Returns `false` if writing has failed; [`TableWriter::finish`] tells why.
    pub fn push(&mut self, request: Request, segments: Segments) -> bool {
        self.segments += segments.list.len().max(1);
        self.batch.push((request, segments));
        self.segments < BATCH_SEGMENTS || self.hand_over()
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// A request whose segments do not tile it; a file that cannot be written.
    pub fn finish(mut self) -> Result<Written> {
        self.hand_over();
        drop(self.sender);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn hand_over(&mut self) -> bool {
        self.segments = 0;
        self.sender.send(std::mem::take(&mut self.batch)).is_ok()
    }
}

fn write(mut writer: Writer, batches: &Receiver<Batch>) -> Result<Written> {
    let mut written = Written::default();
    for (mut request, segments) in batches.iter().flatten() {
        written.numbers.number(&mut request);
        if let Err(fault) = check_conservation(&request, &segments.list) {
            bail!("internal error, law of conservation broken: {fault}");
        }
        written.requests += 1;
        written.incomplete += u64::from(!request.complete);
        *written.by_kind.entry(request.kind.name().into()).or_default() += 1;
        writer.push(&request, &segments)?;
    }
    writer.finish()?;
    Ok(written)
}
