//! Waits for an RCU grace period: until every CPU has left the sections in which it may still use what is replaced. A
//! process with several threads waits for one whenever it enlarges its table of descriptors, at 64, 128, 256, ...
//! descriptors (fs/file.c, `expand_fdtable()`). Its other threads that make descriptors wait until that is done
//! (`expand_files()`).

use crate::classify::off_cpu::{inferred, Part, Wait};
use crate::classify::syscall::{makes_descriptor, makes_other_descriptor};
use crate::timeline::gallop::latest_before;
use crate::timeline::{Off, ThreadId, Why, World};
use rpcprobe_model::Category;
use rpcprobe_record::WAKING_SOFTIRQ;

/// Kernel threads that end such waits have names that begin with this: `rcu_preempt`, `rcu_sched`; where callbacks have
/// threads of their own, `rcuop/0`, `rcuos/0`, `rcuc/0` (kernel/rcu/tree.c, kernel/rcu/tree_nocb.h).
const NAMES: &str = "rcu";

const GRACE_PERIOD: &str = "an RCU grace period";
const ENLARGE: &str = "enlarge the table of descriptors";

fn is_rcu(world: &World, thread: ThreadId, at_ns: u64) -> bool {
    let t = world.thread(thread);
    t.kthread && t.name_at(at_ns).starts_with(NAMES)
}

/// Whether a sleep ended with a grace period, as far as is known: a thread of RCU ended it, or a softirq, in which RCU's
/// callbacks run otherwise (`wakeme_after_rcu()`). A softirq may also mean a timer or a device, but not in a call that
/// only makes a descriptor in a process with several threads.
fn ended_with_grace_period(world: &World, thread: ThreadId, off: &Off) -> bool {
    let slept = matches!(off.why, Why::Slept { uninterruptible: true, .. });
    let Some(wake) = off.wake.filter(|_| slept) else { return false };
    if wake.flags & WAKING_SOFTIRQ != 0 {
        let shares = world.process_of(thread).threads.len() > 1;
        let makes = off.call.is_some_and(|call| makes_other_descriptor(call.nr));
        return wake.block == 0 && shares && makes;
    }
    wake.by_waker() && is_rcu(world, wake.waker, wake.at_ns)
}

impl Wait<'_> {
    /// A wait for a grace period, or for the thread of the same process that waited for one.
    pub(super) fn for_grace_period(&self) -> Option<Vec<Part>> {
        let Wait { world, thread, off, ref name, waker, .. } = *self;
        let grows = |off: &Off| off.call.is_some_and(|call| makes_descriptor(call.nr));
        let detail = match ended_with_grace_period(world, thread, off) {
            true if grows(off) => format!("{GRACE_PERIOD}, as to {ENLARGE}, in {name}"),
            true => format!("{GRACE_PERIOD}, in {name}"),
            false => {
                let (waker, wake) = (waker?, off.wake?);
                let t = world.thread(waker);
                let slept = latest_before(&t.off, |before| before.end_ns <= wake.at_ns).next()?;
                let enlarged = grows(slept) && ended_with_grace_period(world, waker, slept);
                if t.process != world.thread(thread).process || !grows(off) || !enlarged {
                    return None;
                }
                format!("another thread waited for {GRACE_PERIOD}, as to {ENLARGE}, in {name}")
            }
        };
        // A softirq runs in place of any thread.
        let by = waker.filter(|_| off.wake.is_some_and(|wake| wake.flags & WAKING_SOFTIRQ == 0));
        Some(inferred(self.whole(Category::Lock, detail, None, by)))
    }
}
