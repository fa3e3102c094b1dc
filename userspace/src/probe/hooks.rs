//! Every hook of the probe: one line each. A new hook is a program in `bpf/` and a line here.

use clap::ValueEnum;

/// How a hook is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// BTF raw tracepoint of this name.
    Tracepoint(&'static str),
    /// Entry of this kernel function (fentry).
    FunctionEntry(&'static str),
    /// Its exit (fexit).
    FunctionExit(&'static str),
    /// Software perf event with period 1 on every CPU: `PERF_COUNT_SW_*` number.
    SoftwareEvent(u64),
    /// The CPU clock on every CPU, at the rate asked for; only with `--stacks`.
    CpuClock,
    /// BTF iterator over this kind of thing, run on demand; only with `attach`.
    Iterator(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct HookSpec {
    /// Name of the program in the BPF object.
    pub program: &'static str,
    pub means: Means,
    /// Without it a capture makes no sense and `run` refuses.
    pub required: bool,
    /// What is not known without it.
    pub purpose: &'static str,
    /// The tracepoint that provides the same data: this hook is attached only if the kernel lacks it.
    pub instead_of: Option<&'static str>,
}

/// `PERF_COUNT_SW_PAGE_FAULTS_MIN`, include/uapi/linux/perf_event.h
const SW_PAGE_FAULTS_MIN: u64 = 5;
/// `PERF_COUNT_SW_PAGE_FAULTS_MAJ`
const SW_PAGE_FAULTS_MAJ: u64 = 6;

macro_rules! tp {
    ($program:literal, $name:literal, required, $purpose:literal) => {
        HookSpec {
            program: $program,
            means: Means::Tracepoint($name),
            required: true,
            purpose: $purpose,
            instead_of: None,
        }
    };
    ($program:literal, $name:literal, optional, $purpose:literal) => {
        HookSpec {
            program: $program,
            means: Means::Tracepoint($name),
            required: false,
            purpose: $purpose,
            instead_of: None,
        }
    };
}

/// A function in place of a tracepoint that older kernels lack.
macro_rules! instead {
    ($of:literal, $program:literal, $means:expr, $purpose:literal) => {
        HookSpec {
            program: $program,
            means: $means,
            required: false,
            purpose: $purpose,
            instead_of: Some($of),
        }
    };
}

use Means::{FunctionEntry, FunctionExit};

#[rustfmt::skip]
pub const HOOKS: &[HookSpec] = &[
    tp!("on_sched_switch", "sched_switch", required, "who has each CPU"),
    tp!("on_sched_waking", "sched_waking", required, "the waker of each sleeping thread"),
    tp!("on_sched_wakeup_new", "sched_wakeup_new", required, "first wake-up of a new task"),
    tp!("on_sched_migrate_task", "sched_migrate_task", optional, "moves between run queues"),
    tp!("on_sched_process_fork", "sched_process_fork", required, "children, followed from their first instruction"),
    tp!("on_sched_process_exec", "sched_process_exec", required, "new programs"),
    tp!("on_sched_process_exit", "sched_process_exit", required, "ends of threads and processes"),
    tp!("on_sched_process_free", "sched_process_free", optional, "room for further threads"),
    tp!("on_task_rename", "task_rename", optional, "names of threads that rename themselves"),
    tp!("on_sys_enter", "sys_enter", required, "user against kernel time"),
    tp!("on_sys_exit", "sys_exit", required, "user against kernel time, bytes moved"),
    tp!("on_sock_send_length", "sock_send_length", optional, "requests over sockets"),
    tp!("on_sock_recv_length", "sock_recv_length", optional, "requests over sockets"),
    instead!("sock_send_length", "on_inet_sendmsg", FunctionExit("inet_sendmsg"), "requests over TCP and UDP"),
    instead!("sock_send_length", "on_inet6_sendmsg", FunctionExit("inet6_sendmsg"), "requests over TCP and UDP with IPv6"),
    instead!("sock_send_length", "on_unix_stream_sendmsg", FunctionExit("unix_stream_sendmsg"), "requests over Unix sockets"),
    instead!("sock_send_length", "on_unix_dgram_sendmsg", FunctionExit("unix_dgram_sendmsg"), "datagrams over Unix sockets"),
    instead!("sock_send_length", "on_inet_sendpage", FunctionExit("inet_sendpage"), "what sendfile() sends over TCP"),
    instead!("sock_send_length", "on_unix_stream_sendpage", FunctionExit("unix_stream_sendpage"), "what sendfile() sends over Unix sockets"),
    instead!("sock_recv_length", "on_inet_recvmsg", FunctionExit("inet_recvmsg"), "requests over TCP and UDP"),
    instead!("sock_recv_length", "on_inet6_recvmsg", FunctionExit("inet6_recvmsg"), "requests over TCP and UDP with IPv6"),
    instead!("sock_recv_length", "on_unix_stream_recvmsg", FunctionExit("unix_stream_recvmsg"), "requests over Unix sockets"),
    instead!("sock_recv_length", "on_unix_dgram_recvmsg", FunctionExit("__unix_dgram_recvmsg"), "datagrams over Unix sockets"),
    tp!("on_inet_sock_set_state", "inet_sock_set_state", optional, "connections that wait to be accepted"),
    tp!("on_net_dev_queue", "net_dev_queue", optional, "datagrams over UDP; queues of network devices"),
    tp!("on_skb_copy_datagram_iovec", "skb_copy_datagram_iovec", optional, "which datagram a read takes"),
    tp!("on_sk_data_ready", "sk_data_ready", optional, "datagrams over UDP and Unix sockets; how long bytes from elsewhere waited to be read"),
    instead!("sk_data_ready", "on_sock_def_readable", FunctionEntry("sock_def_readable"), "datagrams over UDP and Unix sockets; how long bytes from elsewhere waited to be read"),
    tp!("on_net_dev_start_xmit", "net_dev_start_xmit", optional, "queues of network devices"),
    tp!("on_netif_receive_skb", "netif_receive_skb", optional, "the way between network devices"),
    tp!("on_page_fault_user", "page_fault_user", optional, "page faults"),
    tp!("on_page_fault_kernel", "page_fault_kernel", optional, "page faults inside system calls"),
    HookSpec { program: "on_minor_fault_end", means: Means::SoftwareEvent(SW_PAGE_FAULTS_MIN), required: false, purpose: "ends of minor page faults", instead_of: None },
    HookSpec { program: "on_major_fault_end", means: Means::SoftwareEvent(SW_PAGE_FAULTS_MAJ), required: false, purpose: "ends of major page faults", instead_of: None },
    tp!("on_softirq_entry", "softirq_entry", optional, "soft interrupts; context of wake-ups"),
    tp!("on_softirq_exit", "softirq_exit", optional, "soft interrupts; context of wake-ups"),
    tp!("on_irq_handler_entry", "irq_handler_entry", optional, "device interrupts; context of wake-ups"),
    tp!("on_irq_handler_exit", "irq_handler_exit", optional, "device interrupts; context of wake-ups"),
    tp!("on_local_timer_entry", "local_timer_entry", optional, "timer interrupts"),
    tp!("on_local_timer_exit", "local_timer_exit", optional, "timer interrupts"),
    tp!("on_reschedule_entry", "reschedule_entry", optional, "interrupts between CPUs"),
    tp!("on_reschedule_exit", "reschedule_exit", optional, "interrupts between CPUs"),
    tp!("on_call_function_entry", "call_function_entry", optional, "interrupts between CPUs"),
    tp!("on_call_function_exit", "call_function_exit", optional, "interrupts between CPUs"),
    tp!("on_call_function_single_entry", "call_function_single_entry", optional, "interrupts between CPUs"),
    tp!("on_call_function_single_exit", "call_function_single_exit", optional, "interrupts between CPUs"),
    tp!("on_irq_work_entry", "irq_work_entry", optional, "deferred interrupt work"),
    tp!("on_irq_work_exit", "irq_work_exit", optional, "deferred interrupt work"),
    tp!("on_block_rq_insert", "block_rq_insert", optional, "queueing of block requests"),
    tp!("on_block_rq_issue", "block_rq_issue", optional, "service of block requests"),
    tp!("on_block_rq_merge", "block_rq_merge", optional, "queueing of block requests"),
    tp!("on_block_rq_complete", "block_rq_complete", optional, "which block request a thread waited for"),
    tp!("on_block_io_done", "block_io_done", optional, "which block request a thread waited for"),
    tp!("on_jbd2_start_commit", "jbd2_start_commit", optional, "journal commits"),
    tp!("on_jbd2_commit_locking", "jbd2_commit_locking", optional, "phases of journal commits"),
    tp!("on_jbd2_commit_flushing", "jbd2_commit_flushing", optional, "phases of journal commits"),
    tp!("on_jbd2_commit_logging", "jbd2_commit_logging", optional, "phases of journal commits"),
    tp!("on_jbd2_end_commit", "jbd2_end_commit", optional, "journal commits"),
    tp!("on_jbd2_checkpoint", "jbd2_checkpoint", optional, "waits for room in journals"),
    tp!("on_contention_begin", "contention_begin", optional, "waits for kernel locks"),
    tp!("on_contention_end", "contention_end", optional, "waits for kernel locks"),
    tp!("on_workqueue_queue_work", "workqueue_queue_work", optional, "the threads that kernel workers work for"),
    tp!("on_workqueue_execute_start", "workqueue_execute_start", optional, "the threads that kernel workers work for"),
    tp!("on_workqueue_execute_end", "workqueue_execute_end", optional, "the threads that kernel workers work for"),
    tp!("on_balance_dirty_pages", "balance_dirty_pages", optional, "throttling of writers"),
    HookSpec { program: "on_cpu_clock", means: Means::CpuClock, required: false, purpose: "samples of stacks (--stacks)", instead_of: None },
    HookSpec { program: "mark", means: Means::Iterator("task"), required: true, purpose: "threads that run already", instead_of: None },
    HookSpec { program: "number_unix", means: Means::Iterator("unix"), required: true, purpose: "numbers of Unix sockets that are open already", instead_of: None },
    HookSpec { program: "learn_files", means: Means::Iterator("task_file"), required: true, purpose: "channels that are open already", instead_of: None },
    HookSpec { program: "look_at_files", means: Means::Iterator("task_file"), required: true, purpose: "bytes under way in channels that are open already", instead_of: None },
];

/// What direct hooks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Copies of payload out of sockets, and into Unix and UDP sockets
    Copy,
    /// Waits for a commit, and to start a handle
    Journal,
    /// Opening a file
    Open,
    /// What reads and writes do in a pipe
    Pipe,
    /// What calls do in TCP, and waits for a socket that another call holds
    Tcp,
}

/// A function of the kernel with a direct hook from its entry to its return, if that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct DirectSpec {
    pub sort: Sort,
    /// The name of its programs in the BPF object, after `fentry_`, `fexit_`, `kprobe_` and `kretprobe_`.
    pub program: &'static str,
    /// Its names, those on newer kernels first.
    pub functions: &'static [&'static str],
    /// What is known only with it.
    pub purpose: &'static str,
}

macro_rules! direct {
    ($sort:ident, $program:literal, $functions:expr, $purpose:literal) => {
        DirectSpec {
            sort: Sort::$sort,
            program: $program,
            functions: &$functions,
            purpose: $purpose,
        }
    };
}

#[rustfmt::skip]
pub const DIRECT_HOOKS: &[DirectSpec] = &[
    direct!(Copy, "receive_copy", ["simple_copy_to_iter"], "copies out of sockets, measured"),
    direct!(Copy, "send_copy", ["skb_copy_datagram_from_iter"], "copies into Unix sockets, measured"),
    direct!(Copy, "udp_copy", ["ip_generic_getfrag"], "copies into UDP sockets, with their checksums, measured"),
    direct!(Journal, "commit_wait", ["jbd2_log_wait_commit"], "for which commit a thread waits"),
    direct!(Journal, "handle_start", ["start_this_handle"], "waits to start a journal handle, whichever thread ends them"),
    direct!(Open, "open", ["do_sys_openat2"], "which part of an open is the kernel's work on it"),
    direct!(Pipe, "pipe_read", ["anon_pipe_read", "pipe_read"], "which part of a read is the pipe's"),
    direct!(Pipe, "pipe_write", ["anon_pipe_write", "pipe_write"], "which part of a write is the pipe's"),
    direct!(Tcp, "tcp_receive", ["tcp_recvmsg"], "which part of a call is TCP's"),
    direct!(Tcp, "tcp_send", ["tcp_sendmsg"], "which part of a call is TCP's"),
    direct!(Tcp, "socket_lock", ["__lock_sock"], "waits for a socket that another call holds"),
];
