//! On a crowded machine whoever empties the rings must not be the one who waits.

/// The scheduling of this thread before it was raised; restored when dropped.
pub(super) struct Raised {
    policy: libc::c_int,
    param: libc::sched_param,
    nice: libc::c_int,
}

impl Raised {
    /// Raises this thread, as far as allowed: before all that is not real-time. A nice value alone does
    /// not do, as it counts only among the threads of one control group or session (sched(7), autogroup),
    /// and what is captured has mostly another (`make priority` in experiments/robustness).
    ///
    /// Threads and processes that this one starts begin without it.
    pub(super) fn now() -> Raised {
        let mut param = libc::sched_param { sched_priority: 0 };
        // SAFETY: the calls take integers, and a parameter that lives through them; 0 is this thread.
        unsafe {
            let policy = libc::sched_getscheduler(0);
            libc::sched_getparam(0, &mut param);
            let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
            let lowest = libc::sched_param { sched_priority: 1 };
            if libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &lowest) != 0
            {
                libc::setpriority(libc::PRIO_PROCESS, 0, -10);
            }
            Raised { policy, param, nice }
        }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            libc::sched_setscheduler(0, self.policy, &self.param);
            libc::setpriority(libc::PRIO_PROCESS, 0, self.nice);
        }
    }
}
