//! The ledger: what each traced thread's CPU time was for.
//!
//! Requests' own, shared by several (counted once), or no request's: the three sum to what the thread ran, to the
//! nanosecond, whatever was lost. What a request has is what its segments show; work beside its critical path is no request's here.

use rustc_hash::FxHashMap;

use super::recent::count_before;
use super::world::{Thread, ThreadId, World};

/// One thread's account, `[since_ns, until_ns)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub since_ns: u64,
    pub until_ns: u64,
    /// With interrupts that hit it, without what the hypervisor took.
    pub cpu_ns: u64,
    pub own_ns: u64,
    pub shared_ns: u64,
}

impl Account {
    /// What it ran for no request.
    pub fn none_ns(&self) -> u64 {
        self.cpu_ns.saturating_sub(self.own_ns).saturating_sub(self.shared_ns)
    }
}

#[derive(Debug, Default)]
pub struct Ledger(FxHashMap<ThreadId, Account>);

impl Ledger {
    /// A thread's work in `[from_ns, to_ns)`, which is counted already, belongs to one request, or is shared.
    /// Where records were lost the thread may have been off its CPU meanwhile: that time is nobody's.
    pub fn book(
        &mut self,
        world: &World,
        id: ThreadId,
        (from_ns, to_ns): (u64, u64),
        shared: bool,
    ) {
        let Some(account) = self.0.get_mut(&id) else { return };
        let (from_ns, to_ns) = (from_ns.max(account.since_ns), to_ns.min(account.until_ns));
        let ns = if from_ns < to_ns { ran_ns(world.thread(id), from_ns, to_ns) } else { 0 };
        let booked = if shared { &mut account.shared_ns } else { &mut account.own_ns };
        *booked = booked.saturating_add(ns);
    }

    /// Adds what traced threads ran up to that time, all of which has to be known.
    pub fn count(&mut self, world: &World, until_ns: u64) {
        for (id, thread) in world.threads.iter().filter(|(_, thread)| thread.traced) {
            let account = self.0.entry(id as ThreadId).or_default();
            if account.since_ns == 0 {
                account.since_ns = thread.known_from_ns.max(thread.born_ns).max(world.start_ns);
                account.until_ns = account.since_ns;
            }
            let until_ns = until_ns.min(thread.gone_ns);
            account.pid = world.process_of(id as ThreadId).tgid;
            account.tid = thread.tid;
            if account.until_ns < until_ns {
                account.comm = thread.name_at(until_ns).to_string();
                let ran_ns = ran_ns(thread, account.until_ns, until_ns);
                account.cpu_ns = account.cpu_ns.saturating_add(ran_ns);
                account.until_ns = until_ns;
            }
        }
    }

    /// All threads, by number.
    pub fn accounts(&self) -> Vec<Account> {
        let known = self.0.values().filter(|account| account.since_ns != 0);
        let mut accounts: Vec<_> = known.cloned().collect();
        accounts.sort_by_key(|account| (account.pid, account.tid, account.since_ns));
        accounts
    }
}

/// How long the thread had a CPU in `[from_ns, to_ns)`.
fn ran_ns(thread: &Thread, from_ns: u64, to_ns: u64) -> u64 {
    if !thread.has_run() {
        return 0;
    }
    let overlap_ns =
        |start_ns: u64, end_ns: u64| end_ns.min(to_ns).saturating_sub(start_ns.max(from_ns));
    let first = count_before(&thread.off, |off| off.end_ns <= from_ns);
    let off = thread.off.range(first..).take_while(|off| off.start_ns < to_ns);
    // Damaged records may overlap.
    let off_ns = off.map(|off| overlap_ns(off.start_ns, off.end_ns)).fold(0, u64::saturating_add);
    let first = count_before(&thread.steals, |span| span.end_ns <= from_ns);
    let steals = thread.steals.range(first..).take_while(|span| span.start_ns < to_ns);
    let stolen_ns =
        steals.map(|span| overlap_ns(span.start_ns, span.end_ns)).fold(0, u64::saturating_add);
    (to_ns - from_ns).saturating_sub(off_ns).saturating_sub(stolen_ns)
}
