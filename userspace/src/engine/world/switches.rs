//! Who has which CPU when: context switches and wake-ups, also those that left no record, and what the
//! hypervisor took.

use super::*;

impl World {
    /// A CPU that was taken comes back with the interrupts that had to wait: the time goes just before
    /// `until_ns`, if it fills enough of what is possible.
    pub(super) fn steal(&mut self, tid: u32, since_ns: u64, until_ns: u64, taken_ns: u64) {
        let id = self.thread_of_tid(tid);
        let thread = &mut self.threads[id as usize];
        let window_ns = until_ns.saturating_sub(since_ns);
        if taken_ns >= window_ns - window_ns / 4 {
            let start_ns = until_ns.saturating_sub(taken_ns).max(since_ns);
            thread.steals.push_back(Span { start_ns, end_ns: until_ns, number: 0 });
        } else if thread.traced {
            self.steal_unplaced_ns = self.steal_unplaced_ns.saturating_add(taken_ns);
        }
    }

    /// Who leaves a CPU must be who came on it last. Where another does, a switch was missed (no
    /// record and no loss told: kernels were seen that trace nothing while certain threads run):
    /// since the last one nobody knows when the thread came back.
    pub(super) fn check_switch_chain(&mut self, cpu: u32, prev: ThreadId, ts_ns: u64) {
        if !self.whole_machine {
            return;
        }
        let last = self.cpus.get(cpu as usize).and_then(|runs| runs.back());
        let Some(&(since_ns, _)) = last.filter(|(_, who)| *who != prev) else { return };
        self.missed_switches += 1;
        let thread = &mut self.threads[prev as usize];
        let Some(off) = thread.off.back_mut().filter(|off| off.end_ns == NEVER) else { return };
        let back_ns = since_ns.max(off.start_ns);
        off.end_ns = back_ns;
        off.cpu = Some(cpu);
        thread.off.push_back(Off {
            start_ns: back_ns,
            end_ns: ts_ns,
            why: Why::Unseen,
            wake: None,
            cpu: Some(cpu),
            call: None,
        });
    }

    /// A switch that left no record, from what the scheduler noted of it. Of a traced thread that left
    /// the CPU in it nothing is known until it comes back.
    pub(super) fn restore_switch(
        &mut self,
        cpu: u32,
        (left, since_ns): (ThreadId, u64),
        (arrived, arrived_ns): (ThreadId, u64),
    ) {
        let mut is_whole = true;
        if left != IDLE {
            let thread = &mut self.threads[left as usize];
            thread.on_cpu = None;
            let is_here = thread.off.back().is_none_or(|off| off.end_ns <= since_ns);
            if is_here && (thread.traced || left == arrived) {
                is_whole = false;
                thread.off.push_back(Off {
                    start_ns: since_ns,
                    end_ns: if left == arrived { arrived_ns } else { NEVER },
                    why: Why::Unseen,
                    wake: None,
                    cpu: Some(cpu),
                    call: None,
                });
            }
        }
        if left != arrived {
            self.switch_in(arrived, arrived_ns, cpu);
        }
        if let Some(runs) = self.cpus.get_mut(cpu as usize) {
            runs.push_back((arrived_ns, arrived));
        }
        match is_whole {
            true => self.restored_switches += 1,
            false => self.missed_switches += 1,
        }
    }

    /// A thread that is about to get its CPU, after it has waited for one so long: when it was woken,
    /// if that left no record.
    pub(super) fn restore_wake(&mut self, id: ThreadId, back_ns: u64, waited_ns: Option<u32>) {
        let Some(waited_ns) = waited_ns else { return };
        let Some(off) = self.threads[id as usize].off.back_mut() else { return };
        let asleep = off.end_ns == NEVER && matches!(off.why, Why::Slept { .. });
        if asleep && off.wake.is_none() {
            let at_ns = back_ns.saturating_sub(u64::from(waited_ns)).max(off.start_ns);
            off.wake = Some(Wake { at_ns, waker: IDLE, flags: WAKING_UNSEEN, block: 0 });
            self.restored_wakes += 1;
        }
    }

    pub(super) fn switch_out(
        &mut self,
        id: ThreadId,
        ts_ns: u64,
        why: Why,
        call: Option<OpenCall>,
    ) -> bool {
        if id == IDLE {
            return false;
        }
        let thread = &mut self.threads[id as usize];
        thread.on_cpu = None;
        if why == Why::Dead {
            thread.gone_ns = ts_ns;
        }
        let early = thread.early_wake.take();
        // An early wake-up belongs to this sleep only if it came in the same system call.
        let begun_ns = call.map_or(ts_ns.saturating_sub(100_000), |call| call.enter_ns);
        let wake = early.filter(|wake| matches!(why, Why::Slept { .. }) && wake.at_ns >= begun_ns);
        thread.off.push_back(Off { start_ns: ts_ns, end_ns: NEVER, why, wake, cpu: None, call });
        if call.is_some() {
            thread.open_call = call;
        }
        // A sleep outside any system call is a fault under way: its record is still to come.
        let settled = call.is_some() || matches!(why, Why::Preempted | Why::Dead);
        if settled {
            thread.settled_ns = thread.settled_ns.max(ts_ns);
        }
        settled && thread.traced
    }

    /// A thread that fell asleep before it was traced; whether that is news.
    pub(super) fn found_asleep(
        &mut self,
        id: ThreadId,
        ts_ns: u64,
        state: u16,
        call: Option<OpenCall>,
    ) -> bool {
        let thread = &mut self.threads[id as usize];
        let uninterruptible = state & TASK_UNINTERRUPTIBLE != 0;
        let why = Why::Slept { uninterruptible, iowait: false };
        match thread.off.back_mut() {
            // Its switch-out was seen, by a hook that did not know it yet.
            Some(off) if off.end_ns == NEVER => {
                if off.call.is_none() {
                    off.call = call;
                }
            }
            _ if thread.on_cpu.is_some() => return false, // it has come back since
            _ => {
                let wake = None;
                let start_ns = thread.known_from_ns;
                thread.off.push_back(Off { start_ns, end_ns: NEVER, why, wake, cpu: None, call });
            }
        }
        thread.open_call = thread.open_call.or(call);
        thread.settled_ns = thread.settled_ns.max(ts_ns);
        true
    }

    pub(super) fn switch_in(&mut self, id: ThreadId, ts_ns: u64, cpu: u32) {
        if id == IDLE {
            return;
        }
        let thread = &mut self.threads[id as usize];
        match thread.off.back_mut() {
            Some(off) if off.end_ns == NEVER => {
                off.end_ns = ts_ns;
                off.cpu = Some(cpu);
                thread.early_wake = thread.early_wake.filter(|wake| wake.at_ns >= ts_ns);
            }
            Some(_) => {} // its switch-out was lost
            None => thread.off.push_back(Off {
                start_ns: thread.known_from_ns.min(ts_ns),
                end_ns: ts_ns,
                why: Why::Unseen,
                wake: thread.early_wake.take(),
                cpu: Some(cpu),
                call: None,
            }),
        }
        thread.on_cpu = Some(cpu);
        if thread.cpus.back().is_none_or(|&(_, last)| last != cpu) {
            thread.cpus.push_back((ts_ns, cpu));
        }
    }
}
