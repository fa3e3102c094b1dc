//! Raw records as sent by the kernel side: mirrors `bpf/records.h`, field by field.
//!
//! `tests/records_layout.rs` compares every struct here with the BTF of the compiled object.

mod task_waits;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use task_waits::{TaskWait, TaskWaitSort};

pub const COMM_BYTES: usize = 16;
pub const PATH_BYTES: usize = 256;
pub const KERNEL_FRAMES: usize = 32;
pub const USER_FRAMES: usize = 64;
pub const BUILD_ID_BYTES: usize = 20;
pub const MAPPING_PATH_BYTES: usize = 4096;

pub const REC_LOST: u8 = 1;
pub const REC_SWITCH: u8 = 2;
pub const REC_SWITCH_SYS: u8 = 3;
pub const REC_WAKING: u8 = 4;
pub const REC_FORK: u8 = 5;
pub const REC_EXEC: u8 = 6;
pub const REC_EXIT: u8 = 7;
pub const REC_RENAME: u8 = 8;
pub const REC_SYSCALL: u8 = 9;
pub const REC_SYSCALL_IO: u8 = 10;
pub const REC_SYSCALL_PATH: u8 = 11;
pub const REC_FAULT: u8 = 12;
pub const REC_IRQ: u8 = 13;
pub const REC_TASK: u8 = 14;
pub const REC_BLOCK: u8 = 15;
pub const REC_JOURNAL: u8 = 16;
pub const REC_CONTENTION: u8 = 17;
pub const REC_THROTTLE: u8 = 18;
pub const REC_SYSCALL_SOCKET: u8 = 19;
pub const REC_CHANNEL: u8 = 20;
pub const REC_UNIX_CHANNEL: u8 = 21;
pub const REC_STACK: u8 = 22;
pub const REC_SAMPLE: u8 = 23;
pub const REC_MAPPING: u8 = 24;
pub const REC_WORK: u8 = 25;
pub const REC_UNIT: u8 = 26;
pub const REC_HEADER_BLOCK: u8 = 27;
pub const REC_LINE: u8 = 28;
pub const REC_METHOD: u8 = 29;
pub const REC_TRANSFER: u8 = 30;
pub const REC_ACCEPT: u8 = 31;
pub const REC_PACKET: u8 = 32;
pub const REC_MARKED: u8 = 34;
pub const REC_ROLE: u8 = 35;
pub const REC_FILE: u8 = 36;
pub const REC_ARRIVAL: u8 = 37;
pub const REC_STEAL: u8 = 40;
pub const REC_UNSEEN_SWITCH: u8 = 41;
pub const REC_MIGRATE: u8 = 42;
pub const REC_GAP: u8 = 43;
pub const REC_FUNCTION: u8 = 44;
pub const REC_RUNTIME_TASK: u8 = 45;

pub const NOT_KNOWN_NS: u32 = u32::MAX;
pub const SWITCH_PREEMPT: u8 = 1;
pub const SWITCH_IOWAIT: u8 = 2;

pub const WAKING_NEW: u8 = 1;
pub const WAKING_SOFTIRQ: u8 = 2;
pub const WAKING_HARDIRQ: u8 = 4;
pub const WAKING_NMI: u8 = 8;
pub const WAKING_IN_SYSCALL: u8 = 16;

pub const TASK_TRACED: u8 = 1;
pub const TASK_THREAD: u8 = 2;
pub const TASK_KTHREAD: u8 = 4;

pub const SYSCALL_UNFINISHED: u8 = 1;
pub const SYSCALL_REAPED: u8 = 2;
pub const SYSCALL_WRITE: u8 = 4;
pub const SYSCALL_EMPTY: u8 = 8;
pub const SYSCALL_TIMEOUT: u8 = 16;
pub const SYSCALL_SWITCH_INTERVAL: u8 = 32;

pub const FAULT_MAJOR: u8 = 1;
pub const FAULT_KERNEL: u8 = 2;

pub const PACKET_AGAIN: u8 = 1;
pub const PACKET_UDP: u8 = 2;
pub const PACKET_FORWARDED: u8 = 4;
pub const PACKET_LOOPBACK: u8 = 8;
pub const PACKET_UNSEEN: u8 = 16;

/// `enum runtime_task_change` of `bpf/records.h`.
pub const RUNTIME_TASK_RUNS: u8 = 1;
pub const RUNTIME_TASK_PARKS: u8 = 2;
pub const RUNTIME_TASK_YIELDS: u8 = 3;
pub const RUNTIME_TASK_ENDS: u8 = 4;
pub const RUNTIME_TASK_READIED: u8 = 5;
pub const RUNTIME_TASK_BORN: u8 = 6;
pub const RUNTIME_TASK_STEPS: u8 = 7;
pub const RUNTIME_TASK_QUEUED: u8 = 8;
pub const RUNTIME_TASK_DUE: u8 = 9;
pub const RUNTIME_TASK_WAITED: u8 = 10;
pub const RUNTIME_TASK_MADE: u8 = 11;
pub const RUNTIME_TASK_TIMERS: u8 = 12;
pub const RUNTIME_TASK_DRAINED: u8 = 13;

pub const MAPPING_EXEC: u8 = 1;

pub const MARKED_ASLEEP: u8 = 1;
pub const MARKED_IN_SYSCALL: u8 = 2;
/// `enum protocol` of `bpf/records.h`.
pub const PROTOCOL_HTTP2: u8 = 1;
pub const PROTOCOL_ONCRPC: u8 = 2;
pub const PROTOCOL_HTTP1: u8 = 3;
pub const PROTOCOL_RESP: u8 = 4;

pub const UNIT_REQUEST: u8 = 0;
pub const UNIT_RESPONSE: u8 = 1;
pub const UNIT_MORE: u8 = 2;
pub const UNIT_ASIDE: u8 = 3;

pub const UNIT_LAST: u8 = 1;
pub const UNIT_ERROR: u8 = 2;
pub const UNIT_OPEN: u8 = 4;

pub const UNIT_AFTER_GAP: u8 = 1;
pub const UNIT_NAMED: u8 = 2;
pub const UNIT_FROM_CLIENT: u8 = 4;
pub const UNIT_FROM_SERVER: u8 = 8;

/// `enum gap` of `bpf/records.h`.
pub const GAP_UNSEEN: u8 = 1;
pub const GAP_SENSELESS: u8 = 2;
pub const GAP_LONG: u8 = 3;
pub const GAP_BUSY: u8 = 4;
pub const GAP_FORGOTTEN: u8 = 5;
pub const GAP_HANDSHAKE: u8 = 6;
pub const GAP_ENCRYPTED: u8 = 7;

pub const PIECE_BYTES: usize = 256;
pub const PIECE_AFTER_GAP: u8 = 1;
pub const PIECE_READER: u8 = 2;
pub const PIECE_BEGIN: u8 = 4;

pub const METHOD_REQUEST: u8 = 1;
pub const METHOD_RESPONSE: u8 = 2;
pub const METHOD_STATUS: u8 = 4;
pub const METHOD_RESULT: u8 = 8;

pub const IRQ_HARD: u8 = 1;
/// `enum function` of `bpf/records.h`.
pub const FUNCTION_COPY: u16 = 1;
pub const FUNCTION_COMMIT_WAIT: u16 = 2;
pub const FUNCTION_HANDLE_START: u16 = 3;
pub const FUNCTION_SOCKET_LOCK: u16 = 4;
pub const FUNCTION_OPEN: u16 = 5;
pub const FUNCTION_PIPE_READ: u16 = 6;
pub const FUNCTION_PIPE_WRITE: u16 = 7;
pub const FUNCTION_TCP_RECEIVE: u16 = 8;
pub const FUNCTION_TCP_SEND: u16 = 9;
/// `enum journal_phase`: a thread found a journal full. The phases of commits have lower numbers.
pub const JOURNAL_CHECKPOINT: u16 = 6;
/// `hdr.aux` of hard interrupts that have a vector but no IRQ number.
pub const VEC_TIMER: u16 = 256;
pub const VEC_RESCHEDULE: u16 = 257;
pub const VEC_CALL_FUNCTION: u16 = 258;
pub const VEC_IRQ_WORK: u16 = 259;

macro_rules! records {
    ($($(#[$doc:meta])* struct $name:ident { $($field:ident: $type:ty),+ $(,)? })+) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            pub struct $name { $(pub $field: $type),+ }
        )+

        /// Struct, field, offset in bytes; compared with the kernel side.
        pub const LAYOUT: &[(&str, &str, usize)] = &[
            $($((stringify!($name), stringify!($field), std::mem::offset_of!($name, $field)),)+)+
        ];
        /// Struct, size in bytes.
        pub const SIZES: &[(&str, usize)] = &[$((stringify!($name), size_of::<$name>())),+];
    };
}

records! {
    struct RecHdr { ts_ns: u64, tid: u32, kind: u8, flags: u8, aux: u16 }
    struct RecLost { hdr: RecHdr, count: u64, first_ns: u64, last_ns: u64 }
    /// `hdr.tid`: the thread that left the CPU; `hdr.aux`: its state, TASK_* bits. `waited_ns`: how long the thread
    /// that gets the CPU waited for it, by the scheduler's accounting, or `NOT_KNOWN_NS`.
    struct RecSwitch { hdr: RecHdr, next_tid: u32, waited_ns: u32 }
    struct RecSwitchSys {
        hdr: RecHdr,
        next_tid: u32,
        nr: u16,
        object_type: u16,
        enter_ns: u64,
        ino: u64,
        dev: u32,
        fd: i32,
        waited_ns: u32,
        pad: u32,
    }
    /// `hdr.tid`: the thread that was current at the wake-up.
    struct RecWaking { hdr: RecHdr, wakee_tid: u32, block: u32 }
    /// `hdr.tid`: the parent.
    struct RecFork {
        hdr: RecHdr,
        child_tid: u32,
        child_tgid: u32,
        enter_ns: u64,
        comm: [u8; COMM_BYTES],
    }
    /// Followed by `path_bytes` bytes of the program's path.
    struct RecExec {
        hdr: RecHdr,
        old_tid: u32,
        path_bytes: u32,
        entry: u64,
        interp_base: u64,
        comm: [u8; COMM_BYTES],
    }
    struct RecExit { hdr: RecHdr, tgid: u32, exit_code: i32 }
    struct RecRename { hdr: RecHdr, subject_tid: u32, pad: u32, comm: [u8; COMM_BYTES] }
    /// `hdr.ts_ns`: exit of the call; `hdr.aux`: its number.
    struct RecSyscall { hdr: RecHdr, enter_ns: u64, ret: i64 }
    struct RecSyscallIo {
        sys: RecSyscall,
        ino: u64,
        offset: u64,
        dev: u32,
        fd: i32,
        object_type: u16,
        pad: u16,
        count: u32,
    }
    /// Followed by `path_bytes` bytes of the path.
    struct RecSyscallPath { sys: RecSyscall, ino: u64, dev: u32, path_bytes: u32 }
    /// A file that a process (`hdr.tid`) had open before the capture. Followed by `path_bytes` bytes of its
    /// path.
    struct RecFile { hdr: RecHdr, ino: u64, dev: u32, path_bytes: u32 }
    /// `hdr.ts_ns`: end of the fault.
    struct RecFault { hdr: RecHdr, enter_ns: u64, address: u64, ip: u64 }
    /// `hdr.ts_ns`: end of the interrupt; `hdr.aux`: which interrupt.
    struct RecIrq { hdr: RecHdr, enter_ns: u64 }
    /// `hdr.tid`: a task that existed before the capture.
    struct RecTask { hdr: RecHdr, tgid: u32, ppid: u32, comm: [u8; COMM_BYTES] }
    /// `hdr.ts_ns`: completion; `hdr.tid`: the thread that was current at the issue; `hdr.aux`: REQ_OP_*.
    struct RecBlock {
        hdr: RecHdr,
        queued_ns: u64,
        issued_ns: u64,
        sector: u64,
        bytes: u32,
        dev: u32,
        number: u32,
        op_flags: u32,
    }
    /// `hdr.tid`: the jbd2 thread; `hdr.aux`: the phase.
    struct RecJournal { hdr: RecHdr, transaction: u32, dev: u32 }
    /// `hdr.ts_ns`: when the lock was acquired; `hdr.aux`: LCB_F_* flags.
    struct RecContention { hdr: RecHdr, enter_ns: u64 }
    struct RecThrottle { hdr: RecHdr }
    /// A call that moved bytes `[end - bytes, end)` of a stream socket's channel.
    struct RecSyscallSocket {
        sys: RecSyscall,
        channel: u64,
        reverse: u64,
        end: u64,
        bytes: u32,
        fd: i32,
        object_type: u16,
        held: u16,
        ino: u32,
    }
    /// Addresses of a TCP or UDP channel, IPv4 as `::ffff:a.b.c.d`. `is_anew`: this is another connection than the last
    /// one between these addresses.
    struct RecChannel {
        hdr: RecHdr,
        channel: u64,
        from: [u8; 16],
        to: [u8; 16],
        from_port: u16,
        to_port: u16,
        object_type: u16,
        is_anew: u16,
    }
    /// Followed by `path_bytes` bytes of the name.
    struct RecUnixChannel { hdr: RecHdr, channel: u64, path_bytes: u32, object_type: u16, pad: u16 }
    /// `hdr.ts_ns`: time of the switch; `hdr.aux`: how many addresses follow.
    struct RecStack { hdr: RecHdr }
    /// Followed by the addresses: the kernel's, then the program's.
    struct RecSample { hdr: RecHdr, interrupted_ns: u64, kernel_frames: u32, user_frames: u32 }
    /// Followed by `path_bytes` bytes of the file's path.
    struct RecMapping {
        hdr: RecHdr,
        tgid: u32,
        path_bytes: u32,
        start: u64,
        bytes: u64,
        file_offset: u64,
        ino: u64,
        dev: u32,
        build_id_bytes: u32,
        build_id: [u8; BUILD_ID_BYTES],
        pad: [u8; 4],
    }
    /// `hdr.tid`: the kernel worker; `hdr.ts_ns`: when the work was done.
    struct RecWork { hdr: RecHdr, queued_ns: u64, started_ns: u64, queuer_tid: u32, pad: u32 }
    /// `hdr.ts_ns`: end of the call that moved its first bytes.
    struct RecUnit {
        hdr: RecHdr,
        channel: u64,
        reverse: u64,
        offset: u64,
        bytes: u64,
        id: u32,
        protocol: u8,
        kind: u8,
        flags: u8,
        pad: u8,
        object_type: u16,
        status_known: u16,
        numbers: [u32; 3],
    }
    /// From `offset` up to the next unit, it is not known where messages begin on the channel.
    struct RecGap {
        hdr: RecHdr,
        channel: u64,
        reverse: u64,
        offset: u64,
        object_type: u16,
        protocol: u8,
        why: u8,
        pad: u32,
    }
    /// Followed by `piece_bytes` bytes of the payload of a frame with headers.
    struct RecHeaderBlock {
        hdr: RecHdr,
        channel: u64,
        offset: u64,
        id: u32,
        sequence: u32,
        frame_bytes: u32,
        at: u32,
        piece_bytes: u32,
        object_type: u16,
        kind: u8,
        flags: u8,
    }
    /// Followed by `line_bytes` bytes.
    struct RecLine {
        hdr: RecHdr,
        channel: u64,
        offset: u64,
        line_bytes: u32,
        object_type: u16,
        protocol: u8,
        pad: u8,
    }
    /// Followed by `path_bytes` bytes of the method that the request calls.
    struct RecMethod {
        hdr: RecHdr,
        channel: u64,
        offset: u64,
        id: u32,
        status: i32,
        path_bytes: u32,
        object_type: u16,
        pad: u16,
    }
    /// `hdr.tid`: a thread that ran before it was traced; `hdr.aux`: its state, TASK_* bits.
    struct RecMarked {
        hdr: RecHdr,
        tgid: u32,
        nr: u16,
        object_type: u16,
        enter_ns: u64,
        ino: u64,
        dev: u32,
        fd: i32,
    }
    /// Channels whose asking end is known: `asked` carries the client's messages, `answer` the server's. 0 if not
    /// known.
    struct RecRole { hdr: RecHdr, asked: u64, answer: u64, dev: u32, object_type: u16, pad: u16 }
    /// `hdr.tid`: the thread that had the CPU; `taken_ns` of its time was stolen in `[since_ns, until_ns)`.
    struct RecSteal { hdr: RecHdr, since_ns: u64, until_ns: u64, taken_ns: u64 }
    /// `hdr.tid`: the thread that got the CPU unseen, at `arrived_ns` (0: not known). The last switch seen on that CPU,
    /// at `since_ns`, had given it to `last_tid`.
    struct RecUnseenSwitch {
        hdr: RecHdr,
        since_ns: u64,
        arrived_ns: u64,
        last_tid: u32,
        waited_ns: u32,
    }
    /// `hdr.tid`: the thread that was moved from one run queue to another.
    struct RecMigrate { hdr: RecHdr, from_cpu: u32, to_cpu: u32 }
    /// Bytes `[end - bytes, end)` of a channel that a call moved in addition to those in the call's own record.
    struct RecTransfer {
        hdr: RecHdr,
        channel: u64,
        reverse: u64,
        end: u64,
        bytes: u32,
        dev: u32,
        fd: i32,
        object_type: u16,
        held: u16,
    }
    /// `sys.ret` is the new descriptor; the other fields describe it.
    struct RecAccept {
        sys: RecSyscall,
        ino: u64,
        established_ns: u64,
        dev: u32,
        object_type: u16,
        pad: u16,
    }
    /// Bytes up to `end` of a channel are in the reader's socket, and no traced thread wrote them. `hdr.aux`: the type
    /// of the object.
    struct RecArrival {
        hdr: RecHdr,
        channel: u64,
        end: u64,
        arrived_ns: u64,
    }
    /// A packet with bytes `[end - bytes, end)` of a channel was sent or, if `received_ns` is set, received.
    struct RecPacket {
        hdr: RecHdr,
        channel: u64,
        end: u64,
        queued_ns: u64,
        sent_ns: u64,
        received_ns: u64,
        bytes: u32,
        device: u32,
    }
    /// A traced thread ran through a kernel function. `hdr.ts_ns`: end of the function; `hdr.aux`: `FUNCTION_*`.
    struct RecFunction { hdr: RecHdr, enter_ns: u64, number: u64 }
    /// What the thread `hdr.tid` of process `tgid` did with a runtime's task (`hdr.flags`: `RUNTIME_TASK_*`). `address`
    /// is the address of the runtime's data about the task; it distinguishes the task from other live tasks of the
    /// process. 0 stands for the task that the thread runs. `hdr.aux`: the [`TaskWait`] for which the task parks, or
    /// for which it has waited.
    struct RecRuntimeTask { hdr: RecHdr, address: u64, tgid: u32, pad: u32 }
}

/// Reads the record struct at the beginning of `bytes`; returns it with the bytes after it.
pub fn read<T: FromBytes>(bytes: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(bytes).ok()
}

/// A C string field as text: up to the first NUL, invalid UTF-8 replaced.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
