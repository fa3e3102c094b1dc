//! Events as the records the kernel side would have sent: the reverse of `decode::decode`.

use rpcprobe::engine::event::{
    Call, Event, FileId, Function, Io, KernelWait, Method, Named, Object, Packet, TaskChange,
    Transport, Unit, What, TYPE_EVENTFD, TYPE_UDP,
};
use rpcprobe::records::*;
use zerocopy::IntoBytes;

fn function_number(function: Function) -> u16 {
    match function {
        Function::Copy => FUNCTION_COPY,
        Function::Wait(KernelWait::Commit) => FUNCTION_COMMIT_WAIT,
        Function::Wait(KernelWait::Handle) => FUNCTION_HANDLE_START,
        Function::Wait(KernelWait::Socket) => FUNCTION_SOCKET_LOCK,
        Function::Transport(Transport::Open) => FUNCTION_OPEN,
        Function::Transport(Transport::PipeRead) => FUNCTION_PIPE_READ,
        Function::Transport(Transport::PipeWrite) => FUNCTION_PIPE_WRITE,
        Function::Transport(Transport::TcpReceive) => FUNCTION_TCP_RECEIVE,
        Function::Transport(Transport::TcpSend) => FUNCTION_TCP_SEND,
    }
}

/// The record of an event.
pub fn record(event: &Event) -> Vec<u8> {
    let hdr = |tid, kind, flags, aux| RecHdr { ts_ns: event.ts_ns, tid, kind, flags, aux };
    match &event.what {
        What::Lost { count, first_ns, last_ns } => {
            let hdr = hdr(0, REC_LOST, 0, 0);
            let (count, first_ns, last_ns) = (*count, *first_ns, *last_ns);
            RecLost { hdr, count, first_ns, last_ns }.as_bytes().to_vec()
        }
        What::Switch { prev, next, waited_ns, state, preempt, iowait, call } => {
            let flags = u8::from(*preempt) * SWITCH_PREEMPT + u8::from(*iowait) * SWITCH_IOWAIT;
            let waited_ns = waited_ns.unwrap_or(NOT_KNOWN_NS);
            let Some(call) = call else {
                let hdr = hdr(*prev, REC_SWITCH, flags, *state);
                return RecSwitch { hdr, next_tid: *next, waited_ns }.as_bytes().to_vec();
            };
            RecSwitchSys {
                hdr: hdr(*prev, REC_SWITCH_SYS, flags, *state),
                next_tid: *next,
                nr: call.nr,
                object_type: call.object.map_or(0, |object| object.type_bits),
                enter_ns: call.enter_ns,
                ino: call.object.map_or(0, |object| object.ino),
                dev: call.object.map_or(0, |object| object.dev),
                fd: call.fd,
                waited_ns,
                pad: 0,
            }
            .as_bytes()
            .to_vec()
        }
        What::Waking { waker, wakee, flags, block } => {
            let hdr = hdr(*waker, REC_WAKING, *flags, 0);
            RecWaking { hdr, wakee_tid: *wakee, block: *block }.as_bytes().to_vec()
        }
        What::Fork { parent, child, child_tgid, flags, enter_ns, comm } => RecFork {
            hdr: hdr(*parent, REC_FORK, *flags, 0),
            child_tid: *child,
            child_tgid: *child_tgid,
            enter_ns: *enter_ns,
            comm: name(comm),
        }
        .as_bytes()
        .to_vec(),
        What::Exec(exec) => {
            let path = exec.path.as_deref().unwrap_or_default();
            let flags = if exec.traced { TASK_TRACED } else { 0 };
            let fixed = RecExec {
                hdr: hdr(exec.tid, REC_EXEC, flags, 0),
                old_tid: exec.old_tid,
                path_bytes: path.len() as u32,
                entry: exec.entry,
                interp_base: exec.interp_base,
                comm: name(&exec.comm),
            };
            [fixed.as_bytes(), path.as_bytes()].concat()
        }
        What::Exit { tid, tgid, code, traced } => {
            let hdr = hdr(*tid, REC_EXIT, if *traced { TASK_TRACED } else { 0 }, 0);
            RecExit { hdr, tgid: *tgid, exit_code: *code }.as_bytes().to_vec()
        }
        What::Rename { tid, comm } => {
            let hdr = hdr(0, REC_RENAME, 0, 0);
            RecRename { hdr, subject_tid: *tid, pad: 0, comm: name(comm) }.as_bytes().to_vec()
        }
        What::Call { tid, call } => self::call(hdr(*tid, 0, 0, call.nr), call),
        What::Arrival { object, end, arrived_ns } => {
            let hdr = hdr(0, REC_ARRIVAL, 0, object.type_bits);
            RecArrival { hdr, channel: object.ino, end: *end, arrived_ns: *arrived_ns }
                .as_bytes()
                .to_vec()
        }
        What::Packet { object, packet } => RecPacket {
            hdr: hdr(0, REC_PACKET, packet_flags(*object, packet), 0),
            channel: object.ino,
            end: packet.end,
            queued_ns: packet.queued_ns,
            sent_ns: packet.sent_ns,
            received_ns: packet.received_ns.unwrap_or(0),
            bytes: (packet.end - packet.from) as u32,
            device: packet.device,
        }
        .as_bytes()
        .to_vec(),
        What::Transfer { tid, io } => transfer(hdr(*tid, 0, 0, 0), io),
        What::Fault { tid, enter_ns, ip, flags } => {
            let hdr = hdr(*tid, REC_FAULT, *flags, 0);
            RecFault { hdr, enter_ns: *enter_ns, address: 0, ip: *ip }.as_bytes().to_vec()
        }
        What::Irq { tid, enter_ns, hard, number } => {
            let hdr = hdr(*tid, REC_IRQ, if *hard { IRQ_HARD } else { 0 }, *number);
            RecIrq { hdr, enter_ns: *enter_ns }.as_bytes().to_vec()
        }
        What::Steal { tid, since_ns, until_ns, taken_ns } => {
            let (since_ns, until_ns, taken_ns) = (*since_ns, *until_ns, *taken_ns);
            let hdr = hdr(*tid, REC_STEAL, 0, 0);
            RecSteal { hdr, since_ns, until_ns, taken_ns }.as_bytes().to_vec()
        }
        What::Migrate { tid, from_cpu, to_cpu } => {
            let (hdr, from_cpu, to_cpu) = (hdr(*tid, REC_MIGRATE, 0, 0), *from_cpu, *to_cpu);
            RecMigrate { hdr, from_cpu, to_cpu }.as_bytes().to_vec()
        }
        What::UnseenSwitch { tid, last, since_ns, arrived_ns, waited_ns } => {
            let (since_ns, arrived_ns) = (*since_ns, *arrived_ns);
            let (last_tid, waited_ns) = (*last, waited_ns.unwrap_or(NOT_KNOWN_NS));
            let hdr = hdr(*tid, REC_UNSEEN_SWITCH, 0, 0);
            RecUnseenSwitch { hdr, since_ns, arrived_ns, last_tid, waited_ns }.as_bytes().to_vec()
        }
        What::Task { tid, tgid, kthread, comm } => {
            let hdr = hdr(*tid, REC_TASK, if *kthread { TASK_KTHREAD } else { 0 }, 0);
            RecTask { hdr, tgid: *tgid, ppid: 0, comm: name(comm) }.as_bytes().to_vec()
        }
        What::Block(block) => RecBlock {
            hdr: hdr(block.tid, REC_BLOCK, 0, block.op),
            queued_ns: block.queued_ns,
            issued_ns: block.issued_ns,
            sector: block.sector,
            bytes: block.bytes,
            dev: block.dev,
            number: block.number,
            op_flags: 0,
        }
        .as_bytes()
        .to_vec(),
        What::Journal { tid, dev, transaction, phase } => {
            let hdr = hdr(*tid, REC_JOURNAL, 0, *phase);
            RecJournal { hdr, transaction: *transaction, dev: *dev }.as_bytes().to_vec()
        }
        What::Contention { tid, enter_ns, flags } => {
            let hdr = hdr(*tid, REC_CONTENTION, 0, *flags);
            RecContention { hdr, enter_ns: *enter_ns }.as_bytes().to_vec()
        }
        What::Function { tid, enter_ns, function, number } => {
            let hdr = hdr(*tid, REC_FUNCTION, 0, function_number(*function));
            RecFunction { hdr, enter_ns: *enter_ns, number: *number }.as_bytes().to_vec()
        }
        What::RuntimeTask { tid, tgid, address, change } => {
            let number = |wait: &Option<TaskWait>| wait.map_or(0, |wait| u16::from(wait.number()));
            let (flags, aux) = match change {
                TaskChange::Runs => (RUNTIME_TASK_RUNS, 0),
                TaskChange::Parks(wait) => (RUNTIME_TASK_PARKS, number(wait)),
                TaskChange::Yields => (RUNTIME_TASK_YIELDS, 0),
                TaskChange::Ends => (RUNTIME_TASK_ENDS, 0),
                TaskChange::Readied(wait) => (RUNTIME_TASK_READIED, number(wait)),
                TaskChange::Born => (RUNTIME_TASK_BORN, 0),
                TaskChange::Steps => (RUNTIME_TASK_STEPS, 0),
                TaskChange::StepsAfter(wait) => (RUNTIME_TASK_STEPS, number(&Some(*wait))),
                TaskChange::Timers => (RUNTIME_TASK_TIMERS, 0),
                TaskChange::Drained => (RUNTIME_TASK_DRAINED, 0),
                TaskChange::Queued => (RUNTIME_TASK_QUEUED, 0),
                TaskChange::Due => (RUNTIME_TASK_DUE, 0),
                TaskChange::Waited(wait) => (RUNTIME_TASK_WAITED, number(wait)),
                TaskChange::Made => (RUNTIME_TASK_MADE, 0),
                TaskChange::Gives => (RUNTIME_TASK_QUEUED, number(&Some(TaskWait::READY))),
            };
            let hdr = hdr(*tid, REC_RUNTIME_TASK, flags, aux);
            RecRuntimeTask { hdr, address: *address, tgid: *tgid, pad: 0 }.as_bytes().to_vec()
        }
        // The engine derives these from runtime tasks, so they have no record.
        What::Waited { .. } | What::WokenAgain { .. } => Vec::new(),
        What::Throttle { tid } => {
            RecThrottle { hdr: hdr(*tid, REC_THROTTLE, 0, 0) }.as_bytes().to_vec()
        }
        What::Work { tid, queuer, queued_ns, started_ns } => {
            let hdr = hdr(*tid, REC_WORK, 0, 0);
            let (queued_ns, started_ns, queuer_tid) = (*queued_ns, *started_ns, *queuer);
            RecWork { hdr, queued_ns, started_ns, queuer_tid, pad: 0 }.as_bytes().to_vec()
        }
        What::Channel(named) => {
            let Named { object, name, .. } = named.as_ref();
            let hdr = hdr(0, REC_UNIX_CHANNEL, 0, 0);
            let (channel, path_bytes) = (object.ino, name.len() as u32);
            let object_type = object.type_bits;
            let fixed = RecUnixChannel { hdr, channel, path_bytes, object_type, pad: 0 };
            [fixed.as_bytes(), name.as_bytes()].concat()
        }
        What::Marked { tid, tgid, asleep, call } => {
            let asleep_flag = asleep.map_or(0, |_| MARKED_ASLEEP);
            let flags = asleep_flag | call.map_or(0, |_| MARKED_IN_SYSCALL);
            let object = call.and_then(|call| call.object);
            RecMarked {
                hdr: hdr(*tid, REC_MARKED, flags, asleep.unwrap_or(0)),
                tgid: *tgid,
                nr: call.map_or(0, |call| call.nr),
                object_type: object.map_or(0, |object| object.type_bits),
                enter_ns: call.map_or(0, |call| call.enter_ns),
                ino: object.map_or(0, |object| object.ino),
                dev: object.map_or(0, |object| object.dev),
                fd: call.map_or(-1, |call| call.fd),
            }
            .as_bytes()
            .to_vec()
        }
        What::File { file, path } => {
            let FileId { dev, ino } = *file;
            let path_bytes = path.len() as u32;
            let fixed = RecFile { hdr: hdr(0, REC_FILE, 0, 0), ino, dev, path_bytes };
            [fixed.as_bytes(), path.as_bytes()].concat()
        }
        What::Role { asked, answer } => {
            let number = |channel: &Option<Object>| channel.map_or(0, |object| object.ino);
            let known = asked.or(*answer);
            RecRole {
                hdr: hdr(0, REC_ROLE, 0, 0),
                asked: number(asked),
                answer: number(answer),
                dev: known.map_or(0, |object| object.dev),
                object_type: known.map_or(0, |object| object.type_bits),
                pad: 0,
            }
            .as_bytes()
            .to_vec()
        }
        What::Unit(unit) => self::unit(unit, |flags| hdr(0, REC_UNIT, flags, 0)),
        What::Gap { channel, why } => gap(hdr(0, REC_GAP, 0, 0), channel, *why as u8 + 1, 0),
        What::Encrypted { tid, channel, handshake } => {
            let why = if handshake.is_some() { GAP_HANDSHAKE } else { GAP_ENCRYPTED };
            gap(hdr(*tid, REC_GAP, 0, 0), channel, why, handshake.unwrap_or(0))
        }
        What::Method(method) => self::method(method, |flags| hdr(0, REC_METHOD, flags, 0)),
        What::Stack { tid, kernel } => {
            let fixed = RecStack { hdr: hdr(*tid, REC_STACK, 0, kernel.len() as u16) };
            [fixed.as_bytes(), kernel.as_bytes()].concat()
        }
        What::Sample { tid, interrupted_ns, kernel, user } => {
            let (kernel_frames, user_frames) = (kernel.len() as u32, user.len() as u32);
            let (hdr, interrupted_ns) = (hdr(*tid, REC_SAMPLE, 0, 0), *interrupted_ns);
            let fixed = RecSample { hdr, interrupted_ns, kernel_frames, user_frames };
            [fixed.as_bytes(), kernel.as_bytes(), user.as_bytes()].concat()
        }
        What::Mapping(mapping) => {
            let code = mapping.code.as_ref();
            let path = code.map_or("", |code| &code.module.path);
            let fixed = RecMapping {
                hdr: hdr(0, REC_MAPPING, if code.is_none() { MAPPING_EXEC } else { 0 }, 0),
                tgid: mapping.tgid,
                path_bytes: path.len() as u32,
                start: code.map_or(0, |code| code.start),
                bytes: code.map_or(0, |code| code.end - code.start),
                file_offset: code.map_or(0, |code| code.file_offset),
                ino: 1,
                dev: 0,
                build_id_bytes: 0,
                build_id: [0; BUILD_ID_BYTES],
                pad: [0; 4],
            };
            [fixed.as_bytes(), path.as_bytes()].concat()
        }
    }
}

fn transfer(mut hdr: RecHdr, io: &Io) -> Vec<u8> {
    hdr.kind = REC_TRANSFER;
    hdr.flags = u8::from(io.is_write) * SYSCALL_WRITE + u8::from(io.empty) * SYSCALL_EMPTY;
    RecTransfer {
        hdr,
        channel: io.object.ino,
        reverse: io.reverse.map_or(0, |reverse| reverse.ino),
        end: io.offset + io.bytes,
        bytes: io.bytes as u32,
        dev: io.object.dev,
        fd: io.fd,
        object_type: io.object.type_bits,
        held: io.unsent.record(),
    }
    .as_bytes()
    .to_vec()
}

fn unit(unit: &Unit, hdr: impl Fn(u8) -> RecHdr) -> Vec<u8> {
    let role = match unit.from_client {
        Some(true) => UNIT_FROM_CLIENT,
        Some(false) => UNIT_FROM_SERVER,
        None => 0,
    };
    let gap = u8::from(unit.after_gap) * UNIT_AFTER_GAP;
    let named = u8::from(unit.named) * UNIT_NAMED;
    RecUnit {
        hdr: hdr(role | gap | named),
        channel: unit.channel.ino,
        reverse: unit.reverse.ino,
        offset: unit.from,
        bytes: unit.to - unit.from,
        id: unit.id,
        protocol: unit.protocol.number(),
        kind: unit.kind,
        flags: unit.flags,
        pad: 0,
        object_type: unit.channel.type_bits,
        status_known: u16::from(unit.status_known),
        numbers: unit.numbers,
    }
    .as_bytes()
    .to_vec()
}

fn method(method: &Method, hdr: impl Fn(u8) -> RecHdr) -> Vec<u8> {
    let of = match method.asks {
        Some(true) => METHOD_REQUEST,
        Some(false) => METHOD_RESPONSE,
        None => 0,
    };
    let (status, what) = match (method.result, method.status) {
        (Some(result), _) => (result, METHOD_RESULT),
        (None, Some(status)) => (status, METHOD_STATUS),
        (None, None) => (0, 0),
    };
    let path = method.path.as_deref().unwrap_or_default();
    let fixed = RecMethod {
        hdr: hdr(of | what),
        channel: method.channel.ino,
        offset: method.offset,
        id: method.id,
        status,
        path_bytes: path.len() as u32,
        object_type: method.channel.type_bits,
        pad: 0,
    };
    [fixed.as_bytes(), path.as_bytes()].concat()
}

fn call(mut hdr: RecHdr, call: &Call) -> Vec<u8> {
    let is_write = call.io.is_some_and(|io| io.is_write);
    let is_empty = call.io.is_some_and(|io| io.empty);
    hdr.flags = u8::from(call.unfinished) * SYSCALL_UNFINISHED
        + u8::from(call.reaped) * SYSCALL_REAPED
        + u8::from(call.has_timeout) * SYSCALL_TIMEOUT
        + u8::from(call.has_switch_interval) * SYSCALL_SWITCH_INTERVAL
        + u8::from(is_write) * SYSCALL_WRITE
        + u8::from(is_empty) * SYSCALL_EMPTY;
    hdr.kind = match (&call.io, &call.path) {
        (Some(io), _) if io.reverse.is_some() => REC_SYSCALL_SOCKET,
        (Some(_), _) => REC_SYSCALL_IO,
        (None, Some(_)) => REC_SYSCALL_PATH,
        (None, None) => REC_SYSCALL,
    };
    if call.accepted_of_ns().is_some() {
        hdr.kind = REC_ACCEPT;
    }
    let sys = RecSyscall { hdr, enter_ns: call.enter_ns, ret: call.ret };
    if let (Some(established_ns), Some(io)) = (call.accepted_of_ns(), call.io) {
        let Object { dev, ino, type_bits } = io.object;
        return RecAccept { sys, ino, established_ns, dev, object_type: type_bits, pad: 0 }
            .as_bytes()
            .to_vec();
    }
    match (&call.io, &call.path) {
        (Some(Io { object, fd, offset, bytes, reverse: Some(reverse), .. }), _) => {
            RecSyscallSocket {
                sys,
                channel: object.ino,
                reverse: reverse.ino,
                end: offset + bytes,
                bytes: *bytes as u32,
                fd: *fd,
                object_type: object.type_bits,
                held: call.io.map_or(0, |io| io.unsent.record()),
                ino: call.io.map_or(0, |io| io.socket),
            }
            .as_bytes()
            .to_vec()
        }
        (Some(io), _) => RecSyscallIo {
            sys,
            ino: io.object.ino,
            offset: io.offset,
            dev: io.object.dev,
            fd: io.fd,
            object_type: io.object.type_bits,
            pad: 0,
            count: if io.object.type_bits == TYPE_EVENTFD { io.bytes as u32 } else { 0 },
        }
        .as_bytes()
        .to_vec(),
        (None, Some(path)) => {
            let fixed = RecSyscallPath {
                sys,
                ino: call.opened().map_or(0, |file| file.ino),
                dev: call.opened().map_or(0, |file| file.dev),
                path_bytes: path.len() as u32,
            };
            [fixed.as_bytes(), path.as_bytes()].concat()
        }
        (None, None) => sys.as_bytes().to_vec(),
    }
}

fn name(comm: &str) -> [u8; COMM_BYTES] {
    let mut name = [0; COMM_BYTES];
    let length = comm.len().min(COMM_BYTES);
    name[..length].copy_from_slice(&comm.as_bytes()[..length]);
    name
}

fn packet_flags(object: Object, packet: &Packet) -> u8 {
    let udp = if object.type_bits == TYPE_UDP { PACKET_UDP } else { 0 };
    let forwarded = u8::from(packet.forwarded) * PACKET_FORWARDED;
    (u8::from(packet.again) * PACKET_AGAIN) | forwarded | udp
}

fn gap(hdr: RecHdr, channel: &Object, why: u8, offset: u64) -> Vec<u8> {
    let (channel, object_type) = (channel.ino, channel.type_bits);
    let of = RecGap { hdr, channel, reverse: 0, offset, object_type, protocol: 0, why, pad: 0 };
    of.as_bytes().to_vec()
}
