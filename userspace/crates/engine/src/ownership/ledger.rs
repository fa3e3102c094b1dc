//! The ledger: what each traced thread's CPU time was for.
//!
//! CPU time is one request's own, shared by several requests (counted once), or no request's. The three sum to what the
//! thread ran, to the nanosecond, whatever was lost. A request has the time that its segments show; work beside its
//! critical path counts as no request's here.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::timeline::gallop::count_before;
use crate::timeline::{Thread, ThreadId, World};

/// One thread's account, `[since_ns, until_ns)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub pid: u32,
    pub tid: u32,
    pub comm: String,
    pub since_ns: u64,
    pub until_ns: u64,
    /// With interrupts that hit the thread, without what the hypervisor took.
    pub cpu_ns: u64,
    pub own_ns: u64,
    pub shared_ns: u64,
}

impl Account {
    /// The key by which accounts are sorted: the thread's numbers.
    pub fn number(&self) -> (u32, u32, u64) {
        (self.pid, self.tid, self.since_ns)
    }

    /// What it ran for no request.
    pub fn none_ns(&self) -> u64 {
        self.cpu_ns.saturating_sub(self.own_ns).saturating_sub(self.shared_ns)
    }
}

/// The accounts of threads that may still work, or whose work may still be booked. The other accounts are closed, and
/// handed out.
#[derive(Debug, Default)]
pub struct Ledger {
    open: FxHashMap<ThreadId, Account>,
    /// Threads whose accounts are closed, as long as the world knows them.
    closed: FxHashSet<ThreadId>,
}

impl Ledger {
    /// Books work of a thread that is counted already: `(from_ns, to_ns, shared)`, in order of time, each one request's
    /// own or shared. If records were lost, the thread may have been off its CPU meanwhile; that time is booked for no
    /// request.
    pub fn book(
        &mut self,
        world: &World,
        id: ThreadId,
        work: impl Iterator<Item = (u64, u64, bool)>,
    ) {
        let Some(account) = self.open.get_mut(&id) else { return };
        let mut ran = None;
        for (from_ns, to_ns, shared) in work {
            let (from_ns, to_ns) = (from_ns.max(account.since_ns), to_ns.min(account.until_ns));
            let ran = ran.get_or_insert_with(|| Ran::since(world.thread(id), from_ns));
            let booked = if shared { &mut account.shared_ns } else { &mut account.own_ns };
            *booked = booked.saturating_add(ran.between(from_ns, to_ns));
        }
    }

    /// Adds what traced threads ran up to `until_ns`, all of which has to be known.
    pub fn count(&mut self, world: &World, until_ns: u64) {
        for (id, thread) in world.threads.iter().filter(|(_, thread)| thread.traced) {
            if self.closed.contains(&(id as ThreadId)) {
                continue;
            }
            let account = self.open.entry(id as ThreadId).or_default();
            if account.since_ns == 0 {
                account.since_ns = thread.known_from_ns.max(thread.born_ns).max(world.start_ns);
                account.until_ns = account.since_ns;
            }
            let until_ns = until_ns.min(thread.gone_ns);
            account.pid = world.process_of(id as ThreadId).tgid;
            account.tid = thread.tid;
            if account.until_ns < until_ns {
                account.comm = thread.name_at(until_ns).to_string();
                let ran_ns =
                    Ran::since(thread, account.until_ns).between(account.until_ns, until_ns);
                account.cpu_ns = account.cpu_ns.saturating_add(ran_ns);
                account.until_ns = until_ns;
            }
        }
    }

    /// Closes the accounts of threads that were gone before `horizon_ns`: all that they ran has been counted, and what
    /// requests can have of it has been booked. Returns them, sorted by number.
    pub fn close_before(&mut self, world: &World, horizon_ns: u64) -> Vec<Account> {
        let gone = |id: ThreadId| world.thread(id).gone_ns < horizon_ns;
        let closed = self.open.extract_if(|id, _| gone(*id));
        let (ids, accounts): (Vec<_>, Vec<_>) = closed.unzip();
        self.closed.extend(ids);
        in_order(accounts)
    }

    /// Forgets threads that the world has forgotten.
    pub fn forget(&mut self, world: &World) {
        self.closed.retain(|id| world.threads.has(*id as usize));
    }

    /// The accounts that are open, sorted by number.
    pub fn accounts(&self) -> Vec<Account> {
        in_order(self.open.values().cloned().collect())
    }
}

fn in_order(mut accounts: Vec<Account>) -> Vec<Account> {
    accounts.retain(|account| account.since_ns != 0);
    accounts.sort_by_key(Account::number);
    accounts
}

/// How long a thread had a CPU, for stretches of time that follow each other.
struct Ran<'w> {
    thread: &'w Thread,
    /// The index of the first off-CPU interval, and of the first interval taken by the hypervisor, that may still
    /// matter.
    off: usize,
    steal: usize,
}

impl<'w> Ran<'w> {
    fn since(thread: &'w Thread, from_ns: u64) -> Ran<'w> {
        Ran {
            thread,
            off: count_before(&thread.off, |off| off.end_ns <= from_ns),
            steal: count_before(&thread.steals, |span| span.end_ns <= from_ns),
        }
    }

    /// CPU time in `[from_ns, to_ns)`. Later calls must not ask about anything before `from_ns`.
    fn between(&mut self, from_ns: u64, to_ns: u64) -> u64 {
        let Thread { off, steals, .. } = self.thread;
        if !self.thread.has_run() || to_ns <= from_ns {
            return 0;
        }
        while off.get(self.off).is_some_and(|off| off.end_ns <= from_ns) {
            self.off += 1;
        }
        while steals.get(self.steal).is_some_and(|span| span.end_ns <= from_ns) {
            self.steal += 1;
        }
        let overlap_ns =
            |start_ns: u64, end_ns: u64| end_ns.min(to_ns).saturating_sub(start_ns.max(from_ns));
        let off = off.range(self.off..).take_while(|off| off.start_ns < to_ns);
        let steals = steals.range(self.steal..).take_while(|span| span.start_ns < to_ns);
        let off_ns = off.map(|off| overlap_ns(off.start_ns, off.end_ns));
        let stolen_ns = steals.map(|span| overlap_ns(span.start_ns, span.end_ns));
        // Damaged records may overlap.
        off_ns.chain(stolen_ns).fold(to_ns - from_ns, u64::saturating_sub)
    }
}
