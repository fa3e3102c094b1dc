//! Classifies waits for a jbd2 journal: what the journal's thread did meanwhile.

use crate::classify::off_cpu::percent;
use crate::timeline::gallop::{count_before, latest_before};
use crate::timeline::{ThreadId, Why, World};

/// What a journal's thread did.
pub(super) struct Commit {
    /// The last transaction that it committed, if any.
    transaction: Option<u32>,
    /// `MAJOR:MINOR`
    pub device: String,
    /// The thread's phases and the time it waited for its device, in words.
    pub cause: String,
}

impl std::fmt::Display for Commit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.transaction {
            Some(number) => write!(f, "commit of transaction {number} on {}", self.device),
            None => write!(f, "commit on {}", self.device),
        }
    }
}

/// What a journal's thread did in `[from_ns, to_ns)`.
pub(super) fn commit(world: &World, journal_thread: ThreadId, from_ns: u64, to_ns: u64) -> Commit {
    let journal = &world.journals[&journal_thread];
    let mut spent: Vec<(&'static str, u64)> = Vec::new();
    let mut transaction = None;
    let mut at_ns = from_ns;
    let first = count_before(&journal.phases, |(since_ns, ..)| *since_ns <= from_ns);
    for index in first.saturating_sub(1)..journal.phases.len() {
        let (since_ns, number, phase) = journal.phases[index];
        if since_ns >= to_ns {
            break;
        }
        let until_ns = journal.phases.get(index + 1).map_or(to_ns, |next| next.0.min(to_ns));
        let begin_ns = since_ns.max(from_ns);
        if begin_ns > at_ns {
            add(&mut spent, "between commits", begin_ns - at_ns);
        }
        let name = match phase {
            1 => "starting",
            2 => "locking",
            3 => "flushing",
            4 => "logging and callbacks", // no tracepoint separates these
            _ => "between commits",
        };
        add(&mut spent, name, until_ns.saturating_sub(begin_ns));
        at_ns = until_ns;
        if phase != 5 {
            transaction = Some(number);
        }
    }
    if at_ns < to_ns {
        add(&mut spent, "between commits", to_ns - at_ns);
    }
    let whole_ns = (to_ns - from_ns).max(1);
    let share = |ns: u64| percent(ns, whole_ns);
    let mut phrases: Vec<String> =
        spent.iter().map(|(name, ns)| format!("{name} {} %", share(*ns))).collect();
    let (device_ns, started_by) = device_time(world, journal_thread, from_ns, to_ns);
    phrases.push(format!("its device {} %", share(device_ns)));
    if let Some(by) = started_by {
        phrases.push(format!("asked for by {by}"));
    }
    let (major, minor) = (journal.dev >> 20, journal.dev & 0xf_ffff);
    Commit { transaction, device: format!("{major}:{minor}"), cause: phrases.join(", ") }
}

/// How long a journal's thread waited for its device, and which thread (or the timer) last woke it to commit.
fn device_time(
    world: &World,
    journal_thread: ThreadId,
    from_ns: u64,
    to_ns: u64,
) -> (u64, Option<String>) {
    let t = world.thread(journal_thread);
    let mut device_ns = 0;
    let mut started_by = None;
    // From the latest sleep back to the thread's own rest. A sleep that ended before `from_ns` adds nothing.
    for off in latest_before(&t.off, |off| off.start_ns < to_ns) {
        let overlap_ns = off.end_ns.min(to_ns).saturating_sub(off.start_ns.max(from_ns));
        let Why::Slept { uninterruptible, .. } = off.why else { continue };
        if uninterruptible {
            if off.wake.is_some_and(|wake| wake.block != 0) {
                device_ns += overlap_ns;
            }
        } else if off.start_ns < to_ns {
            // The thread's own rest ended: another thread asked for a commit, or the commit timer expired.
            started_by = off.wake.map(|wake| match wake.by_waker() {
                true => {
                    let waker = world.thread(wake.waker);
                    format!("{}/{}", waker.name_at(wake.at_ns), waker.tid)
                }
                false => "the commit timer".into(),
            });
            break;
        }
    }
    (device_ns, started_by)
}

fn add(list: &mut Vec<(&'static str, u64)>, name: &'static str, ns: u64) {
    match list.iter_mut().find(|(known, _)| *known == name) {
        _ if ns == 0 => {}
        Some((_, sum)) => *sum += ns,
        None => list.push((name, ns)),
    }
}

pub(super) fn is_jbd2(world: &World, thread: ThreadId, at_ns: u64) -> bool {
    let t = world.thread(thread);
    t.kthread && t.name_at(at_ns).starts_with("jbd2/")
}
