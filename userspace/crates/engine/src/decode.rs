//! Decodes the kernel side's records into events.

mod code;
mod task;

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{bail, Context, Result};

use crate::event::*;
use crate::send_limit::SendLimit;
use code::{code, frames, path};
use rpcprobe_record::*;
use task::task_change;

/// The greatest possible time or pipe offset: two of them add up without overflow, and each fits the INT64 of the
/// tables.
const MOST: u64 = i64::MAX as u64;

/// Decodes one record. `Ok(None)`: a kind this version does not know.
///
/// # Errors
/// The record is too short for its kind, or holds an impossible value.
pub fn decode(cpu: u32, record: &[u8]) -> Result<Option<Event>> {
    let (hdr, _) = read::<RecHdr>(record).context("a record without header")?;
    if hdr.ts_ns > MOST {
        bail!("a record of the impossible time {} ns", hdr.ts_ns);
    }
    let what = match hdr.kind {
        REC_LOST => {
            let r: RecLost = whole(record)?;
            What::Lost { count: r.count, first_ns: r.first_ns, last_ns: r.last_ns }
        }
        REC_SWITCH => {
            let r: RecSwitch = whole(record)?;
            switch(&hdr, r.next_tid, r.waited_ns, None)
        }
        REC_SWITCH_SYS => {
            let r: RecSwitchSys = whole(record)?;
            let object =
                (r.ino != 0).then_some(Object { dev: r.dev, ino: r.ino, type_bits: r.object_type });
            let call = OpenCall { nr: r.nr, enter_ns: r.enter_ns.min(hdr.ts_ns), object, fd: r.fd };
            switch(&hdr, r.next_tid, r.waited_ns, Some(call))
        }
        REC_WAKING => {
            let r: RecWaking = whole(record)?;
            What::Waking { waker: hdr.tid, wakee: r.wakee_tid, flags: hdr.flags, block: r.block }
        }
        REC_FORK => {
            let r: RecFork = whole(record)?;
            What::Fork {
                parent: hdr.tid,
                child: r.child_tid,
                child_tgid: r.child_tgid,
                flags: hdr.flags,
                enter_ns: r.enter_ns.min(hdr.ts_ns),
                comm: text(&r.comm).into(),
            }
        }
        REC_EXEC => {
            let (r, rest) = read::<RecExec>(record).context("a short exec record")?;
            What::Exec(Box::new(Exec {
                tid: hdr.tid,
                old_tid: r.old_tid,
                traced: hdr.flags & TASK_TRACED != 0,
                entry: r.entry,
                interp_base: r.interp_base,
                comm: text(&r.comm).into(),
                path: path(rest, r.path_bytes)?,
            }))
        }
        REC_EXIT => {
            let r: RecExit = whole(record)?;
            What::Exit {
                tid: hdr.tid,
                tgid: r.tgid,
                code: r.exit_code,
                traced: hdr.flags & TASK_TRACED != 0,
            }
        }
        REC_RENAME => {
            let r: RecRename = whole(record)?;
            What::Rename { tid: r.subject_tid, comm: text(&r.comm).into() }
        }
        REC_SYSCALL => call(&hdr, &whole::<RecSyscall>(record)?, None, None),
        REC_SYSCALL_IO => {
            let r: RecSyscallIo = whole(record)?;
            if r.offset > MOST {
                bail!("a record of the impossible offset {}", r.offset);
            }
            let moved = match r.object_type {
                TYPE_EVENTFD => u64::from(r.count),
                _ => u64::try_from(r.sys.ret).unwrap_or(0),
            };
            let io = Io {
                object: Object { dev: r.dev, ino: r.ino, type_bits: r.object_type },
                fd: r.fd,
                is_write: hdr.flags & SYSCALL_WRITE != 0,
                offset: r.offset,
                bytes: moved,
                reverse: None,
                empty: false,
                socket: 0,
                unsent: SendLimit::default(),
            };
            call(&hdr, &r.sys, Some(io), None)
        }
        REC_SYSCALL_PATH => {
            let (r, rest) = read::<RecSyscallPath>(record).context("a short path record")?;
            let mut what = call(&hdr, &r.sys, None, path(rest, r.path_bytes)?);
            if let What::Call { call, .. } = &mut what {
                if r.ino != 0 {
                    call.rare_mut().opened = Some(FileId { dev: r.dev, ino: r.ino });
                }
            }
            what
        }
        REC_FAULT => {
            let r: RecFault = whole(record)?;
            What::Fault { tid: hdr.tid, enter_ns: r.enter_ns, ip: r.ip, flags: hdr.flags }
        }
        REC_IRQ => {
            let r: RecIrq = whole(record)?;
            What::Irq {
                tid: hdr.tid,
                enter_ns: r.enter_ns,
                hard: hdr.flags & IRQ_HARD != 0,
                number: hdr.aux,
            }
        }
        REC_STEAL => {
            let r: RecSteal = whole(record)?;
            let RecSteal { since_ns, until_ns, taken_ns, .. } = r;
            What::Steal { tid: hdr.tid, since_ns, until_ns, taken_ns }
        }
        REC_UNSEEN_SWITCH => {
            let r: RecUnseenSwitch = whole(record)?;
            let RecUnseenSwitch { since_ns, arrived_ns, last_tid: last, .. } = r;
            let waited_ns = known(r.waited_ns);
            What::UnseenSwitch { tid: hdr.tid, last, since_ns, arrived_ns, waited_ns }
        }
        REC_MIGRATE => {
            let RecMigrate { from_cpu, to_cpu, .. } = whole(record)?;
            What::Migrate { tid: hdr.tid, from_cpu, to_cpu }
        }
        REC_TASK => {
            let r: RecTask = whole(record)?;
            What::Task {
                tid: hdr.tid,
                tgid: r.tgid,
                kthread: hdr.flags & TASK_KTHREAD != 0,
                comm: text(&r.comm).into(),
            }
        }
        REC_BLOCK => {
            let r: RecBlock = whole(record)?;
            What::Block(Box::new(Block {
                number: r.number,
                queued_ns: r.queued_ns.min(hdr.ts_ns),
                issued_ns: r.issued_ns.min(hdr.ts_ns),
                done_ns: hdr.ts_ns,
                sector: r.sector,
                bytes: r.bytes,
                dev: r.dev,
                op: hdr.aux,
                tid: hdr.tid,
            }))
        }
        REC_JOURNAL => {
            let r: RecJournal = whole(record)?;
            What::Journal { tid: hdr.tid, dev: r.dev, transaction: r.transaction, phase: hdr.aux }
        }
        REC_CONTENTION => {
            let r: RecContention = whole(record)?;
            What::Contention { tid: hdr.tid, enter_ns: r.enter_ns, flags: hdr.aux }
        }
        REC_FUNCTION => {
            let r: RecFunction = whole(record)?;
            let Some(function) = function(hdr.aux) else { return Ok(None) };
            let enter_ns = r.enter_ns.min(hdr.ts_ns);
            What::Function { tid: hdr.tid, enter_ns, function, number: r.number }
        }
        REC_RUNTIME_TASK => {
            let r: RecRuntimeTask = whole(record)?;
            let Some(change) = task_change(&hdr) else { return Ok(None) };
            What::RuntimeTask { tid: hdr.tid, tgid: r.tgid, address: r.address, change }
        }
        REC_THROTTLE => What::Throttle { tid: hdr.tid },
        REC_WORK => {
            let r: RecWork = whole(record)?;
            What::Work {
                tid: hdr.tid,
                queuer: r.queuer_tid,
                queued_ns: r.queued_ns.min(hdr.ts_ns),
                started_ns: r.started_ns.min(hdr.ts_ns),
            }
        }
        REC_UNIT => {
            let r: RecUnit = whole(record)?;
            match unit(&hdr, &r)? {
                Some(unit) => What::Unit(Box::new(unit)),
                None => return Ok(None),
            }
        }
        REC_GAP => {
            let r: RecGap = whole(record)?;
            let channel = connection(r.channel, r.object_type);
            let encrypted = |handshake| What::Encrypted { tid: hdr.tid, channel, handshake };
            let gap = |why| What::Gap { channel, why };
            match r.why {
                GAP_HANDSHAKE => encrypted(Some(r.offset)),
                GAP_ENCRYPTED => encrypted(None),
                GAP_UNSEEN => gap(GapWhy::Unseen),
                GAP_LONG => gap(GapWhy::Long),
                GAP_BUSY => gap(GapWhy::Busy),
                GAP_FORGOTTEN => gap(GapWhy::Forgotten),
                _ => gap(GapWhy::Senseless),
            }
        }
        REC_METHOD => {
            let (r, rest) = read::<RecMethod>(record).context("a short method record")?;
            let status = |flag| (hdr.flags & flag != 0).then_some(r.status);
            let asks = match hdr.flags & (METHOD_REQUEST | METHOD_RESPONSE) {
                METHOD_REQUEST => Some(true),
                METHOD_RESPONSE => Some(false),
                _ => None,
            };
            What::Method(Box::new(Method {
                channel: connection(r.channel, r.object_type),
                offset: r.offset,
                id: r.id,
                asks,
                path: path(rest, r.path_bytes)?,
                status: status(METHOD_STATUS),
                result: status(METHOD_RESULT),
            }))
        }
        REC_SYSCALL_SOCKET => {
            let r: RecSyscallSocket = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let bytes = u64::from(r.bytes).min(r.end);
            let io = Io {
                object: connection(r.channel, r.object_type),
                fd: r.fd,
                is_write: hdr.flags & SYSCALL_WRITE != 0,
                offset: r.end - bytes,
                bytes,
                reverse: Some(connection(r.reverse, r.object_type)),
                empty: hdr.flags & SYSCALL_EMPTY != 0,
                socket: r.ino,
                unsent: SendLimit::from_record(r.held),
            };
            call(&hdr, &r.sys, Some(io), None)
        }
        REC_PACKET => {
            let r: RecPacket = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let packet = Packet {
                from: r.end - u64::from(r.bytes).min(r.end),
                end: r.end,
                queued_ns: r.queued_ns.min(hdr.ts_ns),
                sent_ns: r.sent_ns.clamp(r.queued_ns.min(hdr.ts_ns), hdr.ts_ns),
                received_ns: (r.received_ns != 0).then_some(hdr.ts_ns),
                again: hdr.flags & PACKET_AGAIN != 0,
                forwarded: hdr.flags & PACKET_FORWARDED != 0,
                device: r.device,
            };
            let type_bits = if hdr.flags & PACKET_UDP != 0 { TYPE_UDP } else { TYPE_TCP };
            What::Packet { object: connection(r.channel, type_bits), packet }
        }
        REC_ARRIVAL => {
            let r: RecArrival = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let object = connection(r.channel, hdr.aux);
            What::Arrival { object, end: r.end, arrived_ns: r.arrived_ns.min(hdr.ts_ns) }
        }
        REC_ACCEPT => {
            let r: RecAccept = whole(record)?;
            let io = Io {
                object: Object { dev: r.dev, ino: r.ino, type_bits: r.object_type },
                fd: i32::try_from(r.sys.ret).unwrap_or(-1),
                is_write: false,
                offset: 0,
                bytes: 0,
                reverse: None,
                empty: false,
                socket: 0,
                unsent: SendLimit::default(),
            };
            let mut what = call(&hdr, &r.sys, Some(io), None);
            if let What::Call { call, .. } = &mut what {
                call.rare_mut().accepted_of_ns = Some(r.established_ns.min(hdr.ts_ns));
            }
            what
        }
        REC_TRANSFER => {
            let r: RecTransfer = whole(record)?;
            if r.end > MOST {
                bail!("a record of the impossible offset {}", r.end);
            }
            let bytes = u64::from(r.bytes).min(r.end);
            let (object, reverse) = match r.object_type {
                TYPE_FIFO => (Object { dev: r.dev, ino: r.channel, type_bits: TYPE_FIFO }, None),
                TYPE_SHARED_WORD => {
                    let ino = r.channel << 32 | (r.reverse & 0xffff_ffff);
                    (Object { dev: r.dev, ino, type_bits: TYPE_SHARED_WORD }, None)
                }
                _ => {
                    // A Unix socket whose writer had no number yet (number_of() of bpf/sockets.h) has 0.
                    let reverse = (r.reverse != 0).then(|| connection(r.reverse, r.object_type));
                    (connection(r.channel, r.object_type), reverse)
                }
            };
            let io = Io {
                object,
                fd: r.fd,
                is_write: hdr.flags & SYSCALL_WRITE != 0,
                offset: r.end - bytes,
                bytes,
                reverse,
                empty: hdr.flags & SYSCALL_EMPTY != 0,
                socket: 0,
                unsent: SendLimit::from_record(r.held),
            };
            What::Transfer { tid: hdr.tid, io }
        }
        REC_CHANNEL => {
            let r: RecChannel = whole(record)?;
            let end = |address, port| SocketAddr::new(Ipv6Addr::from(address).to_canonical(), port);
            let ends = [end(r.from, r.from_port), end(r.to, r.to_port)];
            let name = format!("{} > {}", ends[0], ends[1]);
            let object_type = if r.object_type == 0 { TYPE_TCP } else { r.object_type };
            let object = connection(r.channel, object_type);
            let is_anew = r.is_anew != 0;
            What::Channel(Box::new(Named { object, name: name.into(), ends: Some(ends), is_anew }))
        }
        REC_UNIX_CHANNEL => {
            let (r, rest) = read::<RecUnixChannel>(record).context("a short channel record")?;
            let Some(bytes) = rest.get(..r.path_bytes as usize) else {
                bail!("a name longer than its record");
            };
            let name = match bytes {
                [] => format!("unix:[{}]", r.channel),
                [0, name @ ..] => format!("@{}", text(name)),
                name => text(name),
            };
            let object_type = if r.object_type == 0 { TYPE_UNIX } else { r.object_type };
            let object = connection(r.channel, object_type);
            let (ends, is_anew) = (None, false);
            What::Channel(Box::new(Named { object, name: name.into(), ends, is_anew }))
        }
        REC_MARKED => {
            let r: RecMarked = whole(record)?;
            let object =
                (r.ino != 0).then_some(Object { dev: r.dev, ino: r.ino, type_bits: r.object_type });
            let call = OpenCall { nr: r.nr, enter_ns: r.enter_ns.min(hdr.ts_ns), object, fd: r.fd };
            let has = |flag| hdr.flags & flag != 0;
            What::Marked {
                tid: hdr.tid,
                tgid: r.tgid,
                asleep: has(MARKED_ASLEEP).then_some(hdr.aux),
                call: has(MARKED_IN_SYSCALL).then_some(call),
            }
        }
        REC_ROLE => {
            let r: RecRole = whole(record)?;
            let channel = |number: u64| {
                let object = match r.object_type {
                    TYPE_FIFO => Object { dev: r.dev, ino: number, type_bits: TYPE_FIFO },
                    _ => connection(number, r.object_type),
                };
                (number != 0).then_some(object)
            };
            What::Role { asked: channel(r.asked), answer: channel(r.answer) }
        }
        REC_FILE => {
            let (r, rest) = read::<RecFile>(record).context("a short file record")?;
            let path = path(rest, r.path_bytes)?.unwrap_or_default();
            What::File { file: FileId { dev: r.dev, ino: r.ino }, path: path.into() }
        }
        REC_STACK => {
            let (_, rest) = read::<RecStack>(record).context("a short stack record")?;
            let (kernel, _) = frames(rest, u32::from(hdr.aux), KERNEL_FRAMES)?;
            What::Stack { tid: hdr.tid, kernel }
        }
        REC_SAMPLE => {
            let (r, rest) = read::<RecSample>(record).context("a short sample record")?;
            let (kernel, rest) = frames(rest, r.kernel_frames, KERNEL_FRAMES)?;
            let (user, _) = frames(rest, r.user_frames, USER_FRAMES)?;
            let interrupted_ns = r.interrupted_ns.min(hdr.ts_ns);
            What::Sample { tid: hdr.tid, interrupted_ns, kernel, user }
        }
        REC_MAPPING => {
            let (r, rest) = read::<RecMapping>(record).context("a short mapping record")?;
            let code = match hdr.flags & MAPPING_EXEC {
                0 => Some(code(&r, rest)?),
                _ => None,
            };
            What::Mapping(Box::new(Mapping { tgid: r.tgid, code }))
        }
        _ => return Ok(None),
    };
    Ok(Some(Event { ts_ns: hdr.ts_ns, cpu, what }))
}

fn function(number: u16) -> Option<Function> {
    Some(match number {
        FUNCTION_COPY => Function::Copy,
        FUNCTION_COMMIT_WAIT => Function::Wait(KernelWait::Commit),
        FUNCTION_HANDLE_START => Function::Wait(KernelWait::Handle),
        FUNCTION_SOCKET_LOCK => Function::Wait(KernelWait::Socket),
        FUNCTION_OPEN => Function::Transport(Transport::Open),
        FUNCTION_PIPE_READ => Function::Transport(Transport::PipeRead),
        FUNCTION_PIPE_WRITE => Function::Transport(Transport::PipeWrite),
        FUNCTION_TCP_RECEIVE => Function::Transport(Transport::TcpReceive),
        FUNCTION_TCP_SEND => Function::Transport(Transport::TcpSend),
        _ => return None,
    })
}

fn unit(hdr: &RecHdr, r: &RecUnit) -> Result<Option<Unit>> {
    if r.offset >= MOST {
        bail!("a unit at the impossible offset {}", r.offset);
    }
    // A program may state any length for its message.
    let to = r.offset.saturating_add(r.bytes).clamp(r.offset + 1, MOST);
    let Some(protocol) = Protocol::of_number(r.protocol) else { return Ok(None) };
    Ok(Some(Unit {
        channel: connection(r.channel, r.object_type),
        reverse: connection(r.reverse, r.object_type),
        from: r.offset,
        to,
        protocol,
        id: r.id,
        kind: r.kind,
        flags: r.flags,
        after_gap: hdr.flags & UNIT_AFTER_GAP != 0,
        named: hdr.flags & UNIT_NAMED != 0,
        from_client: match hdr.flags & (UNIT_FROM_CLIENT | UNIT_FROM_SERVER) {
            UNIT_FROM_CLIENT => Some(true),
            UNIT_FROM_SERVER => Some(false),
            _ => None,
        },
        numbers: r.numbers,
        status_known: r.status_known != 0,
    }))
}

/// A channel of a connection. Its type is a socket's, whatever the record says.
fn connection(number: u64, object_type: u16) -> Object {
    Object { dev: 0, ino: number, type_bits: object_type & 0xff00 | TYPE_SOCKET }
}

fn whole<T: zerocopy::FromBytes>(record: &[u8]) -> Result<T> {
    let (value, _) = read(record)
        .with_context(|| format!("a record of {} bytes is too short for its kind", record.len()))?;
    Ok(value)
}

fn known(ns: u32) -> Option<u32> {
    (ns != NOT_KNOWN_NS).then_some(ns)
}

fn switch(hdr: &RecHdr, next: u32, waited_ns: u32, call: Option<OpenCall>) -> What {
    What::Switch {
        prev: hdr.tid,
        next,
        waited_ns: known(waited_ns),
        state: hdr.aux,
        preempt: hdr.flags & SWITCH_PREEMPT != 0,
        iowait: hdr.flags & SWITCH_IOWAIT != 0,
        call,
    }
}

fn call(hdr: &RecHdr, sys: &RecSyscall, io: Option<Io>, path: Option<Box<str>>) -> What {
    What::Call {
        tid: hdr.tid,
        call: Call {
            nr: hdr.aux,
            enter_ns: sys.enter_ns.min(hdr.ts_ns),
            exit_ns: hdr.ts_ns,
            ret: sys.ret,
            unfinished: hdr.flags & SYSCALL_UNFINISHED != 0,
            reaped: hdr.flags & SYSCALL_REAPED != 0,
            has_timeout: hdr.flags & SYSCALL_TIMEOUT != 0,
            has_switch_interval: hdr.flags & SYSCALL_SWITCH_INTERVAL != 0,
            io,
            rare: None,
            path: path.map(Arc::from),
        },
    }
}
