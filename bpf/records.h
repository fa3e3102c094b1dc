/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The records that the kernel side sends, and nothing else: kinds first, then one struct per kind,
 * each as large as its kind needs. userspace/crates/record mirrors this file; a test compares the
 * two through the object's BTF.
 *
 * Append only: a new kind goes at the end of the list and gets a new struct.
 *
 * No record contains an address of the kernel (except addresses of code, with --stacks): captures
 * are passed on, and addresses reveal where the kernel lies. Objects are told apart by numbers that
 * programs see anyway.
 */
#pragma once

#define COMM_BYTES 16
#define PATH_BYTES 256
#define KERNEL_FRAMES 32
#define USER_FRAMES 64
#define BUILD_ID_BYTES 20
#define MAPPING_PATH_BYTES 4096

enum record_kind {
    REC_LOST = 1,       /* records that found the ring full */
    REC_SWITCH = 2,     /* sched_switch */
    REC_SWITCH_SYS = 3, /* sched_switch of a traced thread inside a system call */
    REC_WAKING = 4,     /* sched_waking, sched_wakeup_new */
    REC_FORK = 5,
    REC_EXEC = 6,
    REC_EXIT = 7,
    REC_RENAME = 8,
    REC_SYSCALL = 9,     /* a whole system call, sent when it ends */
    REC_SYSCALL_IO = 10, /* a system call that moved bytes through a descriptor */
    REC_SYSCALL_PATH = 11,
    REC_FAULT = 12,          /* a whole page fault, sent when it ends */
    REC_IRQ = 13,            /* a whole hard or soft interrupt, sent when it ends */
    REC_TASK = 14,           /* a task that existed before the capture; written by user space */
    REC_BLOCK = 15,          /* a block request, sent when it completes */
    REC_JOURNAL = 16,        /* a jbd2 commit enters a phase */
    REC_CONTENTION = 17,     /* a traced thread got a kernel lock it had to wait for */
    REC_THROTTLE = 18,       /* a traced thread is about to be throttled for dirtying pages */
    REC_SYSCALL_SOCKET = 19, /* a system call that moved bytes through a socket */
    REC_CHANNEL = 20,        /* the addresses of one direction of TCP or UDP */
    REC_UNIX_CHANNEL = 21,   /* the name of one direction of Unix sockets */
    REC_STACK = 22,          /* the stack of a traced thread that goes to sleep */
    REC_SAMPLE = 23,         /* the stack of a traced thread when the CPU clock ticks */
    REC_MAPPING = 24,        /* code is mapped into a traced process; written by user space */
    REC_WORK = 25,           /* a kernel worker has done work that a traced thread had queued */
    REC_UNIT = 26,           /* a frame or message head inside a byte stream */
    REC_HEADER_BLOCK = 27,   /* bytes that name a method; user space turns them into REC_METHOD */
    REC_LINE = 28,           /* likewise; neither is kept */
    REC_METHOD = 29,         /* what a request calls, or how it ended; written by user space */
    REC_TRANSFER = 30,       /* bytes that a system call moved besides those of its own record */
    REC_ACCEPT = 31,         /* a system call that accepted a connection */
    REC_PACKET = 32,         /* a packet of a traced sender was sent, or received here */
    REC_MARKED = 34,         /* a running thread is traced from now on */
    REC_ROLE = 35,           /* which side asks on a channel that is older than the capture */
    REC_FILE = 36,           /* a file that was open before the capture; written by user space */
    REC_ARRIVAL = 37,       /* bytes of an untraced writer arrived at a socket which is read here */
    REC_STEAL = 40,         /* the hypervisor took time from a CPU */
    REC_UNSEEN_SWITCH = 41, /* a context switch was not seen */
    REC_MIGRATE = 42,       /* a traced thread was moved from one run queue to another */
    REC_GAP = 43,           /* it is no longer known where messages begin on a channel */
    REC_FUNCTION = 44,      /* a traced thread has executed a function of the kernel */
    REC_RUNTIME_TASK = 45,  /* a runtime's task began or ceased to run, to wait or to exist */
};

/* The head of every record: time, current thread, kind. The ring tells the CPU. */
struct rec_hdr {
    u64 ts_ns; /* CLOCK_MONOTONIC */
    u32 tid;
    u8 kind;
    u8 flags;
    u16 aux;
};

struct rec_lost {
    struct rec_hdr hdr;
    u64 count;
    u64 first_ns;
    u64 last_ns;
};

#define SWITCH_PREEMPT 1 /* prev lost the CPU although runnable */
#define SWITCH_IOWAIT 2  /* prev is accounted as waiting for a block device */

#define NOT_KNOWN_NS 0xffffffff

struct rec_switch { /* hdr.tid: prev; hdr.aux: its state, TASK_* bits */
    struct rec_hdr hdr;
    u32 next_tid;
    u32 waited_ns; /* how long next waited for the CPU, by the scheduler's account */
};

/* What a descriptor refers to: S_IFMT >> 12 of its inode (1 FIFO, 2 char, 8 regular, 12 socket). */
#define OBJECT_FUTEX 15 /* no descriptor: ino is the address, dev the operation, fd the value */
/* A futex in shared memory, in rec_transfer: `channel` is the inode number of the memory's file,
 * with dev; `reverse` the offset there; fd as above. */
#define OBJECT_SHARED_WORD (OBJECT_FUTEX | 1 << 8)
#define OBJECT_SOCKET 12
#define OBJECT_EVENTFD (1 << 8) /* no type of inode: ino is the eventfd-id of /proc/PID/fdinfo */
#define OBJECT_UNIX (OBJECT_SOCKET | 1 << 8) /* stream sockets, by protocol */
#define OBJECT_TCP (OBJECT_SOCKET | 2 << 8)
#define OBJECT_UDP (OBJECT_SOCKET | 3 << 8)
#define OBJECT_UNIX_DGRAM (OBJECT_SOCKET | 4 << 8) /* SOCK_DGRAM and SOCK_SEQPACKET */

struct rec_switch_sys {
    struct rec_hdr hdr;
    u32 next_tid;
    u16 nr;
    u16 object_type;
    u64 enter_ns;
    u64 ino; /* 0: the call has no descriptor we looked up */
    u32 dev;
    s32 fd;
    u32 waited_ns;
    u32 pad;
};

#define WAKING_NEW 1 /* sched_wakeup_new: first wake-up of a task */
#define WAKING_SOFTIRQ 2
#define WAKING_HARDIRQ 4
#define WAKING_NMI 8
#define WAKING_IN_SYSCALL 16 /* current is a traced thread inside a system call */

struct rec_waking { /* hdr.tid: current */
    struct rec_hdr hdr;
    u32 wakee_tid;
    u32 block; /* rec_block.number of the request being completed here, or 0 */
};

#define TASK_TRACED 1
#define TASK_THREAD 2 /* shares its parent's process */
#define TASK_KTHREAD 4

struct rec_fork { /* hdr.tid: parent */
    struct rec_hdr hdr;
    u32 child_tid;
    u32 child_tgid;
    u64 enter_ns; /* entry of the parent's system call; 0 when the parent is not traced */
    char comm[COMM_BYTES];
};

struct rec_exec {
    struct rec_hdr hdr;
    u32 old_tid; /* differs when a thread other than the leader called exec */
    u32 path_bytes;
    u64 entry;       /* AT_ENTRY: first instruction of the program */
    u64 interp_base; /* AT_BASE: the dynamic loader, 0 when static */
    char comm[COMM_BYTES];
    char path[PATH_BYTES]; /* sent up to path_bytes */
};

struct rec_exit {
    struct rec_hdr hdr;
    u32 tgid;
    s32 exit_code; /* as wait(2) reports it */
};

struct rec_rename {
    struct rec_hdr hdr;
    u32 subject_tid;
    u32 pad;
    char comm[COMM_BYTES];
};

#define SYSCALL_UNFINISHED 1 /* the thread exited inside it; ret is meaningless */
#define SYSCALL_REAPED 2     /* ret is the pid a waitid() collected */
#define SYSCALL_WRITE 4      /* bytes went into the object; or shutdown() ended that direction */
#define SYSCALL_EMPTY 8      /* a datagram of no bytes, which counts as one byte of its channel */
#define SYSCALL_TIMEOUT 16   /* it waits for readiness, with a timeout */
#define SYSCALL_SWITCH_INTERVAL 32 /* it waits for a futex, with a timeout of some 5 ms */

struct rec_syscall { /* hdr.ts_ns: exit; hdr.aux: number */
    struct rec_hdr hdr;
    u64 enter_ns;
    s64 ret;
};

struct rec_syscall_io {
    struct rec_syscall sys;
    u64 ino;
    u64 offset; /* bytes that went this way through the pipe before this call */
    u32 dev;
    s32 fd;
    u16 object_type;
    u16 pad;
    u32 count; /* eventfd: what was added or taken */
};

struct rec_syscall_path {
    struct rec_syscall sys;
    u64 ino; /* what it opened; 0: nothing */
    u32 dev;
    u32 path_bytes;
    char path[PATH_BYTES]; /* sent up to path_bytes */
};

struct rec_file { /* hdr.tid: the process that has it open; path_bytes bytes of its path follow */
    struct rec_hdr hdr;
    u64 ino;
    u32 dev;
    u32 path_bytes;
};

#define FAULT_MAJOR 1
#define FAULT_KERNEL 2 /* raised in kernel mode, inside a system call */

struct rec_fault { /* hdr.ts_ns: end of handle_mm_fault() */
    struct rec_hdr hdr;
    u64 enter_ns;
    u64 address;
    u64 ip; /* 0: raised in kernel mode */
};

#define IRQ_HARD 1

struct rec_irq { /* hdr.ts_ns: end; hdr.aux: IRQ number, vector class or softirq number */
    struct rec_hdr hdr;
    u64 enter_ns;
};

struct rec_task {
    struct rec_hdr hdr; /* hdr.tid: the task */
    u32 tgid;
    u32 ppid;
    char comm[COMM_BYTES];
};

/* hdr.ts_ns: completion; hdr.tid: task that was current when it was queued, or else issued;
 * hdr.aux: REQ_OP_* */
struct rec_block {
    struct rec_hdr hdr;
    u64 queued_ns;
    u64 issued_ns;
    u64 sector;
    u32 bytes;
    u32 dev;    /* major << 20 | minor */
    u32 number; /* 1, 2, ...: what rec_waking.block refers to */
    u32 op_flags;
};

enum journal_phase {
    JOURNAL_START = 1,
    JOURNAL_LOCKING = 2, /* no new handles; waits for running ones */
    JOURNAL_FLUSHING = 3,
    JOURNAL_LOGGING = 4,
    JOURNAL_END = 5,
    JOURNAL_CHECKPOINT = 6, /* no phase: a traced thread found the journal full (transaction: 0) */
};

struct rec_journal { /* hdr.tid: the jbd2 thread; hdr.aux: enum journal_phase */
    struct rec_hdr hdr;
    u32 transaction;
    u32 dev;
};

struct rec_contention { /* hdr.ts_ns: end; hdr.aux: LCB_F_* (include/trace/events/lock.h) */
    struct rec_hdr hdr;
    u64 enter_ns;
};

struct rec_throttle {
    struct rec_hdr hdr;
};

/* Why the kernel has not sent all bytes by the end of the call that passed them. */
enum held {
    HELD_NOT = 0,
    HELD_BY_WINDOW = 1,     /* the receiver has no room for them */
    HELD_BY_CONGESTION = 2, /* as many packets as the congestion window allows are under way */
    HELD_AS_SMALL = 3,      /* less than a packet; another small one is unacknowledged (Nagle) */
    HELD_BY_CORK = 4,       /* less than a packet, and the program may have more */
    HELD_FOR_TURN = 5,      /* pacing, autocorking, or enough is in the device's queue */
};

/* The reason, and the number of bytes, rounded down: mantissa << shift. */
#define HELD_MANTISSAS 256
#define HELD(why, shift, mantissa) ((u16)((why) | (shift) << 3 | (mantissa) << 8))

struct rec_syscall_socket {
    struct rec_syscall sys; /* hdr.flags: SYSCALL_WRITE, SYSCALL_EMPTY */
    u64 channel;            /* this direction of the connection */
    u64 reverse;            /* the other */
    u64 end;                /* number of the first byte after those moved */
    u32 bytes;
    s32 fd; /* -1: not looked up */
    u16 object_type;
    u16 held; /* HELD() */
    u32 ino;  /* the socket's; 0: not looked up */
};

struct rec_channel {
    struct rec_hdr hdr;
    u64 channel;
    u8 from[16]; /* IPv6 addresses; ::ffff:a.b.c.d for IPv4 */
    u8 to[16];
    u16 from_port;
    u16 to_port;
    u16 object_type; /* 0: TCP */
    u16 is_anew;     /* a connection other than the last one between these ends */
};

#define UNIX_NAME_BYTES 108

struct rec_unix_channel {
    struct rec_hdr hdr;
    u64 channel;
    u32 path_bytes;
    u16 object_type; /* 0: a stream socket */
    u16 pad;
    char path[UNIX_NAME_BYTES]; /* sent up to path_bytes; begins with 0 where abstract */
};

/* Addresses of code, innermost first, as many as there is room for: deeper ones are left out. */
struct rec_stack { /* hdr.ts_ns: that of the switch; hdr.aux: how many frames */
    struct rec_hdr hdr;
    u64 frames[KERNEL_FRAMES]; /* sent up to hdr.aux */
};

struct rec_sample { /* hdr.tid: the thread that had the CPU */
    struct rec_hdr hdr;
    u64 interrupted_ns; /* when the clock's interrupt began */
    u32 kernel_frames;  /* 0: it was in user mode */
    u32 user_frames;
    u64 frames[KERNEL_FRAMES + USER_FRAMES]; /* the kernel's, then the program's: sent as counted */
};

#define MAPPING_EXEC 1 /* the process has a new, empty address space: no other field matters */

struct rec_mapping {
    struct rec_hdr hdr;
    u32 tgid;
    u32 path_bytes;
    u64 start;
    u64 bytes;
    u64 file_offset;
    u64 ino; /* of the file, with dev; 0 if the build id is known instead */
    u32 dev; /* major << 20 | minor */
    u32 build_id_bytes;
    u8 build_id[BUILD_ID_BYTES];
    u8 pad[4];
    char path[MAPPING_PATH_BYTES]; /* sent up to path_bytes */
};

struct rec_work { /* hdr.ts_ns: end; hdr.tid: the worker */
    struct rec_hdr hdr;
    u64 queued_ns;
    u64 started_ns;
    u32 queuer_tid;
    u32 pad;
};

/* The protocol of a byte stream, as far as its framing is followed. */
enum protocol {
    PROTOCOL_UNKNOWN = 0,
    PROTOCOL_HTTP2 = 1,
    PROTOCOL_ONCRPC = 2,
    PROTOCOL_HTTP1 = 3,
    PROTOCOL_RESP = 4,
    PROTOCOL_OTHER = 5, /* none of these */
    PROTOCOL_TLS = 6,
};

/* rec_unit.kind. For HTTP/2 it is the frame's type. */
#define UNIT_REQUEST 0
#define UNIT_RESPONSE 1
#define UNIT_MORE 2  /* continues the message before it */
#define UNIT_ASIDE 3 /* answers no request */

/* rec_unit.flags. For HTTP/2 they are the frame's. */
#define UNIT_LAST 1  /* the message ends with it */
#define UNIT_ERROR 2 /* it says that the request failed */
#define UNIT_OPEN 4  /* the message ends with the connection */

/* rec_unit.hdr.flags */
#define UNIT_AFTER_GAP 1   /* bytes before it could not be followed */
#define UNIT_NAMED 2       /* a REC_METHOD of the same offset follows */
#define UNIT_FROM_CLIENT 4 /* the direction is known to be the client's, or the server's */
#define UNIT_FROM_SERVER 8

struct rec_unit { /* hdr.ts_ns: end of the call that moved its first bytes */
    struct rec_hdr hdr;
    u64 channel;
    u64 reverse;
    u64 offset; /* number of its first byte */
    u64 bytes;
    u32 id; /* stream, XID */
    u8 protocol;
    u8 kind;
    u8 flags;
    u8 pad;
    u16 object_type;
    u16 status_known;
    /* ONC RPC call: program, version, procedure. HTTP/1 response: status, bytes of its head;
     * request: its first four bytes. Else the status, if known. */
    u32 numbers[3];
};

/* rec_gap.why. The last two tell of TLS, where there is no framing to be lost. */
enum gap {
    GAP_UNSEEN = 1, /* bytes that were moved unseen between two calls */
    GAP_SENSELESS,  /* bytes that make no sense, or could not be read */
    GAP_LONG,       /* more messages in a call than are looked at */
    GAP_BUSY,       /* another CPU had the same stream's framer and did not release it in time */
    GAP_FORGOTTEN,  /* there is no room for so many streams */
    GAP_HANDSHAKE,  /* a record of TLS's handshake */
    GAP_ENCRYPTED,  /* data encrypted by TLS; its handshake may have come before the capture */
};

/* hdr.flags: UNIT_FROM_*, if that is known. Messages may be missing among those under way and those
 * from byte number `offset` on, up to the next unit, which has UNIT_AFTER_GAP. */
struct rec_gap {
    struct rec_hdr hdr;
    u64 channel;
    u64 reverse;
    u64 offset;
    u16 object_type;
    u8 protocol;
    u8 why;
    u32 pad;
};

#define PIECE_BYTES 256

#define PIECE_AFTER_GAP 1 /* pieces before it could not be read */
#define PIECE_READER 2    /* seen at the end that received it */
#define PIECE_BEGIN 4     /* the first of its connection */

/* Part of the payload of a frame with headers; a side's sequence numbers have no gap. */
struct rec_header_block {
    struct rec_hdr hdr;
    u64 channel;
    u64 offset; /* of the frame */
    u32 id;
    u32 sequence;
    u32 frame_bytes; /* of the payload */
    u32 at;          /* offset of the piece in the payload */
    u32 piece_bytes;
    u16 object_type;
    u8 kind;
    u8 flags;
    u8 piece[PIECE_BYTES]; /* sent up to piece_bytes */
};

struct rec_line { /* the first line of an HTTP/1 request; the name of a RESP command */
    struct rec_hdr hdr;
    u64 channel;
    u64 offset;
    u32 line_bytes;
    u16 object_type;
    u8 protocol;
    u8 pad;
    u8 line[PIECE_BYTES]; /* sent up to line_bytes */
};

#define METHOD_REQUEST 1  /* of a request's head; without a path, the path is not known */
#define METHOD_RESPONSE 2 /* of a response's head */
#define METHOD_STATUS 4   /* status is an HTTP status */
#define METHOD_RESULT 8   /* status is a gRPC status */

struct rec_method {
    struct rec_hdr hdr;
    u64 channel;
    u64 offset; /* of the unit it names */
    u32 id;
    s32 status;
    u32 path_bytes;
    u16 object_type;
    u16 pad;
    char path[PATH_BYTES]; /* sent up to path_bytes */
};

#define MARKED_ASLEEP 1
#define MARKED_IN_SYSCALL 2 /* else the fields from nr on mean nothing */

struct rec_marked { /* hdr.tid: the thread; hdr.aux: its state, TASK_* bits */
    struct rec_hdr hdr;
    u32 tgid;
    u16 nr;
    u16 object_type;
    u64 enter_ns; /* not before the mark; equal to that of the call's own record */
    u64 ino;      /* 0: the call has no descriptor we looked up */
    u32 dev;
    s32 fd;
};

struct rec_role {
    struct rec_hdr hdr;
    u64 asked;  /* channel with the client's messages; 0: not known */
    u64 answer; /* channel with the server's; 0: not known */
    u32 dev;    /* of a pipe */
    u16 object_type;
    u16 pad;
};

struct rec_steal { /* hdr.tid: the thread that had the CPU */
    struct rec_hdr hdr;
    u64 since_ns; /* the time was taken within [since_ns, until_ns) */
    u64 until_ns;
    u64 taken_ns;
};

/* hdr.tid: the thread that has the CPU, which it got unseen at `arrived_ns` (0: it is the idle
 * task, the time is not known). The last switch seen on the CPU, at `since_ns`, had given it to
 * `last_tid`. */
struct rec_unseen_switch {
    struct rec_hdr hdr;
    u64 since_ns;
    u64 arrived_ns;
    u32 last_tid;
    u32 waited_ns; /* how long the thread that has the CPU waited for it */
};

struct rec_migrate { /* hdr.tid: the thread that was moved, while it was runnable */
    struct rec_hdr hdr;
    u32 from_cpu;
    u32 to_cpu;
};

struct rec_transfer { /* hdr.flags: SYSCALL_WRITE, SYSCALL_EMPTY; sent before the call's own record
                       */
    struct rec_hdr hdr;
    u64 channel; /* of a pipe: its inode, with dev */
    u64 reverse; /* 0: a pipe */
    u64 end;     /* number of the first byte after those moved */
    u32 bytes;
    u32 dev;
    s32 fd; /* -1: not looked up */
    u16 object_type;
    u16 held; /* HELD() */
};

struct rec_accept { /* sys.ret: the new descriptor, which the rest describes */
    struct rec_syscall sys;
    u64 ino;
    u64 established_ns; /* when the connection was established; 0: not known */
    u32 dev;
    u16 object_type;
    u16 pad;
};

struct rec_arrival { /* hdr.ts_ns: when it is recorded; tid: 0; aux: type of the object */
    struct rec_hdr hdr;
    u64 channel;
    u64 end; /* number of the first byte after those that have arrived */
    u64 arrived_ns;
};

#define PACKET_AGAIN 1 /* given to that device before */
#define PACKET_UDP 2
#define PACKET_FORWARDED 4 /* by a router on this machine */
#define PACKET_LOOPBACK 8  /* never received; recorded only for bytes that had been held back */
/* Its hook did not run. The time at which it was sent, and its last byte, are what TCP remembers
 * when this is noticed (hdr.ts_ns); its device is not known. */
#define PACKET_UNSEEN 16

struct rec_packet { /* hdr.ts_ns: when it was sent; if received_ns is not 0, received; or noticed */
    struct rec_hdr hdr;
    u64 channel;
    u64 end; /* number of the first byte after its payload */
    u64 queued_ns;
    u64 sent_ns;
    u64 received_ns;
    u32 bytes;
    /* Distinguishes the devices that a packet passes when a router forwards it: the low halves of
     * the device's index and of its network namespace's number, index first. */
    u32 device;
};

/* Kernel functions with direct hooks, on request. */
enum function {
    FUNCTION_COPY = 1,         /* a copy between user memory and kernel memory */
    FUNCTION_COMMIT_WAIT = 2,  /* a wait until a transaction is on the disk */
    FUNCTION_HANDLE_START = 3, /* a wait until a transaction admits a change; only if it slept */
    FUNCTION_SOCKET_LOCK = 4,  /* a wait until another call releases a socket */
    FUNCTION_OPEN = 5,
    FUNCTION_PIPE_READ = 6,
    FUNCTION_PIPE_WRITE = 7,
    FUNCTION_TCP_RECEIVE = 8,
    FUNCTION_TCP_SEND = 9,
};

struct rec_function { /* hdr.ts_ns: its end; hdr.aux: enum function */
    struct rec_hdr hdr;
    u64 enter_ns;
    u64 number; /* bytes copied; the transaction whose commit is waited for; else 0 */
};

/*
 * What happens to a task of a runtime in the program itself (--tasks): a goroutine, a tokio task, a
 * context in which asyncio runs steps, a stream or timer of Node's.
 */
enum runtime_task_change {
    RUNTIME_TASK_RUNS = 1,     /* the record's thread runs it */
    RUNTIME_TASK_PARKS = 2,    /* the thread leaves it asleep; hdr.aux: what it waits for */
    RUNTIME_TASK_YIELDS = 3,   /* the thread leaves it runnable */
    RUNTIME_TASK_ENDS = 4,     /* the thread leaves it for good */
    RUNTIME_TASK_READIED = 5,  /* the thread makes it runnable; hdr.aux: what it has waited for */
    RUNTIME_TASK_BORN = 6,     /* the thread has created it, runnable */
    RUNTIME_TASK_STEPS = 7,    /* the thread runs it; the one it ran before waits. hdr.aux: what it
                                * has waited for, if that is known */
    RUNTIME_TASK_QUEUED = 8,   /* readied, or born if it is not known yet. With hdr.aux
                                * TASK_WAIT_READY: a stream, to which the task that runs has
                                * given what the loop is to write */
    RUNTIME_TASK_DUE = 9,      /* not a task: a timer is due, whose callback will run as a step */
    RUNTIME_TASK_WAITED = 10,  /* it runs again; hdr.aux: what it has waited for */
    RUNTIME_TASK_MADE = 11,    /* the thread has created it, asleep */
    RUNTIME_TASK_TIMERS = 12,  /* not a task: the thread runs the timers that are due */
    RUNTIME_TASK_DRAINED = 13, /* not a task: all that waited for the last one has continued */
};

/* hdr.flags: enum runtime_task_change; hdr.aux: a TaskWait of userspace/crates/record, or 0 */
struct rec_runtime_task {
    struct rec_hdr hdr;
    u64 address; /* of the runtime's own data of it: identifies it in the process; 0: the task that
                  * the thread runs */
    u32 tgid;
    u32 pad;
};
