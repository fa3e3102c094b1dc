//! Traces written by hand, and the engine's answers in a form that is easy to write down.

use rpcprobe::engine::event::{
    Call, Event, Exec, FileId, Function, Io, Object, OpenCall, Protocol, TaskChange, TaskWait,
    Unit, What, TYPE_EVENTFD, TYPE_FIFO, TYPE_FUTEX, TYPE_SHARED_WORD, TYPE_TCP,
};
use rpcprobe::engine::runtime_tasks::RuntimeTasks;
use rpcprobe::engine::send_limit::SendLimit;
use rpcprobe::engine::{Engine, Rates};
use rpcprobe::model::{check_conservation, Request, Segment, Segments};
use rpcprobe::records::{UNIT_LAST, UNIT_REQUEST, WAKING_IN_SYSCALL, WAKING_NEW};

use super::connection::Connection;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const CLOSE: u16 = 3;
pub const POLL: u16 = 7;
pub const FDATASYNC: u16 = 75;
pub const NANOSLEEP: u16 = 35;
pub const CONNECT: u16 = 42;
pub const ACCEPT: u16 = 43;
pub const SENDTO: u16 = 44;
pub const RECVFROM: u16 = 45;
pub const CLONE: u16 = 56;
pub const EXECVE: u16 = 59;
pub const WAIT4: u16 = 61;
pub const FUTEX: u16 = 202;
pub const EXIT_GROUP: u16 = 231;

/// States at a switch-out.
pub const RUNNABLE: u16 = 0;
pub const ASLEEP: u16 = 1;
pub const DISK: u16 = 2;
pub const DEAD: u16 = 0x80;

pub const IDLE: u32 = 0;

pub fn pipe(ino: u64) -> Object {
    Object { dev: 15, ino, type_bits: TYPE_FIFO }
}

/// One direction of a connection, as transfers name it.
pub fn connection(number: u64, type_bits: u16) -> Object {
    Object { dev: 0, ino: number, type_bits }
}

/// The socket behind a descriptor, as sleeps name it.
pub fn socket(ino: u64, type_bits: u16) -> Object {
    Object { dev: 9, ino, type_bits }
}

/// A mutex that another thread holds, as glibc waits for it.
pub fn mutex(address: u64) -> Object {
    Object { dev: FUTEX_WAIT_PRIVATE, ino: address, type_bits: TYPE_FUTEX }
}

/// A condition variable, as glibc waits for it. `MUTEX_LOCKED` is just a number to it.
pub fn condition(address: u64) -> Object {
    Object { dev: FUTEX_WAIT_BITSET_PRIVATE, ino: address, type_bits: TYPE_FUTEX }
}

/// A futex in memory that processes share.
pub fn shared_word(number: u64) -> Object {
    Object { dev: 1, ino: number << 32, type_bits: TYPE_SHARED_WORD }
}

/// The same word, as sleeps name it.
pub fn turn_futex(address: u64) -> Object {
    Object { dev: FUTEX_WAIT_BITSET, ino: address, type_bits: TYPE_FUTEX }
}

const FUTEX_WAIT_PRIVATE: u32 = 128;
const FUTEX_WAIT_BITSET: u32 = 9;
const FUTEX_WAIT_BITSET_PRIVATE: u32 = 128 | FUTEX_WAIT_BITSET;

/// `(offset, bytes)` moved.
pub fn io(object: Object, fd: i32, is_write: bool, (offset, bytes): (u64, i64)) -> Io {
    let bytes = u64::try_from(bytes).unwrap_or(0);
    let (reverse, empty, socket, unsent) = (None, false, 0, SendLimit::default());
    Io { object, fd, is_write, offset, bytes, reverse, empty, socket, unsent }
}

/// The value of a mutex's word while a thread waits for the mutex.
pub const MUTEX_LOCKED: i32 = 2;

pub fn eventfd(number: u64) -> Object {
    Object { dev: 0, ino: number, type_bits: TYPE_EVENTFD }
}

/// Everything the engine said about a trace.
pub type Answers = Vec<(Request, Vec<Segment>)>;

/// Runs a trace through the engine as an attribution does.
pub fn explain(cpus: u32, start_ns: u64, events: &[Event], copy_ns_per_byte: f64) -> Answers {
    let rates = Rates { copy_ns_per_byte, ..Rates::default() };
    explain_with(Engine::new(cpus, start_ns, rates), events)
}

/// Runs a trace through this engine.
pub fn explain_with(mut engine: Engine, events: &[Event]) -> Answers {
    let mut answers = Vec::new();
    let mut sink = |request: Request, segments: Segments| {
        answers.push((request, segments.in_words()));
        Ok(())
    };
    let (mut goroutines, mut told) = (RuntimeTasks::default(), Vec::new());
    for event in events {
        goroutines.take(event.clone(), &mut told);
        for event in told.drain(..) {
            engine.push(&event, &mut sink).expect("the sink takes everything");
        }
    }
    goroutines.finish(&mut told);
    for event in told {
        engine.push(&event, &mut sink).expect("the sink takes everything");
    }
    engine.finish(None, &mut sink).expect("the sink takes everything");
    answers
}

/// A trace under construction. Events of one instant stay in the order in which they are added.
#[derive(Default)]
pub struct Story {
    pub events: Vec<Event>,
}

impl Story {
    /// Client 10 (threads 10, 11) and server 20 (threads 20, 21), which are traced once they make a call; untraced
    /// `noise` 90.
    pub fn new() -> Story {
        let mut story = Story::default();
        for (tid, tgid, comm) in
            [(10, 10, "client"), (11, 10, "client2"), (20, 20, "server"), (21, 20, "helper")]
        {
            story.task(tid, tgid, comm);
        }
        story.task(90, 90, "noise");
        story
    }

    pub fn at(&mut self, ts_ns: u64, cpu: u32, what: What) {
        self.events.push(Event { ts_ns, cpu, what });
    }

    pub fn task(&mut self, tid: u32, tgid: u32, comm: &str) {
        self.at(0, 0, What::Task { tid, tgid, kthread: false, comm: comm.into() });
    }

    /// `prev` leaves in this state, outside any known call.
    pub fn switch(&mut self, ts_ns: u64, cpu: u32, prev: u32, next: u32, state: u16) {
        let iowait = state == DISK;
        let what =
            What::Switch { prev, next, waited_ns: None, state, preempt: false, iowait, call: None };
        self.at(ts_ns, cpu, what);
    }

    /// `prev` falls asleep outside any known call; `next` has waited `waited_ns` for its CPU.
    pub fn switch_to(&mut self, ts_ns: u64, cpu: u32, tids: (u32, u32), waited_ns: u32) {
        let waited_ns = Some(waited_ns);
        let (prev, next) = tids;
        let (state, preempt, iowait, call) = (ASLEEP, false, false, None);
        self.at(ts_ns, cpu, What::Switch { prev, next, waited_ns, state, preempt, iowait, call });
    }

    /// `prev` leaves inside a call entered at `enter_ns`.
    #[allow(clippy::too_many_arguments)] // the columns of the record
    pub fn switch_in(
        &mut self,
        ts_ns: u64,
        cpu: u32,
        prev: u32,
        next: u32,
        state: u16,
        (nr, enter_ns): (u16, u64),
        object: Option<Object>,
    ) {
        let fd = match object {
            Some(object) if object.type_bits == TYPE_FUTEX => MUTEX_LOCKED,
            Some(_) => 5,
            None => -1,
        };
        let call = Some(OpenCall { nr, enter_ns, object, fd });
        let iowait = state == DISK;
        let what =
            What::Switch { prev, next, waited_ns: None, state, preempt: false, iowait, call };
        self.at(ts_ns, cpu, what);
    }

    /// Falls asleep in a read or write.
    pub fn sleep_in(
        &mut self,
        ts_ns: u64,
        cpu: u32,
        (prev, next): (u32, u32),
        call: (u16, u64),
        object: Object,
    ) {
        self.switch_in(ts_ns, cpu, prev, next, ASLEEP, call, Some(object));
    }

    pub fn wake(&mut self, ts_ns: u64, cpu: u32, waker: u32, wakee: u32, flags: u8) {
        self.at(ts_ns, cpu, What::Waking { waker, wakee, flags, block: 0 });
    }

    /// A call without a descriptor.
    pub fn call(&mut self, cpu: u32, tid: u32, nr: u16, span: (u64, u64), ret: i64) {
        self.ended(cpu, tid, nr, span, ret, None);
    }

    /// A wait for readiness that has a timeout.
    pub fn timed(&mut self, cpu: u32, tid: u32, span: (u64, u64), ret: i64) {
        let call = Call { has_timeout: true, ..Call::new(POLL, span, ret) };
        self.at(span.1, cpu, What::Call { tid, call });
    }

    /// A futex wait that lasts no longer than CPython's switch interval.
    pub fn waited_to_switch(&mut self, cpu: u32, tid: u32, span: (u64, u64), ret: i64) {
        let call = Call { has_switch_interval: true, ..Call::new(FUTEX, span, ret) };
        self.at(span.1, cpu, What::Call { tid, call });
    }

    /// Opens a file by this name.
    pub fn opened_file(
        &mut self,
        cpu: u32,
        tid: u32,
        (file, path): (FileId, &str),
        span: (u64, u64),
    ) {
        const OPENAT: u16 = 257;
        self.ended(cpu, tid, OPENAT, span, 3, None);
        if let Some(Event { what: What::Call { call, .. }, .. }) = self.events.last_mut() {
            call.rare_mut().opened = Some(file);
            call.path = Some(path.into());
        }
    }

    /// Writes `(offset, bytes)` of a pipe.
    pub fn write(
        &mut self,
        cpu: u32,
        tid: u32,
        object: Object,
        bytes: (u64, i64),
        span: (u64, u64),
    ) {
        let io = io(object, 6, true, bytes);
        self.ended(cpu, tid, WRITE, span, bytes.1, Some(io));
    }

    /// Reads `(offset, bytes)` of a pipe.
    pub fn read(
        &mut self,
        cpu: u32,
        tid: u32,
        object: Object,
        bytes: (u64, i64),
        span: (u64, u64),
    ) {
        let io = io(object, 5, false, bytes);
        self.ended(cpu, tid, READ, span, bytes.1, Some(io));
    }

    /// Moves `(offset, bytes)` through one direction of a connection; `reverse` is the other direction.
    pub fn moved(
        &mut self,
        cpu: u32,
        tid: u32,
        (nr, object, reverse): (u16, Object, Object),
        bytes: (u64, i64),
        span: (u64, u64),
    ) {
        let moved = io(object, 5, nr == SENDTO, bytes);
        self.ended(cpu, tid, nr, span, bytes.1, Some(Io { reverse: Some(reverse), ..moved }));
    }

    /// As `moved`, through the socket with this inode.
    pub fn moved_through(
        &mut self,
        socket: u32,
        (cpu, tid): (u32, u32),
        (nr, object, reverse): (u16, Object, Object),
        bytes: (u64, i64),
        span: (u64, u64),
    ) {
        let moved = Io { socket, ..io(object, 5, nr == SENDTO, bytes) };
        self.ended(cpu, tid, nr, span, bytes.1, Some(Io { reverse: Some(reverse), ..moved }));
    }

    /// A TCP socket is connected, or accepted if `accepted_of_ns` says when the connection was established.
    pub fn opened(
        &mut self,
        cpu: u32,
        tid: u32,
        ino: u64,
        (enter_ns, exit_ns): (u64, u64),
        accepted_of_ns: Option<u64>,
    ) {
        let (nr, ret) = if accepted_of_ns.is_some() { (ACCEPT, 7) } else { (CONNECT, 0) };
        let io = Some(io(socket(ino, TYPE_TCP), 7, false, (0, 0)));
        let mut call = Call { io, ..Call::new(nr, (enter_ns, exit_ns), ret) };
        if accepted_of_ns.is_some() {
            call.rare_mut().accepted_of_ns = accepted_of_ns;
        }
        self.at(exit_ns, cpu, What::Call { tid, call });
    }

    /// A datagram socket is connected.
    pub fn connected(&mut self, cpu: u32, tid: u32, socket: Object, span: (u64, u64)) {
        self.ended(cpu, tid, CONNECT, span, 0, Some(io(socket, 7, false, (0, 0))));
    }

    pub fn closed(&mut self, cpu: u32, tid: u32, ino: u64, span: (u64, u64)) {
        let io = io(socket(ino, TYPE_TCP), 7, false, (0, 0));
        self.ended(cpu, tid, CLOSE, span, 0, Some(io));
    }

    /// A call that is still under way moves a datagram; more follow.
    pub fn moving(
        &mut self,
        (ts_ns, cpu): (u64, u32),
        tid: u32,
        (is_write, object, reverse): (bool, Object, Object),
        bytes: (u64, i64),
    ) {
        let moved = Io { reverse: Some(reverse), ..io(object, 5, is_write, bytes) };
        self.at(ts_ns, cpu, What::Transfer { tid, io: moved });
    }

    /// Bytes before `end` of a connection's direction reach the reader's socket.
    pub fn arrives(&mut self, object: Object, end: u64, arrived_ns: u64) {
        self.at(arrived_ns, 3, What::Arrival { object, end, arrived_ns });
    }

    /// Wakes a task that waits for the word to change.
    pub fn pass(&mut self, cpu: u32, tid: u32, word: Object, span: (u64, u64)) {
        let fd = 1; // how many
        self.at(span.1, cpu, What::Transfer { tid, io: io(word, fd, true, (0, 0)) });
        self.ended(cpu, tid, FUTEX, span, 1, None);
    }

    /// Has waited for the word to change from this value; `ret` is the return value of the call.
    pub fn await_turn(
        &mut self,
        cpu: u32,
        tid: u32,
        (word, value): (Object, i32),
        span: (u64, u64),
        ret: i64,
    ) {
        self.at(span.1, cpu, What::Transfer { tid, io: io(word, value, false, (0, 0)) });
        self.ended(cpu, tid, FUTEX, span, ret, None);
    }

    fn ended(
        &mut self,
        cpu: u32,
        tid: u32,
        nr: u16,
        (enter_ns, exit_ns): (u64, u64),
        ret: i64,
        io: Option<Io>,
    ) {
        let call = Call { io, ..Call::new(nr, (enter_ns, exit_ns), ret) };
        self.at(exit_ns, cpu, What::Call { tid, call });
    }

    /// The thread has run through a function that is itself hooked.
    pub fn function(
        &mut self,
        cpu: u32,
        tid: u32,
        (function, number): (Function, u64),
        (enter_ns, end_ns): (u64, u64),
    ) {
        self.at(end_ns, cpu, What::Function { tid, enter_ns, function, number });
    }

    pub fn irq(&mut self, cpu: u32, tid: u32, hard: bool, number: u16, span: (u64, u64)) {
        self.at(span.1, cpu, What::Irq { tid, enter_ns: span.0, hard, number });
    }

    /// A thread of the server makes this change to a goroutine.
    pub fn goroutine(&mut self, ts_ns: u64, cpu: u32, tid: u32, address: u64, change: TaskChange) {
        self.at(ts_ns, cpu, What::RuntimeTask { tid, tgid: 20, address, change });
    }

    /// A thread of the server leaves a goroutine asleep in a wait with this name in Go.
    pub fn parks(&mut self, ts_ns: u64, cpu: u32, tid: u32, address: u64, wait: &str) {
        let wait = TaskWait::named(wait).expect("a wait that Go has");
        self.goroutine(ts_ns, cpu, tid, address, TaskChange::Parks(Some(wait)));
    }

    /// The first message in one direction of a connection, of four bytes: HTTP/1's question or answer (`UNIT_*`).
    pub fn message(&mut self, ts_ns: u64, cpu: u32, on: &Connection, kind: u8) {
        let asks = kind == UNIT_REQUEST;
        let (channel, reverse) = if asks { (on.there, on.back) } else { (on.back, on.there) };
        let unit = Unit {
            channel,
            reverse,
            from: 0,
            to: 4,
            protocol: Protocol::Http1,
            id: 0,
            kind,
            flags: UNIT_LAST,
            after_gap: false,
            named: false,
            from_client: Some(asks),
            numbers: [0; 3],
            status_known: false,
        };
        self.at(ts_ns, cpu, What::Unit(Box::new(unit)));
    }

    pub fn fork(&mut self, ts_ns: u64, cpu: u32, parent: u32, child: u32, enter_ns: u64) {
        let flags = rpcprobe::records::TASK_TRACED;
        let comm = "sh".into();
        self.at(ts_ns, cpu, What::Fork { parent, child, child_tgid: child, flags, enter_ns, comm });
    }

    pub fn exec(&mut self, ts_ns: u64, cpu: u32, tid: u32, comm: &str) {
        let exec = Exec {
            tid,
            old_tid: tid,
            traced: true,
            entry: 0,
            interp_base: 0,
            comm: comm.into(),
            path: Some(format!("/bin/{comm}").into()),
        };
        self.at(ts_ns, cpu, What::Exec(Box::new(exec)));
    }

    /// Client 10 (CPU 0) makes process 30 (CPU 1), in clone() from 100 to 112. The client is told `number`, which in a
    /// PID namespace is not the kernel's.
    pub fn makes_process(&mut self, number: u32) {
        self.fork(103, 0, 10, 30, 100);
        self.wake(106, 0, 10, 30, WAKING_NEW | WAKING_IN_SYSCALL);
        self.switch(109, 1, IDLE, 30, RUNNABLE);
        self.call(1, 30, CLONE, (103, 111), 0);
        self.call(0, 10, CLONE, (100, 112), i64::from(number));
    }

    /// Client 10 (CPU 0) starts a program as process 30 (CPU 1), in clone() from 100 to 112, and waits for it from
    /// 115 on.
    pub fn starts_program(&mut self, comm: &str) {
        self.makes_process(30);
        self.switch_in(118, 0, 10, IDLE, ASLEEP, (WAIT4, 115), None);
        self.exec(120, 1, 30, comm);
        self.call(1, 30, EXECVE, (114, 123), 0);
    }

    /// The thread's last call and its death, as the kernel side reports them: in one instant.
    pub fn exit(&mut self, ts_ns: u64, cpu: u32, tid: u32, enter_ns: u64) {
        let call = Call { unfinished: true, ..Call::new(EXIT_GROUP, (enter_ns, ts_ns), 0) };
        self.at(ts_ns, cpu, What::Call { tid, call });
        self.at(ts_ns, cpu, What::Exit { tid, tgid: tid, code: 0, traced: true });
    }

    /// Events in order of time; those of one instant in the order written.
    pub fn events(&self) -> Vec<Event> {
        let mut events = self.events.clone();
        events.sort_by_key(|event| event.ts_ns);
        events
    }

    /// The only request's segments at these rates.
    pub fn only_at(&self, rates: Rates) -> Vec<Segment> {
        let mut answers = explain_with(Engine::new(4, 0, rates), &self.events());
        assert_eq!(answers.len(), 1, "one request: {answers:#?}");
        let (request, segments) = answers.remove(0);
        check_conservation(&request, &segments).expect("the law");
        segments
    }

    /// The engine's complete requests, each checked for conservation.
    pub fn requests(&self) -> Answers {
        let answers = explain(4, 0, &self.events(), 0.0);
        for (request, segments) in &answers {
            check_conservation(request, segments)
                .unwrap_or_else(|fault| panic!("{fault}\n{}", table(segments)));
        }
        answers.into_iter().filter(|(request, _)| request.complete).collect()
    }

    /// The only request's segments as a table.
    pub fn only(&self) -> String {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "one request: {requests:#?}");
        table(&requests.remove(0).1)
    }
}

/// One line a segment: `start-end comm category`, then ` by ...`, ` (cause)` and ` shared by ...` where there
/// is one.
pub fn table(segments: &[Segment]) -> String {
    let mut lines = String::new();
    for segment in segments {
        let by = segment.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let cause = match (&segment.cause, segment.category.name().starts_with("queue")) {
            (Some(cause), true) => format!(" ({cause})"),
            _ => String::new(),
        };
        let shared = match segment.shared {
            1 => String::new(),
            by => format!(" shared by {by}"),
        };
        lines += &format!(
            "{}-{} {} {}{by}{cause}{shared}\n",
            segment.start_ns,
            segment.end_ns(),
            segment.comm,
            segment.category
        );
    }
    lines
}

/// A table as written in a test: indentation and blank lines do not count.
pub fn expected(text: &str) -> String {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(|line| format!("{line}\n"))
        .collect()
}

/// The table of the request that began at `start_ns`.
pub fn began(s: &Story, start_ns: u64) -> String {
    let requests = s.requests();
    let mut ours = requests.iter().filter(|(request, _)| request.start_ns == start_ns);
    table(&ours.next().unwrap_or_else(|| panic!("{requests:#?}")).1)
}

/// The story as a capture without `--tasks` records it.
pub fn without(s: &Story) -> Story {
    let mut s = Story { events: s.events.clone() };
    s.events.retain(|event| !matches!(event.what, What::RuntimeTask { .. }));
    s
}
