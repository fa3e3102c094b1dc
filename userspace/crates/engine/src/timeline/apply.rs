//! Applies events to the time lines: [`World::apply`].

use crate::classify::syscall::{waits, Waits};
use crate::event::{Event, Exec, Named, OpenCall, What};
use crate::ownership::handed::is_task;
use crate::timeline::*;
use rpcprobe_model::FIRST_RUNTIME_TASK;
use rpcprobe_record::{
    FAULT_KERNEL, FAULT_MAJOR, JOURNAL_CHECKPOINT, TASK_KTHREAD, TASK_THREAD, TASK_TRACED,
};

impl World {
    /// Applies one event; returns the thread whose past it settled, if any.
    pub fn apply(&mut self, event: &Event) -> Option<ThreadId> {
        self.now_ns = self.now_ns.max(event.ts_ns);
        let ts_ns = event.ts_ns;
        match &event.what {
            What::Lost { count, first_ns, last_ns } => {
                let (cpu, count) = (event.cpu, *count);
                self.losses.add(Loss { cpu, count, first_ns: *first_ns, last_ns: *last_ns });
                None
            }
            What::Switch { .. } => self.switched(event),
            What::Waking { waker, wakee, flags, block } => {
                let waker = self.thread_of_tid(*waker);
                let wakee = self.thread_of_tid(*wakee);
                self.traced_wakings += u64::from(self.thread(waker).traced);
                let wake = Wake { at_ns: ts_ns, waker, flags: *flags, block: *block };
                // A task's wake-up of a thread, such as the thread that runs the task next, is the runtime's decision
                // and is not noted.
                let within = !is_task(self, waker)
                    && self.thread(waker).process == self.thread(wakee).process;
                if wake.by_waker() && (within || is_task(self, wakee)) {
                    self.threads[waker as usize].woke.push_back((ts_ns, wakee));
                }
                self.waking(wake, wakee);
                None
            }
            What::WokenAgain { waker, wakee } => {
                let waker = self.thread_of_tid(*waker);
                let wakee = self.thread_of_tid(*wakee);
                self.threads[wakee as usize].woken_again.push_back((ts_ns, waker));
                self.threads[waker as usize].woke.push_back((ts_ns, wakee));
                None
            }
            What::Fork { .. } => self.forked(event),
            What::Exec(exec) => {
                self.executed(exec, ts_ns);
                None
            }
            What::Exit { .. } => self.exited(event),
            What::Rename { tid, comm } => {
                let id = self.thread_of_tid(*tid);
                self.threads[id as usize].names.push_back((ts_ns, comm.as_ref().into()));
                None
            }
            What::Call { tid, call } => {
                let id = self.thread_of_tid(*tid);
                self.call_ended(id, call, ts_ns);
                Some(id)
            }
            What::Arrival { object, end, arrived_ns } => {
                self.channels.entry(*object).or_default().arrive(*end, *arrived_ns);
                None
            }
            What::Packet { object, packet } => {
                let packets = &mut self.channels.entry(*object).or_default().packets;
                let sent = packets
                    .iter_mut()
                    .rev()
                    .find(|sent| sent.end == packet.end && sent.sent_ns == packet.sent_ns);
                match sent {
                    Some(sent) => *sent = *packet,
                    None => packets.push_back(*packet),
                }
                None
            }
            What::Transfer { tid, io } => {
                let id = self.thread_of_tid(*tid);
                let moved = &mut self.threads[id as usize].moved;
                if moved.len() < MOST_TRANSFERS {
                    moved.push(*io);
                }
                if io.is_transfer() {
                    self.channels.entry(io.object).or_default().note(io.is_write);
                }
                None
            }
            What::Fault { tid, enter_ns, ip, flags } => {
                let id = self.thread_of_tid(*tid);
                self.faulted(id, (*enter_ns, ts_ns), *ip, *flags);
                None
            }
            What::Irq { tid, enter_ns, hard, number } => {
                let id = self.thread_of_tid(*tid);
                let thread = &mut self.threads[id as usize];
                let span =
                    Span { start_ns: (*enter_ns).min(ts_ns), end_ns: ts_ns, number: *number };
                if *hard { &mut thread.hardirqs } else { &mut thread.softirqs }.push_back(span);
                None
            }
            What::Steal { tid, since_ns, until_ns, taken_ns } => {
                let window = (*since_ns, (*until_ns).min(ts_ns));
                self.steal(event.cpu, *tid, window, *taken_ns);
                None
            }
            What::Migrate { tid, from_cpu, to_cpu } => {
                let id = self.thread_of_tid(*tid);
                let (from_cpu, to_cpu) = (*from_cpu, *to_cpu);
                self.threads[id as usize].moves.push_back(Move { at_ns: ts_ns, from_cpu, to_cpu });
                None
            }
            What::UnseenSwitch { tid, last, since_ns, arrived_ns, waited_ns } => {
                let arrived_ns = (*arrived_ns).min(ts_ns);
                let (arrived, left) = (self.thread_of_tid(*tid), self.thread_of_tid(*last));
                if arrived != IDLE && arrived_ns >= *since_ns {
                    self.restore_wake(arrived, arrived_ns, *waited_ns);
                    self.restore_switch(event.cpu, (left, *since_ns), (arrived, arrived_ns));
                } // else left to `check_switch_chain`
                None
            }
            What::Block(block) => {
                self.blocks.insert(block.number, **block);
                None
            }
            What::Journal { tid, phase: JOURNAL_CHECKPOINT, .. } => {
                let id = self.thread_of_tid(*tid);
                self.threads[id as usize].checkpoints.push_back(ts_ns);
                None
            }
            What::Journal { tid, dev, transaction, phase } => {
                let id = self.thread_of_tid(*tid);
                let journal = self.journals.entry(id).or_default();
                journal.dev = *dev;
                journal.phases.push_back((ts_ns, *transaction, *phase));
                None
            }
            What::Contention { tid, enter_ns, flags } => {
                let id = self.thread_of_tid(*tid);
                self.threads[id as usize].contentions.push_back(Span {
                    start_ns: (*enter_ns).min(ts_ns),
                    end_ns: ts_ns,
                    number: *flags,
                });
                None
            }
            What::Function { tid, enter_ns, function, number } => {
                let id = self.thread_of_tid(*tid);
                let functions = &mut self.threads[id as usize].functions;
                functions.add((*enter_ns, ts_ns), *function, *number);
                None
            }
            What::Throttle { tid } => {
                let id = self.thread_of_tid(*tid);
                self.threads[id as usize].throttles.push_back(ts_ns);
                None
            }
            What::Work { tid, queuer, queued_ns, started_ns } => {
                let worker = self.thread_of_tid(*tid);
                let queuer = self.thread_of_tid(*queuer);
                self.threads[worker as usize].works.push_back(Work {
                    queued_ns: *queued_ns,
                    started_ns: (*started_ns).max(*queued_ns),
                    ended_ns: ts_ns,
                    queuer,
                });
                None
            }
            What::Channel(named) => {
                let Named { object, name, ends, is_anew } = named.as_ref();
                let channel = self.channels.entry(*object).or_default();
                // A channel is named when it is new to the kernel side, or when a new connection takes it over.
                if channel.name.replace(name.as_ref().into()).is_some() && !is_anew {
                    self.channels_forgotten += 1;
                    channel.begin_anew(*object, ts_ns);
                }
                channel.ends = *ends;
                channel.named_ns = ts_ns;
                channel.closed &= !is_anew;
                None
            }
            What::Marked { tid, tgid, asleep, call } => {
                let id = match self.by_tid.get(tid) {
                    Some(&id) => id,
                    None => self.add_thread(*tid, *tgid, "?", ts_ns, false),
                };
                let thread = &mut self.threads[id as usize];
                if !std::mem::replace(&mut thread.traced, true) {
                    // Its calls before then left no record.
                    thread.known_from_ns = thread.known_from_ns.max(ts_ns);
                }
                self.processes[thread.process as usize].traced = true;
                asleep.is_some_and(|state| self.found_asleep(id, ts_ns, state, *call)).then_some(id)
            }
            What::File { file, path } => {
                if !path.is_empty() {
                    self.name_file(*file, path.clone());
                }
                None
            }
            What::Role { asked, answer } => {
                self.know_roles(*asked, *answer);
                None
            }
            What::Unit(unit) => {
                if unit.begins_message() {
                    let from = unit.from.saturating_add(self.base(unit.channel));
                    let heads = &mut self.channels.entry(unit.channel).or_default().heads;
                    // Both the writer and the reader report a head.
                    if heads.back().is_none_or(|last| *last < from) {
                        heads.push_back(from);
                    }
                }
                None
            }
            What::Gap { why, .. } => {
                *self.framing_lost.entry(*why).or_default() += 1;
                None
            }
            What::Encrypted { channel, handshake, .. } => {
                if let Some(offset) = handshake {
                    let from = offset.saturating_add(self.base(*channel));
                    self.channels.entry(*channel).or_default().note_handshake(from);
                }
                None
            }
            What::Method(_) => None,          // requests only
            What::RuntimeTask { .. } => None, // see crate::runtime_tasks
            What::Waited { tid, since_ns, nr } => {
                let id = self.thread_of_tid(*tid);
                self.retell_wait(id, *since_ns, *nr);
                None
            }
            // No segment needs the stacks of an unknown thread.
            What::Stack { tid, kernel } => {
                if let Some(id) = self.thread_by_tid(*tid) {
                    self.stacks.slept(id, ts_ns, kernel);
                }
                None
            }
            What::Sample { tid, interrupted_ns, kernel, user } => {
                if let Some(id) = self.thread_by_tid(*tid) {
                    let process = self.thread(id).process;
                    self.stacks.sampled(id, process, *interrupted_ns, kernel, user);
                }
                None
            }
            What::Mapping(mapping) => {
                if let Some(process) = self.process_of_tgid(mapping.tgid) {
                    self.stacks.mapped(process, mapping.code.as_ref());
                }
                None
            }
            What::Task { tid, tgid, kthread, comm } => {
                if !self.by_tid.contains_key(tid) {
                    let id = self.add_thread(*tid, *tgid, comm, self.start_ns, false);
                    self.threads[id as usize].kthread = *kthread;
                }
                None
            }
        }
    }

    /// A context switch.
    fn switched(&mut self, event: &Event) -> Option<ThreadId> {
        let ts_ns = event.ts_ns;
        let What::Switch { prev, next, waited_ns, state, preempt, iowait, call } = &event.what
        else {
            return None;
        };
        let prev = self.thread_of_tid(*prev);
        let next = self.thread_of_tid(*next);
        self.traced_switches +=
            [prev, next].map(|id| u64::from(self.thread(id).traced)).iter().sum::<u64>();
        self.check_switch_chain(event.cpu, prev, ts_ns);
        let why = match *state {
            _ if *preempt => Why::Preempted,
            0 => Why::Preempted,
            s if s & EXIT_DEAD_OR_ZOMBIE != 0 => Why::Dead,
            s => Why::Slept { uninterruptible: s & TASK_UNINTERRUPTIBLE != 0, iowait: *iowait },
        };
        let settled = self.switch_out(prev, ts_ns, why, *call);
        self.restore_wake(next, ts_ns, *waited_ns);
        self.switch_in(next, ts_ns, event.cpu);
        if let Some(runs) = self.cpus.get_mut(event.cpu as usize) {
            runs.push_back((ts_ns, next));
        }
        settled.then_some(prev)
    }

    fn waking(&mut self, wake: Wake, wakee: ThreadId) {
        let thread = &mut self.threads[wakee as usize];
        match thread.off.back_mut() {
            Some(off) if off.end_ns == NEVER => {
                let waits = matches!(off.why, Why::Slept { .. } | Why::Born);
                if waits && off.wake.is_none_or(|w| w.at_ns < off.start_ns) {
                    off.wake = Some(wake);
                } else {
                    // The thread may have come back unseen, and be about to sleep again.
                    thread.early_wake = Some(wake);
                }
            }
            _ => thread.early_wake = Some(wake),
        }
    }

    /// A thread or a process was created.
    fn forked(&mut self, event: &Event) -> Option<ThreadId> {
        let ts_ns = event.ts_ns;
        let What::Fork { parent, child, child_tgid, flags, comm, .. } = &event.what else {
            return None;
        };
        // The maker of a task may have ended and been forgotten: it is no thread that has not been seen yet.
        let is_task = *child >= FIRST_RUNTIME_TASK;
        let parent = match is_task {
            true => self.thread_by_tid(*parent),
            false => Some(self.thread_of_tid(*parent)),
        };
        let own_process = flags & TASK_THREAD == 0;
        let id = self.add_thread(*child, *child_tgid, comm, ts_ns, own_process);
        self.threads[id as usize].made_by = parent.filter(|_| is_task);
        let parent_process = parent.map(|parent| self.thread(parent).process);
        let thread = &mut self.threads[id as usize];
        thread.traced = flags & TASK_TRACED != 0;
        thread.kthread = flags & TASK_KTHREAD != 0;
        thread.off.push_back(Off {
            start_ns: ts_ns,
            end_ns: NEVER,
            why: Why::Born,
            wake: None,
            cpu: None,
            call: None,
        });
        if let Some(parent_process) = parent_process.filter(|_| own_process) {
            let process = &mut self.processes[thread.process as usize];
            process.parent = Some(parent_process);
            process.traced = thread.traced;
            self.stacks.forked(parent_process, thread.process);
            self.processes[parent_process as usize].forked_ns = ts_ns;
        }
        None
    }

    fn executed(&mut self, exec: &Exec, ts_ns: u64) {
        let id = self.thread_of_tid(exec.old_tid);
        if exec.old_tid != exec.tid {
            // A thread other than the leader called exec: it takes over the leader's tid.
            self.give_tid(exec.tid, id);
            self.threads[id as usize].tid = exec.tid;
        }
        let thread = &mut self.threads[id as usize];
        thread.names.push_back((ts_ns, exec.comm.as_ref().into()));
        thread.traced |= exec.traced;
        let traced = thread.traced;
        let process = &mut self.processes[thread.process as usize];
        process.leader = id;
        process.traced |= traced;
        if traced {
            process.programs.push_back(Program {
                exec_ns: ts_ns,
                entry: exec.entry,
                interp_base: exec.interp_base,
                loaded_ns: None,
                path: exec.path.clone(),
            });
        }
    }

    /// A thread ends.
    fn exited(&mut self, event: &Event) -> Option<ThreadId> {
        let ts_ns = event.ts_ns;
        let What::Exit { tid, tgid, code, traced } = &event.what else {
            return None;
        };
        let id = self.thread_of_tid(*tid);
        let thread = &mut self.threads[id as usize];
        thread.exited_ns = Some(ts_ns);
        thread.gone_ns = ts_ns.saturating_add(LAST_STEPS_NS);
        thread.settled_ns = thread.settled_ns.max(ts_ns);
        let process = &mut self.processes[thread.process as usize];
        if tid == tgid {
            process.exited_ns = Some(ts_ns);
        }
        process.exit_code = Some(*code);
        process.last_exited = Some(id);
        traced.then_some(id)
    }

    fn call_ended(&mut self, id: ThreadId, call: &Call, ts_ns: u64) {
        let thread = &mut self.threads[id as usize];
        thread.traced = true;
        thread.settled_ns = thread.settled_ns.max(ts_ns);
        thread.open_call = None;
        thread.early_wake = None;
        self.call_began(id, call.enter_ns);
        let mut call = call.clone();
        let thread = &mut self.threads[id as usize];
        if !thread.moved.is_empty() {
            call.rare_mut().more = std::mem::take(&mut thread.moved).into();
        }
        self.renumber(&mut call);
        if let (Some(file), Some(path)) = (call.opened(), &call.path) {
            self.name_file(file, path.clone());
        } else if let Some(file) = call.io.as_ref().and_then(|io| io.object.file()) {
            call.path = self.files.get(&file).cloned();
        }
        self.record_opening(id, &call);
        self.record_transfers(id, &call);
        let thread = &mut self.threads[id as usize];
        if waits(call.nr, None) == Waits::Readiness {
            thread.polls += 1;
            thread.polled.push_back((call.enter_ns, call.exit_ns));
        }
        if call.has_switch_interval {
            let slept = thread.off.back().map(|off| (off.call, off.wake));
            if let Some((Some(open), wake)) = slept {
                if open.enter_ns == call.enter_ns {
                    let futexes = &mut self.processes[thread.process as usize].futexes;
                    futexes.note_asked(id, &open, wake.as_ref());
                }
            }
        }
        if call.unfinished && call.nr == syscall::NR_EXIT_GROUP {
            let process = &mut self.processes[thread.process as usize];
            // The other threads end inside whatever they were doing; the earliest call ended them.
            let this = (call.enter_ns, id);
            let former = process.group_exit.get_or_insert(this);
            *former = (*former).min(this);
        }
        if phase_of(call.nr).is_some() {
            thread.phases_until_ns = thread.phases_until_ns.max(call.exit_ns);
        }
        thread.calls.push_back(call);
    }

    /// Corrects what a runtime's task waited for, which may be known only after the wait.
    fn retell_wait(&mut self, id: ThreadId, since_ns: u64, nr: u16) {
        let thread = &mut self.threads[id as usize];
        let off = thread.off.back_mut();
        if let Some(off) = off.filter(|off| off.why == Why::Born && off.start_ns == since_ns) {
            off.call = Some(OpenCall { nr, enter_ns: since_ns, object: None, fd: -1 });
        }
        let off = thread.off.back_mut();
        let call = off.and_then(|off| off.call.as_mut());
        if let Some(call) = call.filter(|call| call.enter_ns == since_ns) {
            call.nr = nr;
        }
        if let Some(call) = thread.calls.back_mut().filter(|call| call.enter_ns == since_ns) {
            call.nr = nr;
        }
    }

    fn faulted(&mut self, id: ThreadId, (enter_ns, ts_ns): (u64, u64), ip: u64, flags: u8) {
        let thread = &mut self.threads[id as usize];
        let span = Span {
            start_ns: enter_ns.min(ts_ns),
            end_ns: ts_ns,
            number: u16::from(flags & (FAULT_MAJOR | FAULT_KERNEL)),
        };
        thread.faults.push_back(span);
        let process = thread.process as usize;
        if let Some(program) = self.processes[process].programs.back_mut() {
            // The first instruction of the program is on a page nobody has touched yet
            // in this address space: its fault marks the hand-over.
            let page = |address: u64| address & !0xfff;
            let user = flags & FAULT_KERNEL == 0;
            if user && program.loaded_ns.is_none() && page(ip) == page(program.entry) {
                program.loaded_ns = Some(span.start_ns);
            }
        }
    }
}
