//! Raw records as the kernel side sends them: the mirror of `bpf/records.h`, field by field.
//!
//! `tests/records_layout.rs` compares every struct here with the BTF of the compiled object.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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

pub const FAULT_MAJOR: u8 = 1;
pub const FAULT_KERNEL: u8 = 2;

pub const MAPPING_EXEC: u8 = 1;

pub const IRQ_HARD: u8 = 1;
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

        /// Struct, field, offset in bytes: for comparison with the kernel side.
        pub const LAYOUT: &[(&str, &str, usize)] = &[
            $($((stringify!($name), stringify!($field), std::mem::offset_of!($name, $field)),)+)+
        ];
        /// Struct and size in bytes.
        pub const SIZES: &[(&str, usize)] = &[$((stringify!($name), size_of::<$name>())),+];
    };
}

records! {
    struct RecHdr { ts_ns: u64, tid: u32, kind: u8, flags: u8, aux: u16 }
    struct RecLost { hdr: RecHdr, count: u64, first_ns: u64, last_ns: u64 }
    /// `hdr.tid`: the thread that left the CPU; `hdr.aux`: its state, TASK_* bits.
    struct RecSwitch { hdr: RecHdr, next_tid: u32, pad: u32 }
    struct RecSwitchSys {
        hdr: RecHdr,
        next_tid: u32,
        nr: u16,
        object_type: u16,
        enter_ns: u64,
        ino: u64,
        dev: u32,
        fd: i32,
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
    /// `hdr.ts_ns`: exit; `hdr.aux`: number.
    struct RecSyscall { hdr: RecHdr, enter_ns: u64, ret: i64 }
    struct RecSyscallIo {
        sys: RecSyscall,
        ino: u64,
        offset: u64,
        dev: u32,
        fd: i32,
        object_type: u16,
        pad: [u16; 3],
    }
    /// Followed by `path_bytes` bytes of the path.
    struct RecSyscallPath { sys: RecSyscall, path_bytes: u32, pad: u32 }
    /// `hdr.ts_ns`: end of the fault.
    struct RecFault { hdr: RecHdr, enter_ns: u64, address: u64, ip: u64 }
    /// `hdr.ts_ns`: end of the interrupt; `hdr.aux`: which.
    struct RecIrq { hdr: RecHdr, enter_ns: u64 }
    /// `hdr.tid`: a task that existed before the capture.
    struct RecTask { hdr: RecHdr, tgid: u32, ppid: u32, comm: [u8; COMM_BYTES] }
    /// `hdr.ts_ns`: completion; `hdr.tid`: who was current at the issue; `hdr.aux`: REQ_OP_*.
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
    /// `hdr.ts_ns`: the lock was got; `hdr.aux`: LCB_F_* flags.
    struct RecContention { hdr: RecHdr, enter_ns: u64, lock: u64 }
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
        pad: [u16; 3],
    }
    /// Addresses of a TCP channel, IPv4 as `::ffff:a.b.c.d`.
    struct RecChannel {
        hdr: RecHdr,
        channel: u64,
        from: [u8; 16],
        to: [u8; 16],
        from_port: u16,
        to_port: u16,
        pad: u32,
    }
    /// Followed by `path_bytes` bytes of the name.
    struct RecUnixChannel { hdr: RecHdr, channel: u64, path_bytes: u32, pad: u32 }
    /// `hdr.ts_ns`: that of the switch; `hdr.aux`: how many addresses follow.
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
    /// `hdr.tid`: the kernel worker; `hdr.ts_ns`: when it had done the work.
    struct RecWork { hdr: RecHdr, queued_ns: u64, started_ns: u64, queuer_tid: u32, pad: u32 }
}

/// Reads the record struct at the front of `bytes`, and what follows it.
pub fn read<T: FromBytes>(bytes: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(bytes).ok()
}

/// A C string field as text: up to the first NUL, invalid UTF-8 replaced.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
