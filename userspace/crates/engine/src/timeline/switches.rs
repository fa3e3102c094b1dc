//! Which thread has which CPU when: context switches and wake-ups, including those that left no record, and
//! the time that the hypervisor took.

use crate::classify::on_cpu::{self, Piece};
use crate::classify::syscall::{waits, Waits};
use crate::ownership::marks::is_rest;
use crate::timeline::*;

/// Limit of the stretches without records that are searched for a place for stolen time.
const MOST_STRETCHES: usize = 1000;

impl World {
    /// Places stolen time. A CPU that was taken makes no records, and comes back with the interrupts that had to wait.
    /// So the time goes to the end of a stretch without records, if only one stretch is long enough and the time fills
    /// most of it.
    pub(super) fn steal(&mut self, cpu: u32, tid: u32, window: (u64, u64), taken_ns: u64) {
        let id = self.thread_of_tid(tid);
        let stretch = self.only_stretch(cpu, id, window, taken_ns);
        match stretch.filter(|(_, start_ns, end_ns)| taken_ns >= (end_ns - start_ns) / 4 * 3) {
            Some((thread, _, end_ns)) => {
                let span = Span { start_ns: end_ns - taken_ns, end_ns, number: 0 };
                let steals = &mut self.threads[thread as usize].steals;
                match steals.back().is_none_or(|last| last.end_ns <= span.start_ns) {
                    true => steals.push_back(span),
                    false => self.steal_without_place(thread, taken_ns),
                }
            }
            None => self.steal_without_place(id, taken_ns),
        }
    }

    /// The stretch on a CPU in which that much time can have been taken, if there is only one. It lies in the window,
    /// which begins at the last look, or just before the window, because the kernel looks a little before its hook.
    fn only_stretch(
        &self,
        cpu: u32,
        id: ThreadId,
        (since_ns, until_ns): (u64, u64),
        taken_ns: u64,
    ) -> Option<(ThreadId, u64, u64)> {
        let runs = self.cpus.get(cpu as usize);
        let before = runs.and_then(|runs| last_before(runs, |(from_ns, _)| *from_ns < since_ns));
        let before = before.and_then(|&(from_ns, who)| self.pieces(who, from_ns, since_ns).next());
        let mut only = None;
        let stretches = before.into_iter().chain(self.pieces(id, since_ns, until_ns));
        for (number, stretch) in stretches.enumerate() {
            let long_enough = taken_ns <= stretch.2 - stretch.1;
            if number == MOST_STRETCHES || long_enough && only.is_some() {
                return None;
            }
            only = only.or(Some(stretch).filter(|_| long_enough));
        }
        only
    }

    /// The stretches of `[from_ns, to_ns)`, latest first, in which nothing was recorded of a thread while it
    /// had its CPU: (thread, begin, end).
    fn pieces(
        &self,
        id: ThreadId,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = (ThreadId, u64, u64)> + '_ {
        let thread = self.thread(id);
        let came_ns = thread.off_before(to_ns).map_or(0, |off| off.end_ns);
        let from_ns = from_ns.max(thread.known_from_ns).max(came_ns);
        let mut end_ns = to_ns;
        std::iter::from_fn(move || {
            if end_ns <= from_ns {
                return None;
            }
            let Piece { start_ns, .. } = on_cpu::piece_before(thread, end_ns, from_ns, true)?;
            let piece = (id, start_ns, end_ns);
            end_ns = start_ns;
            Some(piece)
        })
    }

    fn steal_without_place(&mut self, id: ThreadId, taken_ns: u64) {
        if self.threads[id as usize].traced {
            self.steal_unplaced_ns = self.steal_unplaced_ns.saturating_add(taken_ns);
        }
    }

    /// If a call began while the CPU was thought to be taken, the CPU was taken at other times.
    pub(super) fn call_began(&mut self, id: ThreadId, enter_ns: u64) {
        let steals = &mut self.threads[id as usize].steals;
        let last = steals.iter().rev().take_while(|span| span.end_ns > enter_ns);
        let within = last.filter(|span| span.start_ns < enter_ns).count();
        // The spans do not overlap, so at most one contains the call's begin.
        if within > 0 {
            let at = count_before(steals, |span| span.start_ns < enter_ns) - 1;
            if let Some(span) = steals.remove(at) {
                self.steal_without_place(id, span.end_ns - span.start_ns);
            }
        }
    }

    /// The thread that leaves a CPU must be the thread that came on it last. If it is another one, a switch was missed,
    /// without a record or a reported loss (kernels were seen that trace nothing while certain threads run). Since the
    /// last switch, it is not known when the thread came back.
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

    /// Adds a switch that left no record, from what the scheduler noted of it. If a traced thread left the CPU in that
    /// switch, nothing is known of the thread until it comes back.
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

    /// Adds the wake-up, if it left no record, of a thread that is about to get its CPU after it has waited that long
    /// for one.
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
        let call = call.map(|call| self.with_connection(call));
        let thread = &mut self.threads[id as usize];
        thread.on_cpu = None;
        if why == Why::Dead {
            thread.gone_ns = ts_ns;
        }
        let early = thread.early_wake.take();
        // An early wake-up belongs to this sleep only if it came in the same system call.
        let begun_ns = call.map_or(ts_ns.saturating_sub(100_000), |call| call.enter_ns);
        let wake = early.filter(|wake| matches!(why, Why::Slept { .. }) && wake.at_ns >= begun_ns);
        // The record of when the thread came back was lost. As far as is known, it came back only now.
        if let Some(off) = thread.off.back_mut().filter(|off| off.end_ns == NEVER) {
            off.end_ns = ts_ns;
        }
        thread.off.push_back(Off { start_ns: ts_ns, end_ns: NEVER, why, wake, cpu: None, call });
        if call.is_some() {
            thread.open_call = call.map(|call| match waits(call.nr, None) {
                Waits::Readiness => OpenCall { object: None, ..call }, // it moves nothing
                _ => call,
            });
        }
        // A sleep outside any system call is a fault under way: its record is still to come.
        let settled = call.is_some() || matches!(why, Why::Preempted | Why::Dead);
        if settled {
            thread.settled_ns = thread.settled_ns.max(ts_ns);
        }
        settled && thread.traced
    }

    /// A poll() of one socket only, with the connection's incoming direction in the socket's place if that is known.
    fn with_connection(&self, call: OpenCall) -> OpenCall {
        let incoming = || {
            let socket = call.object.filter(|_| waits(call.nr, None) == Waits::Readiness)?;
            let end = self.sockets.get(&socket.ino).filter(|_| socket.is_socket())?;
            match end.sends {
                true => self.channels.get(&end.channel)?.reverse,
                false => Some(end.channel),
            }
        };
        OpenCall { object: incoming().or(call.object), ..call }
    }

    /// Notes a thread that fell asleep before it was traced. Returns whether this is news.
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
            // Its switch-out was seen by a hook that did not know the thread yet.
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
                thread.rests += u64::from(is_rest(off));
                thread.early_wake = thread.early_wake.filter(|wake| wake.at_ns >= ts_ns);
                if let (Some(call), Some(wake)) = (&off.call, &off.wake) {
                    let futexes = &mut self.processes[thread.process as usize].futexes;
                    futexes.note(id, call, wake, (off.start_ns, ts_ns));
                }
            }
            Some(_) => {} // its switch-out was lost
            // What the thread did before, it did on a CPU.
            None => thread.off.push_back(Off {
                start_ns: thread.known_from_ns.max(thread.settled_ns).min(ts_ns),
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
