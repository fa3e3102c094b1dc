//! Running sums of what each thread did, so that "what did this thread do between a and b" is a subtraction,
//! whatever the length of the interval.

use crate::classify::on_cpu;
use crate::ownership::totals::{AllTotals, Nanoseconds, STRETCHES};
use crate::timeline::gallop::count_before;
use crate::timeline::{Thread, ThreadId, Why};
use rpcprobe_model::Category;

/// What a thread did in a stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// The thread had a CPU, or the hypervisor had taken that CPU.
    Ran(Category),
    Asleep,
    /// Woken, without a CPU yet.
    Woken,
    Preempted,
    NotStarted,
    NotKnown,
}

const RAN: usize = Category::ALL.len();
const KINDS: usize = RAN + 5;
const OTHERS: [(Doing, &str); KINDS - RAN] = [
    (Doing::Asleep, "asleep"),
    (Doing::Woken, "on the run queue"),
    (Doing::Preempted, "preempted"),
    (Doing::NotStarted, "not yet started"),
    (Doing::NotKnown, "not known"),
];

impl Doing {
    fn index(self) -> usize {
        match self {
            Doing::Ran(category) => category as usize,
            other => RAN + OTHERS.iter().position(|(doing, _)| *doing == other).expect("listed"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Doing::Ran(category) => category.name(),
            other => OTHERS[other.index() - RAN].1,
        }
    }
}

/// Nanoseconds by what was done.
pub type Spent = Nanoseconds<KINDS>;

impl Spent {
    pub fn add(&mut self, doing: Doing, ns: u64) {
        self.add_to(doing.index(), ns);
    }

    /// Names what took at least a tenth of the time, longest first: `user, kernel.tcp`.
    pub fn in_words(&self) -> String {
        let all_ns = self.0.iter().copied().fold(0, u64::saturating_add);
        let took = |(_, ns): &(usize, u64)| *ns > 0 && *ns >= all_ns / 10;
        let mut most: Vec<_> = self.0.iter().copied().enumerate().filter(took).collect();
        most.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        let mut words = String::with_capacity(32);
        for (index, _) in most {
            let name = match index.checked_sub(RAN) {
                Some(other) => OTHERS[other].1,
                None => Category::ALL[index].name(),
            };
            words.extend([if words.is_empty() { "" } else { ", " }, name]);
        }
        words
    }
}

/// The interval up to `at_ns`, at most back to `from_ns`, in which a thread did one thing: its begin, and what the
/// thread did. Time without records so far is [`Doing::NotKnown`].
pub fn stretch_before(thread: &Thread, at_ns: u64, from_ns: u64) -> (u64, Doing) {
    let off = thread.off_before(at_ns);
    let (start_ns, doing) = match off {
        None if at_ns <= thread.born_ns => (from_ns, Doing::NotStarted),
        Some(off) if off.end_ns >= at_ns => match (off.why, off.runnable_ns()) {
            (Why::Preempted, _) => (off.start_ns, Doing::Preempted),
            (Why::Born, _) => (off.start_ns, Doing::NotStarted),
            (_, Some(runnable_ns)) if runnable_ns < at_ns => (runnable_ns, Doing::Woken),
            _ => (off.start_ns, Doing::Asleep),
        },
        // It may have run or been off a CPU: its records began later, or are forgotten.
        _ if at_ns <= thread.known_from_ns => {
            (off.map_or(from_ns, |off| off.end_ns), Doing::NotKnown)
        }
        _ => {
            let floor_ns = off.map_or(0, |off| off.end_ns).max(from_ns);
            match on_cpu::piece_before(thread, at_ns, floor_ns, true) {
                Some(piece) => (piece.start_ns, Doing::Ran(on_cpu::category(&piece.level))),
                None => (from_ns, Doing::NotKnown),
            }
        }
    };
    // The interval must not be empty, even if the time lines are out of order.
    (if start_ns < at_ns { start_ns.max(from_ns) } else { from_ns }, doing)
}

/// The number of calls that a thread began in `[from_ns, to_ns)`.
fn calls_in(thread: &Thread, from_ns: u64, to_ns: u64) -> usize {
    let begun = |ns: u64| count_before(&thread.calls, |call| call.enter_ns < ns);
    if from_ns < to_ns {
        begun(to_ns) - begun(from_ns)
    } else {
        0
    }
}

/// What a thread did in `[from_ns, to_ns)`, by adding up each stretch; `None` if there are more than `most` stretches.
fn summed(thread: &Thread, from_ns: u64, to_ns: u64, most: usize) -> Option<Spent> {
    let mut spent = Spent::default();
    let mut at_ns = to_ns;
    for _ in 0..most {
        if at_ns <= from_ns {
            break;
        }
        let (start_ns, doing) = stretch_before(thread, at_ns, from_ns);
        spent.add(doing, at_ns - start_ns);
        at_ns = start_ns;
    }
    (at_ns <= from_ns).then_some(spent)
}

/// The sums of all threads that were asked for.
#[derive(Debug, Default)]
pub struct Sums(AllTotals<KINDS>);

impl Sums {
    /// What the thread did in `[from_ns, to_ns)`, all of which has to be known by now.
    ///
    /// Each stretch is looked up once as long as the intervals follow each other or overlap. What lies between the sums
    /// and a later interval is looked up, too, unless that is more than is summed: then the sums begin anew. So sums
    /// that are needed again grow by as much as they cost.
    pub fn spent(&self, id: ThreadId, thread: &Thread, from_ns: u64, to_ns: u64) -> Spent {
        match self.0.extent(id) {
            Some(summed) if from_ns < summed.from_ns => {
                let few = calls_in(thread, from_ns, to_ns) <= STRETCHES;
                let directly = || self::summed(thread, from_ns, to_ns, STRETCHES);
                if let Some(spent) = few.then(directly).flatten() {
                    return spent; // sooner than to begin the sums there
                }
            }
            Some(summed) if calls_in(thread, summed.until_ns, from_ns) > summed.stretches => {
                self.0.drop_of(id);
            }
            _ => {}
        }
        let before = |at_ns: u64, from_ns: u64| {
            let (start_ns, doing) = stretch_before(thread, at_ns, from_ns);
            (start_ns, doing.index())
        };
        self.0.ask(id, (from_ns, to_ns), None, before, |totals| totals.between(from_ns, to_ns))
    }

    /// Forgets what no request that begins at or after `horizon_ns` asks for, and threads that are not there.
    pub fn forget_before(&self, horizon_ns: u64, is_there: impl Fn(ThreadId) -> bool) {
        self.0.forget_before(horizon_ns, is_there);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Off, Span};

    /// Runs and sleeps by turns, with interrupts.
    fn busy() -> Thread {
        let mut thread = Thread::default();
        thread.settled_ns = u64::MAX;
        for turn in 0..500u64 {
            let at_ns = 1000 + turn * 100;
            let why = match turn % 3 {
                0 => Why::Preempted,
                _ => Why::Slept { uninterruptible: false, iowait: false },
            };
            let (start_ns, end_ns) = (at_ns, at_ns + 10 + turn % 20);
            thread.off.push_back(Off { start_ns, end_ns, why, wake: None, cpu: None, call: None });
            let (start_ns, end_ns) = (at_ns + 50, at_ns + 50 + turn % 7);
            thread.softirqs.push_back(Span { start_ns, end_ns, number: 3 });
        }
        thread
    }

    #[test]
    fn a_subtraction_gives_what_adding_up_gives() {
        let (thread, sums) = (busy(), Sums::default());
        for (from_ns, to_ns) in [
            (5000, 9000),
            (5003, 9007),
            (2000, 4999),
            (2000, 50_000),
            (8000, 8001),
            (30_011, 30_499),
        ] {
            let spent = sums.spent(1, &thread, from_ns, to_ns);
            let one_by_one = summed(&thread, from_ns, to_ns, usize::MAX);
            assert_eq!(Some(&spent), one_by_one.as_ref(), "{from_ns} {to_ns}");
            assert_eq!(spent.0.iter().sum::<u64>(), to_ns - from_ns);
            sums.forget_before(from_ns.min(6000), |_| true);
        }
    }

    /// Requests that are asked about latest first.
    #[test]
    fn what_lies_before_is_summed_a_few_times_only() {
        let (thread, sums) = (busy(), Sums::default());
        let mut begins = Vec::new();
        for from_ns in (1000..50_000).rev().step_by(100) {
            let spent = sums.spent(1, &thread, from_ns, 50_900);
            assert_eq!(Some(spent), summed(&thread, from_ns, 50_900, usize::MAX), "{from_ns}");
            let begin_ns = sums.0.extent(1).map(|summed| summed.from_ns);
            begins.extend(begin_ns.filter(|_| begins.last() != Some(&begin_ns.unwrap_or(0))));
        }
        assert!(begins.len() <= 8, "{begins:?}");
    }

    /// A server's history is forgotten while requests that it has not read yet wait in its sockets.
    #[test]
    fn before_its_first_record_nothing_is_known_of_a_thread() {
        let mut thread = busy();
        (thread.born_ns, thread.known_from_ns) = (1, 1_000_000);
        thread.off.clear();
        thread.softirqs.clear();
        assert_eq!(stretch_before(&thread, 900_000, 500), (500, Doing::NotKnown));
        let known = stretch_before(&thread, 1_000_500, 500);
        assert_eq!(known, (1_000_000, Doing::Ran(Category::User)));
    }

    /// A thread that a capture attached to: its switches were recorded before its calls.
    #[test]
    fn what_is_not_known_after_a_sleep_is_one_stretch() {
        let (mut thread, sums) = (busy(), Sums::default());
        let slept_ns = thread.off.back().map_or(0, |off| off.end_ns);
        thread.known_from_ns = slept_ns + 10_000_000;
        let known_from_ns = thread.known_from_ns;
        let not_known = (slept_ns, Doing::NotKnown);
        assert_eq!(stretch_before(&thread, known_from_ns, 500), not_known);
        let spent = sums.spent(1, &thread, slept_ns, known_from_ns + 1_000);
        assert_eq!(spent.0[Doing::NotKnown.index()], known_from_ns - slept_ns);
        sums.spent(1, &thread, 500, known_from_ns + 1_000);
        let stretches = sums.0.extent(1).map_or(0, |summed| summed.stretches);
        assert!(stretches <= 3 * (thread.off.len() + thread.softirqs.len()), "{stretches}");
    }

    #[test]
    fn words_name_what_took_a_tenth() {
        let mut spent = Spent::default();
        spent.add(Doing::Ran(Category::User), 30);
        spent.add(Doing::Asleep, 65);
        spent.add(Doing::Ran(Category::Fault), 5);
        assert_eq!(spent.in_words(), "asleep, user");
    }
}
