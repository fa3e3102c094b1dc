/* Threads' states, calls, wake-ups, journal commits and block requests, as bcc sees them.
 *
 * The programs read only tracepoints' arguments and helpers: they are compiled with another
 * kernel's headers, so structures of the kernel would silently have the wrong layout.
 *
 * Every record is an interval or an instant of one thread, transaction or block request. All
 * records stay in the ring until the run is over, so that reading them takes no CPU from the
 * compared threads.
 *
 * Programs return 1: after 0, perf would not get the event (trace_call_bpf() in the kernel).
 */
typedef unsigned int tid_t; /* the jbd2 tracepoints name it */

enum kind {
    ON_CPU = 1, /* b_ns - a_ns: it had a CPU */
    RUN_QUEUE,  /* it waited for one */
    OFF_CPU,    /* it slept */
    CALL,       /* it was in the system call `number` */
    WAKE_UP,    /* it woke thread `number` at b_ns */
    BORN,       /* at b_ns, by thread `number` */
    GONE,
    NAMED,  /* the root: it has executed the program with the marker's name */
    COMMIT, /* of transaction `number` of device `tid` */
    BLOCK, /* a request on device `tid`: from its issue to its completion, `number` is the sector */
    MISSED,  /* a switch to it while it had a CPU, or from it while it had none */
    RUNTIME, /* `number` more nanoseconds of run time by the scheduler */
};

struct record {
    u32 kind;
    u32 tid;
    u64 a_ns;
    u64 b_ns;
    u64 number;
};

struct state {
    u32 kind;
    u64 since_ns;
};

struct call {
    u64 number;
    u64 enter_ns;
};

struct place {
    u64 number;
    u64 dev;
};

BPF_RINGBUF_OUTPUT(records, RING_PAGES);
BPF_ARRAY(lost, u64, 1);
BPF_HASH(states, u32, struct state, 65536);
BPF_HASH(tasks, u64, u32, 65536); /* key: the task's address, as an identifier only */
BPF_HASH(calls, u32, struct call, 65536);
BPF_HASH(commits, struct place, u64, 1024);
BPF_HASH(requests, struct place, u64, 65536);

static void tell(u32 kind, u32 tid, u64 a_ns, u64 b_ns, u64 number)
{
    struct record r = {.kind = kind, .tid = tid, .a_ns = a_ns, .b_ns = b_ns, .number = number};
    if (records.ringbuf_output(&r, sizeof(r), BPF_RB_NO_WAKEUP) != 0) {
        int zero = 0;
        u64 *count = lost.lookup(&zero);
        if (count)
            __sync_fetch_and_add(count, 1);
    }
}

static void remember(u32 tid)
{
    u64 task = bpf_get_current_task();
    if (!tasks.lookup(&task))
        tasks.update(&task, &tid);
}

static void become(u32 tid, u32 kind, u64 now_ns)
{
    struct state *state = states.lookup(&tid);
    if (!state || state->kind == kind)
        return;
    tell(state->kind, tid, state->since_ns, now_ns, 0);
    state->kind = kind;
    state->since_ns = now_ns;
}

static void begin(u32 tid, u32 kind, u64 now_ns)
{
    struct state state = {.kind = kind, .since_ns = now_ns};
    states.update(&tid, &state);
}

/* The tree begins with the program that has the marker's name. */
TRACEPOINT_PROBE(sched, sched_process_exec)
{
    union {
        char text[16];
        u64 words[2];
    } name = {}, marker = {.text = MARKER};
    bpf_get_current_comm(&name, sizeof(name));
    if (name.words[0] != marker.words[0] || name.words[1] != marker.words[1])
        return 1;
    u64 now_ns = bpf_ktime_get_ns();
    begin(args->pid, ON_CPU, now_ns);
    remember(args->pid);
    tell(NAMED, args->pid, 0, now_ns, 0);
    return 1;
}

TRACEPOINT_PROBE(sched, sched_process_fork)
{
    u32 parent = (u32)bpf_get_current_pid_tgid(), child = args->child_pid;
    if (!states.lookup(&parent))
        return 1;
    u64 now_ns = bpf_ktime_get_ns();
    begin(child, OFF_CPU, now_ns);
    tell(BORN, child, 0, now_ns, parent);
    return 1;
}

static void woken(u32 tid)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct state *state = states.lookup(&tid);
    if (!state)
        return;
    tell(WAKE_UP, (u32)bpf_get_current_pid_tgid(), 0, now_ns, tid);
    /* A thread that is still on its CPU is about to sleep; the wake-up prevents that. */
    if (state->kind == OFF_CPU)
        become(tid, RUN_QUEUE, now_ns);
}

/* A raw tracepoint, because interrupts wake threads: in an interrupt of another tracepoint program,
 * a plain one would not run (bpf_prog_active in the kernel). Its argument is the task's address. */
RAW_TRACEPOINT_PROBE(sched_waking)
{
    u64 task = ctx->args[0];
    u32 *tid = tasks.lookup(&task);
    if (tid)
        woken(*tid);
    return 0;
}

TRACEPOINT_PROBE(sched, sched_wakeup_new)
{
    woken(args->pid);
    return 1;
}

TRACEPOINT_PROBE(sched, sched_switch)
{
    u64 now_ns = bpf_ktime_get_ns();
    u32 prev = args->prev_pid, next = args->next_pid;
    long state = args->prev_state;
    struct state *of_prev = prev ? states.lookup(&prev) : 0;
    struct state *of_next = next ? states.lookup(&next) : 0;
    if (of_prev) {
        if (of_prev->kind != ON_CPU)
            tell(MISSED, prev, 0, now_ns, 0);
        /* 0: runnable; 0x100: preempted; 0x10, 0x20: dead. */
        become(prev, state == 0 || state & 0x100 ? RUN_QUEUE : OFF_CPU, now_ns);
        if (state & 0x30) {
            tell(GONE, prev, 0, now_ns, 0);
            u64 task = bpf_get_current_task();
            states.delete(&prev);
            calls.delete(&prev);
            tasks.delete(&task);
        }
    }
    if (of_next) {
        if (of_next->kind == ON_CPU)
            tell(MISSED, next, 0, now_ns, 0);
        become(next, ON_CPU, now_ns);
    }
    return 1;
}

/* The times that /proc/TID/schedstat adds up. A raw tracepoint, because ticks are interrupts. */
RAW_TRACEPOINT_PROBE(sched_stat_runtime)
{
    u64 task = ctx->args[0];
    u32 *tid = tasks.lookup(&task);
    if (tid)
        tell(RUNTIME, *tid, 0, 0, ctx->args[1]);
    return 0;
}

TRACEPOINT_PROBE(raw_syscalls, sys_enter)
{
    u32 tid = (u32)bpf_get_current_pid_tgid();
    if (!states.lookup(&tid))
        return 1;
    remember(tid);
    struct call call = {.number = args->id};
    call.enter_ns = bpf_ktime_get_ns();
    calls.update(&tid, &call);
    return 1;
}

TRACEPOINT_PROBE(raw_syscalls, sys_exit)
{
    u64 now_ns = bpf_ktime_get_ns();
    u32 tid = (u32)bpf_get_current_pid_tgid();
    struct call *call = calls.lookup(&tid);
    if (!call) {
        /* A new thread returns from its parent's call. */
        if (states.lookup(&tid))
            remember(tid);
        return 1;
    }
    tell(CALL, tid, call->enter_ns, now_ns, call->number);
    calls.delete(&tid);
    return 1;
}

TRACEPOINT_PROBE(jbd2, jbd2_start_commit)
{
    struct place place = {.number = (u32)args->transaction, .dev = args->dev};
    u64 now_ns = bpf_ktime_get_ns();
    commits.update(&place, &now_ns);
    return 1;
}

TRACEPOINT_PROBE(jbd2, jbd2_end_commit)
{
    u64 now_ns = bpf_ktime_get_ns();
    struct place place = {.number = (u32)args->transaction, .dev = args->dev};
    u64 *start_ns = commits.lookup(&place);
    if (!start_ns)
        return 1;
    tell(COMMIT, place.dev, *start_ns, now_ns, place.number);
    commits.delete(&place);
    return 1;
}

/* Flushes have no sectors, so the arguments do not identify them. */
TRACEPOINT_PROBE(block, block_rq_issue)
{
    if (!args->nr_sector)
        return 1;
    struct place place = {.number = args->sector, .dev = args->dev};
    u64 now_ns = bpf_ktime_get_ns();
    requests.update(&place, &now_ns);
    return 1;
}

TRACEPOINT_PROBE(block, block_rq_complete)
{
    if (!args->nr_sector)
        return 1;
    u64 now_ns = bpf_ktime_get_ns();
    struct place place = {.number = args->sector, .dev = args->dev};
    u64 *issued_ns = requests.lookup(&place);
    if (!issued_ns)
        return 1;
    tell(BLOCK, place.dev, *issued_ns, now_ns, place.number);
    requests.delete(&place);
    return 1;
}
