//! On a crowded machine, the thread that empties the rings must not be the one that waits.

/// The previous scheduling of this thread, restored when dropped. `None` if it was not changed.
pub(super) struct Raised(Option<Before>);

struct Before {
    policy: libc::c_int,
    param: libc::sched_param,
    nice: libc::c_int,
}

impl Raised {
    /// Raises this thread, as far as allowed, above everything that is not real-time. A nice value alone is not enough:
    /// it counts only among the threads of one control group or session (sched(7), autogroup), and the captured
    /// programs usually have another one (`make priority` in experiments/robustness). A thread that is real-time itself
    /// (`chrt`) stays as it is.
    ///
    /// Threads and processes started by this thread begin without it.
    pub(super) fn now() -> Raised {
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: the calls take integers, and a parameter that lives through them; 0 is this thread.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            if !matches!(
                policy & !libc::SCHED_RESET_ON_FORK,
                libc::SCHED_OTHER | libc::SCHED_BATCH | libc::SCHED_IDLE
            ) {
                return Raised(None);
            }
            libc::sched_getparam(0, &mut param);
            let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
            let lowest = libc::sched_param { sched_priority: 1 };
            if libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &lowest) != 0
            {
                libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &param);
                libc::setpriority(libc::PRIO_PROCESS, 0, nice.min(-10));
            }
            Raised(Some(Before { policy, param, nice }))
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let Some(Before { policy, param, nice }) = &self.0 else { return };
        // SAFETY: as above.
        unsafe {
            libc::sched_setscheduler(0, *policy, param);
            libc::setpriority(libc::PRIO_PROCESS, 0, *nice);
        }
    }
}
