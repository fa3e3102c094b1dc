//! The time line of one thread.

use crate::classify::syscall::{waits, Waits};
use crate::timeline::*;

/// Why a thread is not on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Created, not yet run.
    Born,
    /// Still runnable: lost the CPU, or gave it away by sched_yield().
    Preempted,
    /// Waits for a wake-up; `uninterruptible` as the kernel's D state.
    Slept {
        uninterruptible: bool,
        iowait: bool,
    },
    Dead,
    /// Not known: before the thread was first seen on a CPU, or around a switch that was missed.
    Unseen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    pub at_ns: u64,
    /// The thread that was current at the wake-up.
    pub waker: ThreadId,
    pub flags: u8,
    /// The block request whose completion caused the wake-up; 0: none.
    pub block: u32,
}

/// Flag of a wake-up that left no record; the kernel side never sets it.
pub(super) const WAKING_UNSEEN: u8 = 1 << 7;

impl Wake {
    /// Whether the waker itself caused the wake-up: a task, or a softirq run inside its own system call that does not
    /// complete a block request (softirqs run whatever is pending, kernel/softirq.c). Otherwise the waker is whichever
    /// thread the interrupt happened to hit.
    pub fn by_waker(&self) -> bool {
        if self.flags & (WAKING_HARDIRQ | WAKING_NMI | WAKING_UNSEEN) != 0 {
            return false;
        }
        let own_softirq = self.flags & WAKING_IN_SYSCALL != 0 && self.block == 0;
        self.flags & WAKING_SOFTIRQ == 0 || own_softirq
    }

    /// Whether an interrupt caused the wake-up, such as a timer's, and no block request did; or the cause is not known.
    pub fn by_interrupt(&self) -> bool {
        let interrupts = WAKING_HARDIRQ | WAKING_SOFTIRQ | WAKING_UNSEEN;
        self.block == 0 && self.flags & interrupts != 0
    }

    /// Whether only the time is known.
    pub fn is_unseen(&self) -> bool {
        self.flags & WAKING_UNSEEN != 0
    }
}

/// Time off the CPU: `[start_ns, end_ns)`.
#[derive(Clone, Debug)]
pub struct Off {
    pub start_ns: u64,
    pub end_ns: u64,
    pub why: Why,
    /// The first wake-up in the span, or one that came just before it.
    pub wake: Option<Wake>,
    /// Where the thread came back.
    pub cpu: Option<u32>,
    /// The system call it was in, where known.
    pub call: Option<OpenCall>,
}

impl Off {
    /// When the thread became runnable again: not before the span.
    pub fn runnable_ns(&self) -> Option<u64> {
        self.wake.map(|wake| wake.at_ns.max(self.start_ns))
    }

    /// The direction of a connection whose bytes a sleep was for, if it was in a poll() that polled nothing else.
    pub fn polled(&self) -> Option<Object> {
        let call = self.call.filter(|call| waits(call.nr, None) == Waits::Readiness)?;
        call.object.filter(|object| object.is_socket() && object.is_channel())
    }
}

/// A fault or interrupt: `[start_ns, end_ns)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start_ns: u64,
    pub end_ns: u64,
    /// Fault flags, or the number of the interrupt.
    pub number: u16,
}

/// A move from one CPU's run queue to another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub at_ns: u64,
    pub from_cpu: u32,
    pub to_cpu: u32,
}

/// Work that a traced thread gave to a kernel worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub queued_ns: u64,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub queuer: ThreadId,
}

#[derive(Debug, Default)]
pub struct Thread {
    pub tid: u32,
    pub process: ProcessId,
    /// Names over time: from when, what.
    pub names: History<(u64, Arc<str>)>,
    pub traced: bool,
    pub kthread: bool,
    pub born_ns: u64,
    /// Time of `sched_process_exit`.
    pub exited_ns: Option<u64>,
    /// The instant after which nothing more happens to the thread.
    pub gone_ns: u64,
    pub off: History<Off>,
    pub calls: History<Call>,
    pub faults: History<Span>,
    pub softirqs: History<Span>,
    pub hardirqs: History<Span>,
    /// When the hypervisor had its CPU.
    pub steals: History<Span>,
    /// Waits for kernel locks; `number` holds LCB_F_* flags.
    pub contentions: History<Span>,
    /// Work that it did, as a kernel worker, for traced threads.
    pub works: History<Work>,
    /// Its moves between run queues while it was runnable.
    pub moves: History<Move>,
    /// Its runs through functions that are hooked directly.
    pub functions: Functions,
    /// When it was told to pause for dirtying too many pages.
    pub throttles: History<u64>,
    /// When it found a journal full and went to make room itself.
    pub checkpoints: History<u64>,
    /// The call it was in when it last left the CPU, until the call's own record comes.
    pub open_call: Option<OpenCall>,
    /// What it has moved in that call so far.
    pub(super) moved: Vec<Io>,
    /// A wake-up that found the thread still on its CPU.
    pub(super) early_wake: Option<Wake>,
    /// When the last call that is a phase of its own ended ([`Thread::phase_at`]).
    pub(super) phases_until_ns: u64,
    /// Until when it is known whether the thread was in a system call.
    pub settled_ns: u64,
    /// Nothing is known of the thread before this instant (before the capture, or forgotten since).
    pub known_from_ns: u64,
    pub on_cpu: Option<u32>,
    /// Calls that moved messages.
    pub marks: Marks,
    /// When its calls began that accepted connections, and the channels on which the questions come.
    pub accepts: History<(u64, Object)>,
    /// For a runtime's task: when it was woken once more after a wake-up, without a sleep in between, and by which
    /// thread.
    pub woken_again: History<(u64, ThreadId)>,
    /// When it woke runtimes' tasks, and which. For a thread that is no task, also other threads of its process.
    pub woke: History<(u64, ThreadId)>,
    /// For a runtime's task: the thread or task that made it.
    pub made_by: Option<ThreadId>,
    /// Number of its rests (sleeps until something was ready).
    pub rests: u64,
    /// Number of its polls (calls that ask what is ready).
    pub polls: u64,
    /// Begin and end of its polls: the last ones, and those that are not forgotten.
    pub polled: History<(u64, u64)>,
    /// CPUs by time, to say where a segment ran: from when, which.
    pub cpus: History<(u64, u32)>,
}

impl Thread {
    /// Whether a call that is a phase of its own ended after `ns` ([`Thread::phase_at`]).
    pub fn had_phase_since(&self, ns: u64) -> bool {
        self.phases_until_ns > ns
    }

    /// Whether anything shows that it ever had a CPU: a context switch, or, where those were lost, what it did.
    pub fn has_run(&self) -> bool {
        let did = |spans: &History<Span>| !spans.is_empty();
        let switched = !self.off.is_empty() || self.on_cpu.is_some();
        switched
            || !self.calls.is_empty()
            || self.exited_ns.is_some()
            || [&self.faults, &self.softirqs, &self.hardirqs, &self.steals].into_iter().any(did)
    }

    /// The phase of its process's life that the thread was in at that time, by what it ran.
    pub fn phase_at(&self, process: &Process, at_ns: u64) -> Option<&'static str> {
        if self.kthread {
            return None;
        }
        if self.exited_ns.is_some_and(|exited| at_ns >= exited) {
            return Some("exit");
        }
        // Few calls are a phase: nearly always the last of them was over before.
        let open = self.open_call.as_ref().filter(|open| open.enter_ns <= at_ns);
        if at_ns < self.phases_until_ns || open.is_some_and(|open| phase_of(open.nr).is_some()) {
            let closed = self.call_before(at_ns + 1).filter(|call| call.exit_ns > at_ns);
            let nr = closed.map(|call| call.nr).or(open.map(|open| open.nr));
            if let Some(phase) = nr.and_then(phase_of) {
                return Some(phase);
            }
        }
        match last_before(&process.programs, |program| program.exec_ns <= at_ns) {
            // Forked and not yet exec'd: still setting up the new program.
            None if process.parent.is_some() && !process.programs.is_empty() => Some("fork"),
            // A child that goes on in its parent's program.
            None => process.parent.and(Some("program")),
            Some(program) if program.interp_base == 0 => Some("program"),
            Some(program) => match program.loaded_ns {
                Some(loaded_ns) if at_ns >= loaded_ns => Some("program"),
                Some(_) => Some("dynamic linking"),
                None => Some("program"),
            },
        }
    }

    /// The name at that time.
    pub fn name_at(&self, at_ns: u64) -> &str {
        let last = last_before(&self.names, |(from_ns, _)| *from_ns <= at_ns);
        last.or(self.names.front()).map_or("?", |(_, name)| name)
    }

    /// The CPU it was on, or came back to next, at that time.
    pub fn cpu_at(&self, at_ns: u64) -> Option<u32> {
        last_before(&self.cpus, |(from_ns, _)| *from_ns <= at_ns).map(|(_, cpu)| *cpu)
    }

    /// Whether it made room in a full journal during the call.
    pub fn made_room_in(&self, open: &OpenCall) -> bool {
        let before = count_before(&self.checkpoints, |at_ns| *at_ns < open.enter_ns);
        let begun = count_before(&self.calls, |call| call.enter_ns < open.enter_ns);
        let exit_ns = match self.calls.get(begun) {
            Some(call) if call.enter_ns == open.enter_ns => call.exit_ns,
            Some(next) => next.enter_ns, // its own record is missing
            None => u64::MAX,
        };
        self.checkpoints.get(before).is_some_and(|at_ns| *at_ns <= exit_ns)
    }

    /// Moves between run queues up to that time, latest first.
    pub fn moves_until(&self, at_ns: u64) -> impl Iterator<Item = &Move> {
        let count = count_before(&self.moves, |moved| moved.at_ns <= at_ns);
        self.moves.range(..count).rev()
    }

    /// The span off the CPU that covers the instant just before `at_ns`, or the latest before it.
    pub fn off_before(&self, at_ns: u64) -> Option<&Off> {
        last_before(&self.off, |off| off.start_ns < at_ns)
    }

    /// Whether the thread was not woken when it was made.
    pub fn was_made_asleep(&self) -> bool {
        let born = self.off.front().filter(|off| off.why == Why::Born);
        born.and_then(|off| off.wake).is_some_and(|wake| wake.at_ns > self.born_ns)
    }

    /// The latest call that began before `at_ns`.
    pub fn call_before(&self, at_ns: u64) -> Option<&Call> {
        last_before(&self.calls, |call| call.enter_ns < at_ns)
    }
}
