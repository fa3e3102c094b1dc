//! Activity of threads in given spans, such as those between a client's own stamps and its requests.
//!
//! Usage: rest CAPTURE < SPANS, one line `TID FROM_NS TO_NS` per span. Prints one line per span: nanoseconds
//! in user mode, in system calls, waiting for a CPU, asleep. (Faults and interrupts count as the mode that
//! they interrupt.)

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, BufWriter, Write};

use anyhow::{Context, Result};
use rpcprobe::capture::reader::Reader;
use rpcprobe::engine::decode::decode;
use rpcprobe::engine::event::What;

/// An off-CPU interval: asleep until `woken_ns`, then waiting for a CPU.
struct Off {
    start_ns: u64,
    woken_ns: u64,
    end_ns: u64,
}

/// Time line of a thread, in order.
#[derive(Default)]
struct Thread {
    offs: Vec<Off>,
    /// Entry and exit of system calls.
    calls: Vec<(u64, u64)>,
    /// Begin of the present off-CPU interval, and the time of the wake-up.
    left: Option<(u64, Option<u64>)>,
}

impl Thread {
    fn leaves(&mut self, ts_ns: u64, runnable: bool) {
        self.left = Some((ts_ns, runnable.then_some(ts_ns)));
    }

    fn comes(&mut self, end_ns: u64) {
        if let Some((start_ns, woken_ns)) = self.left.take() {
            let woken_ns = woken_ns.unwrap_or(end_ns).min(end_ns);
            self.offs.push(Off {
                start_ns,
                woken_ns,
                end_ns,
            });
        }
    }

    /// Time in user mode, in system calls, in the run queue, asleep.
    fn spent(&self, from_ns: u64, to_ns: u64) -> [u64; 4] {
        let within = |a: u64, b: u64| b.min(to_ns).saturating_sub(a.max(from_ns));
        let first = self.offs.partition_point(|off| off.end_ns <= from_ns);
        let offs = || {
            self.offs[first..]
                .iter()
                .take_while(|off| off.start_ns < to_ns)
        };
        let asleep: u64 = offs().map(|off| within(off.start_ns, off.woken_ns)).sum();
        let queued: u64 = offs().map(|off| within(off.woken_ns, off.end_ns)).sum();
        let first = self
            .calls
            .partition_point(|&(_, exit_ns)| exit_ns <= from_ns);
        let calls = self.calls[first..]
            .iter()
            .take_while(|(enter_ns, _)| *enter_ns < to_ns);
        let in_calls: u64 = calls
            .map(|&(enter_ns, exit_ns)| {
                let away =
                    offs().map(|off| within(off.start_ns.max(enter_ns), off.end_ns.min(exit_ns)));
                within(enter_ns, exit_ns).saturating_sub(away.sum())
            })
            .sum();
        let user = (to_ns - from_ns).saturating_sub(asleep + queued + in_calls);
        [user, in_calls, queued, asleep]
    }
}

fn main() -> Result<()> {
    let directory = std::env::args()
        .nth(1)
        .context("usage: rest CAPTURE < SPANS")?;
    let mut spans: Vec<(u32, u64, u64)> = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let mut next = || words.next().context("a line is TID FROM_NS TO_NS");
        let (tid, from_ns, to_ns) = (next()??, next()??, next()??);
        spans.push((u32::try_from(tid)?, from_ns, to_ns.max(from_ns)));
    }
    let mut threads: HashMap<u32, Thread> = spans
        .iter()
        .map(|(tid, ..)| (*tid, Thread::default()))
        .collect();

    let file = std::fs::File::open(format!("{directory}/events.bin"))?;
    let mut reader = Reader::new(BufReader::new(file), true)?;
    while let Some(item) = reader.next_record()? {
        let Some(event) = decode(item.cpu, item.record)? else {
            continue;
        };
        match &event.what {
            What::Switch {
                prev,
                next,
                state,
                preempt,
                ..
            } => {
                if let Some(thread) = threads.get_mut(prev) {
                    thread.leaves(event.ts_ns, *preempt || *state == 0);
                }
                if let Some(thread) = threads.get_mut(next) {
                    thread.comes(event.ts_ns);
                }
            }
            What::UnseenSwitch {
                tid, arrived_ns, ..
            } => {
                if let Some(thread) = threads.get_mut(tid) {
                    thread.comes(*arrived_ns);
                }
            }
            What::Waking { wakee, .. } => {
                let left = threads
                    .get_mut(wakee)
                    .and_then(|thread| thread.left.as_mut());
                if let Some((_, woken_ns)) = left {
                    woken_ns.get_or_insert(event.ts_ns);
                }
            }
            What::Call { tid, call } => {
                if let Some(thread) = threads.get_mut(tid) {
                    thread.calls.push((call.enter_ns, call.exit_ns));
                }
            }
            _ => {}
        }
    }

    let mut out = BufWriter::new(io::stdout().lock());
    for (tid, from_ns, to_ns) in spans {
        let [user, in_calls, queued, asleep] = threads[&tid].spent(from_ns, to_ns);
        writeln!(out, "{user} {in_calls} {queued} {asleep}")?;
    }
    out.flush()?;
    Ok(())
}
