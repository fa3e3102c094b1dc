//! Running sums of the work of threads that work for many requests at once.
//!
//! A thread that has taken in many requests by one read may do thousands of things before it answers the first, and
//! each of these things is work for every one of the requests. Reported one by one, they cost requests times pieces; by
//! sums, each request costs the same.

use crate::calibration::Rates;
use crate::classify::on_cpu;
use crate::classify::parts::parts;
use crate::ownership::sums::{stretch_before, Doing};
use crate::ownership::totals::AllTotals;
use crate::timeline::gallop::count_before;
use crate::timeline::{Thread, ThreadId};
use rpcprobe_model::{Category, Evidence};

const CATEGORIES: usize = Category::ALL.len();
/// Categories, measured and modelled, and one kind that is no work: the thread slept, or did not exist.
const KINDS: usize = 2 * CATEGORIES + 1;
const NO_WORK: usize = KINDS - 1;

/// A stretch with more off-CPU intervals and calls than this is reported by sums, a shorter stretch piece by piece. (A
/// request of no more than 100 segments is reported piece by piece, too: [`crate::condense`].)
const MANY: usize = 100;

/// What a thread did, without sleeping, up to some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub from_ns: u64,
    /// By category, longest first.
    pub sums: Vec<(Category, Evidence, u64)>,
}

/// How pieces are divided into categories.
#[derive(Clone, Copy, Debug)]
pub struct Telling {
    pub rates: Rates,
    /// Packets that a thread receives in its own call count as `wire.stack`.
    pub wire: bool,
}

/// The last part before `at_ns` of what the thread did, at most back to `from_ns`: its begin, and its kind.
fn part_before(thread: &Thread, at_ns: u64, from_ns: u64, telling: &Telling) -> (u64, usize) {
    let (start_ns, doing) = stretch_before(thread, at_ns, from_ns);
    match doing {
        Doing::Preempted => (start_ns, Category::RunqueuePreempted as usize),
        Doing::Asleep | Doing::Woken | Doing::NotStarted | Doing::NotKnown => (start_ns, NO_WORK),
        Doing::Ran(category) => {
            let whole = (start_ns, category as usize);
            let Some(piece) = on_cpu::piece_before(thread, at_ns, start_ns, true) else {
                return whole;
            };
            let parts = parts(thread, &piece, at_ns, &telling.rates, telling.wire);
            let last = parts.iter().find(|part| part.start_ns < part.end_ns);
            last.map_or(whole, |part| {
                let modelled = usize::from(part.evidence == Evidence::Modelled);
                let kind = part.category as usize + modelled * CATEGORIES;
                (part.start_ns.max(start_ns), kind)
            })
        }
    }
}

/// The sums of all threads that were asked for.
#[derive(Debug, Default)]
pub struct WorkSums(AllTotals<KINDS>);

impl WorkSums {
    /// What the thread did up to `to_ns`, since it last slept, at most back to `from_ns`, which has to be [`is_long`];
    /// all of that has to be known by now. `None` if the stretch since the sleep is short.
    pub fn until(
        &self,
        (id, thread): (ThreadId, &Thread),
        (from_ns, to_ns): (u64, u64),
        telling: &Telling,
    ) -> Option<Stretch> {
        let before = |at_ns: u64, from_ns: u64| part_before(thread, at_ns, from_ns, telling);
        let (from_ns, spent) =
            self.0.ask(id, (from_ns, to_ns), Some(NO_WORK), before, |totals| {
                let slept_ns = totals.divided_ns(to_ns);
                let from_ns = slept_ns.map_or(from_ns, |ns| ns.max(from_ns));
                is_long(thread, from_ns, to_ns).then(|| (from_ns, totals.between(from_ns, to_ns)))
            })?;
        let sums = spent.0.iter().enumerate().filter(|(_, ns)| **ns > 0).map(|(kind, &ns)| {
            let evidence = match kind < CATEGORIES {
                true => Evidence::Measured,
                false => Evidence::Modelled,
            };
            (Category::ALL[kind % CATEGORIES], evidence, ns)
        });
        let mut sums: Vec<_> = sums.collect();
        sums.sort_by_key(|(.., ns)| std::cmp::Reverse(*ns));
        Some(Stretch { from_ns, sums })
    }

    /// Forgets what no request that begins at or after `horizon_ns` asks for, and threads that are not there.
    pub fn forget_before(&self, horizon_ns: u64, is_there: impl Fn(ThreadId) -> bool) {
        self.0.forget_before(horizon_ns, is_there);
    }
}

/// Whether the thread made many calls, or was often off its CPU.
pub fn is_long(thread: &Thread, from_ns: u64, to_ns: u64) -> bool {
    let begun = |ns: u64| {
        count_before(&thread.off, |off| off.start_ns < ns)
            + count_before(&thread.calls, |call| call.enter_ns < ns)
    };
    begun(to_ns).saturating_sub(begun(from_ns)) > MANY
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Off, Span, Why};

    /// Runs and is preempted by turns, with interrupts, and sleeps before 15,000.
    fn busy() -> Thread {
        let mut thread = Thread::default();
        thread.settled_ns = u64::MAX;
        for turn in 0..300u64 {
            let start_ns = 1000 + turn * 100;
            let end_ns = start_ns + 10 + turn % 20;
            let slept = Why::Slept { uninterruptible: false, iowait: false };
            let why = if turn == 139 { slept } else { Why::Preempted };
            thread.off.push_back(Off { start_ns, end_ns, why, wake: None, cpu: None, call: None });
            let (start_ns, end_ns) = (start_ns + 50, start_ns + 50 + turn % 7);
            thread.softirqs.push_back(Span { start_ns, end_ns, number: 3 });
        }
        thread
    }

    #[test]
    fn long_work_is_summed_since_the_last_sleep() {
        let (thread, sums) = (busy(), WorkSums::default());
        let telling = Telling { rates: Rates::default(), wire: true };
        let until = |from_ns: u64, to_ns: u64| sums.until((1, &thread), (from_ns, to_ns), &telling);
        assert_eq!(until(16_000, 16_900), None, "short");
        assert_eq!(until(1_000, 20_000), None, "short since it slept");
        let woke_ns = 14_900 + 10 + 139 % 20;
        for (from_ns, to_ns, since_ns) in
            [(2_000, 30_000, woke_ns), (16_005, 30_007, 16_005), (1_500, 14_000, 1_500)]
        {
            let stretch = until(from_ns, to_ns).expect("long");
            assert_eq!(stretch.from_ns, since_ns);
            let mut expected = [0; KINDS];
            let mut at_ns = to_ns;
            while at_ns > since_ns {
                let (start_ns, kind) = part_before(&thread, at_ns, since_ns, &telling);
                expected[kind] += at_ns - start_ns;
                at_ns = start_ns;
            }
            assert_eq!(expected[NO_WORK], 0);
            assert_eq!(stretch.sums.iter().map(|(.., ns)| ns).sum::<u64>(), to_ns - since_ns);
            for (category, evidence, ns) in stretch.sums {
                assert_eq!(evidence, Evidence::Measured);
                assert_eq!(ns, expected[category as usize], "{category:?}");
            }
            sums.forget_before(1_500, |_| true);
        }
    }
}
