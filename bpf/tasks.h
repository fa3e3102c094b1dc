/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Traced threads, and what is kept of each. A thread's storage has the index of its element in an
 * array. Nearly every program needs it, and reading the storage takes half as long as reading the
 * clock. So the index is cached, per thread and for the thread that a CPU has.
 */
#pragma once
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "ring.h"
#include "tables.h"

extern const volatile bool can_cast; /* the kernel has bpf_rdonly_cast(): Linux 6.2 */

/*
 * The part of a name after `___` is ignored when a program is loaded. It differs from source to
 * source (SOURCE: bpf/Makefile), because bpftool's linker accepts no kernel function twice
 * ("libbpf: do not resolve size on duplicate FUNCs", October 2024, is missing in Debian 12's).
 */
#define OF_SOURCE_(name, source) name##___##source
#define OF_SOURCE(name, source) OF_SOURCE_(name, source)
#define bpf_rdonly_cast OF_SOURCE(bpf_rdonly_cast, SOURCE)
extern void *bpf_rdonly_cast(const void *address, u32 type_id) __ksym __weak;

/* What the running system call moved through a socket: its last transfer. */
struct socket_transfer {
    u64 channel;
    u64 reverse;
    u64 end;
    u32 bytes; /* 0: nothing */
    u16 object_type;
    u16 flags;      /* SYSCALL_WRITE, SYSCALL_EMPTY */
    u32 framed;     /* enum look: whether its bytes are looked at for framing */
    u32 held;       /* HELD() */
    u64 arrived_ns; /* a datagram of an untraced sender: when it arrived; 0: not known */
};

/* A kernel object behind a descriptor. */
struct object {
    u64 inode;
    u64 ino;
    u64 sk; /* its struct sock, if it is a socket */
    u32 dev;
    s32 fd;
    u16 type;
};

/* A futex in shared memory. */
struct shared_word {
    u64 address;
    u64 ino; /* of the memory's file, with dev; 0: it is not shared */
    u64 offset;
    u32 dev;
};

/* A traced thread. */
struct task_state {
    u64 enter_ns; /* 0: not in a system call */
    u64 fault_ns; /* 0: not in a page fault */
    u64 fault_address;
    u64 fault_ip;
    u64 inode; /* the object last looked up; identity of `ino`, `dev`, `object_type`, `sk` */
    u64 sk;    /* its struct sock, if it is a socket */
    u64 ino;
    u64 arg; /* user pointer wanted later: a path, a siginfo, or the pollfd of a poll() of one */
    u32 dev;
    s32 fd; /* -1: the call has no descriptor we look up */
    u16 nr;
    u16 object_type;
    u32 fault_flags;
    u64 contention_ns; /* 0: not waiting for a kernel lock */
    u64 contention_lock;
    u32 contention_flags;
    u32 sleep_told;          /* only while nr is NR_UNSEEN */
    u32 f_mode;              /* of the file last looked up */
    struct shared_word word; /* the last shared word it woke others by, or waited for */
    struct object from;      /* of a call that moves bytes from one descriptor to another */
    u64 run_delay_ns;        /* its total wait for CPUs, when it last left one */
    u64 receiver;            /* socket whose queue got a datagram that was not seen there */
    u64 skb;                 /* the datagram this call sent last */
    u64 received_before;     /* received on its channel before this call's last datagram */
    u64 go_wait;             /* what its goroutine parks for: Go's number plus 1 */
    u64 step_stack;    /* its stack pointer when it began a step of an event loop; 0: in no step */
    u64 queued_stream; /* uvloop: what the present step has given a stream is still to be written */
    u8 has_loop;       /* it has waited by epoll, as threads of event loops do */
    u8 queues_steps;   /* it has appended an asyncio step to a queue */
    u8 runs_timers;    /* it runs the timers that are due in Node */
    u8 driver;         /* what tokio's driver goes through now: enum task_wait, or 0 */
    u8 at_semaphore;   /* the tokio task that it runs waits for a semaphore */
    u8 releases;       /* the tokio task that it runs released a semaphore */
    struct socket_transfer socket;
};

/*
 * task_state.nr of a thread that was marked in the middle of its life and has had no event since.
 * Its next event shows whether it is in a system call (ensure_call_known()). `enter_ns` is the time
 * of the mark.
 */
#define NR_UNSEEN 0xffff

#define MOST_TRACED 65536 /* threads at one time; index 0 stands for none */

/* A thread is traced if it has this mark. */
struct task_mark {
    u64 index;
};

extern struct tasks_map {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct task_mark);
} tasks SEC(".maps");

extern struct states_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, MOST_TRACED);
    __type(key, u32);
    __type(value, struct task_state);
} states SEC(".maps");

/* Elements that dead threads have freed. Those beyond `fresh_state` have never been used. */
extern struct free_states_map {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, MOST_TRACED);
    __type(value, u32);
} free_states SEC(".maps");

/* User space marks the first thread, so it may change these, too. */
struct marks {
    u64 fresh_state;
    u64 generation; /* changes whenever a mark is made or ends */
    u64 pad[6];     /* a cache line of their own: they are read often and written seldom */
};
extern struct marks marks;

#define INDEX_BITS 17
#define INDEX_MASK ((1ULL << INDEX_BITS) - 1)

/*
 * A cache by thread number: one word each, which encodes the thread, the generation for which it is
 * valid, and the index. Reading a thread's storage takes several times as long.
 */
#define KNOWN_TASKS 65536

extern struct known_tasks_map {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, KNOWN_TASKS);
    __type(key, u32);
    __type(value, u64);
} known_tasks SEC(".maps");

/* The thread that a CPU was last seen to have. An interrupting program may change this, but only to
 * what is true of the same thread. */
struct cpu_task {
    u64 word;   /* as in known_tasks */
    u64 task;   /* struct task_struct; may be another thread's than the word, or freed */
    u64 regs;   /* turns an address into a number: verifiers allow no subtraction from addresses */
    u64 pad[5]; /* a cache line each */
};
extern struct cpu_task cpu_tasks[MAX_CPUS];

/* Offset of the user-space registers in a kernel stack; the same for all (task_pt_regs()). */
extern u64 registers_offset;

/* The word of a thread at this generation, without the index. It contains the thread's number and
 * start time, as the number may be another's before on_sched_process_free() runs. */
static __always_inline u64 word_of(struct task_struct *task, u64 generation)
{
    u64 who = (u32)task->pid + task->start_time * 0xd6e8feb86659fd93ULL;
    return (who + generation * 0x9e3779b97f4a7c15ULL) << INDEX_BITS;
}

static __always_inline struct task_state *state_at(u64 mark)
{
    u32 index = mark;
    return index ? bpf_map_lookup_elem(&states, &index) : 0;
}

static __always_inline u64 index_of(struct task_struct *task)
{
    struct task_mark *mark = bpf_task_storage_get(&tasks, task, 0, 0);
    return mark ? mark->index : 0;
}

/* State of a thread; NULL: it is not traced. */
static __always_inline struct task_state *traced_state(struct task_struct *task)
{
    return state_at(index_of(task));
}

/* The word of a thread, which says whether it is traced. */
static __always_inline u64 find_thread_word(struct task_struct *task, u64 generation)
{
    u32 place = task->pid & (KNOWN_TASKS - 1);
    u64 word = word_of(task, generation);
    u64 *of_place = bpf_map_lookup_elem(&known_tasks, &place);
    if (!of_place)
        return word | index_of(task);
    u64 found = *(volatile u64 *)of_place;
    if ((found & ~INDEX_MASK) == word)
        return found;
    word |= index_of(task);
    *(volatile u64 *)of_place = word;
    return word;
}

/* As traced_state(), for the thread that is about to get this CPU. */
static __always_inline struct task_state *traced_next(struct task_struct *next)
{
    u64 generation = *(volatile u64 *)&marks.generation;
    u64 word = find_thread_word(next, generation);
    volatile struct cpu_task *on = &cpu_tasks[this_cpu()];
    on->word = word;
    on->task = (u64)next;
    return state_at(word & INDEX_MASK);
}

/* As traced_state(), for the thread that has this CPU. Some kernels have switches without a hook,
 * so this checks which thread the CPU's entry is about. */
static __always_inline struct task_state *traced_running(struct task_struct *task)
{
    u64 word = *(volatile u64 *)&cpu_tasks[this_cpu()].word;
    if ((word & ~INDEX_MASK) != word_of(task, *(volatile u64 *)&marks.generation))
        return traced_next(task);
    return state_at(word & INDEX_MASK);
}

static __always_inline struct task_state *traced_current(void)
{
    return traced_running(bpf_get_current_task_btf());
}

/*
 * As traced_state(), for the thread that makes a system call. `caller` is set to that thread, for
 * reading its fields only. The registers lie in the thread's kernel stack (which a dead thread no
 * longer has: free_thread_stack()), so they tell whether it is the thread that the CPU was last
 * seen to have. This avoids a call to the kernel, and most of all events are system calls.
 */
static __always_inline struct task_state *traced_caller(struct pt_regs *regs,
                                                        struct task_struct **caller)
{
    if (!can_cast) {
        *caller = bpf_get_current_task_btf();
        return traced_running(*caller);
    }
    u32 type_id = bpf_core_type_id_kernel(struct task_struct);
    volatile struct cpu_task *on = &cpu_tasks[this_cpu()];
    u64 word = on->word;
    struct task_struct *task = bpf_rdonly_cast((const void *)on->task, type_id);
    u64 as_word = word_of(task, *(volatile u64 *)&marks.generation);
    u64 as_regs = (u64)task->stack + *(volatile u64 *)&registers_offset;
    if (as_regs != (u64)regs || (word & ~INDEX_MASK) != as_word) {
        struct task_struct *current = bpf_get_current_task_btf();
        on->regs = (u64)regs;
        *(volatile u64 *)&registers_offset = on->regs - (u64)current->stack;
        *caller = bpf_rdonly_cast(current, type_id);
        return traced_next(current);
    }
    *caller = task;
    return state_at(word & INDEX_MASK);
}

/* To be called when a thread's number has changed, or whether the thread is traced. */
static __always_inline void forget_cpu_tasks(void)
{
    __sync_fetch_and_add(&marks.generation, 1);
}

/* Makes a thread traced, which is in the call `nr` since `enter_ns`. NULL: there is no room. */
static __always_inline struct task_state *begin_tracing(struct task_struct *task, u16 nr,
                                                        u64 enter_ns)
{
    u32 index = 0;
    if (bpf_map_pop_elem(&free_states, &index) != 0)
        index = __sync_fetch_and_add(&marks.fresh_state, 1) + 1;
    struct task_state *state = bpf_map_lookup_elem(&states, &index);
    if (!index || !state) {
        count_refused(TABLE_THREADS);
        return 0;
    }
    __builtin_memset(state, 0, sizeof(*state));
    state->enter_ns = enter_ns;
    state->nr = nr;
    state->fd = -1;
    struct task_mark mark = {.index = index};
    if (!bpf_task_storage_get(&tasks, task, &mark, BPF_LOCAL_STORAGE_GET_F_CREATE)) {
        bpf_map_push_elem(&free_states, &index, 0);
        count_refused(TABLE_THREADS);
        return 0;
    }
    count_made(TABLE_THREADS, 0);
    forget_cpu_tasks();
    return state;
}

/* To be called when no further event of the thread will come. */
static __always_inline void end_tracing(struct task_struct *task)
{
    u32 index = index_of(task);
    if (!index)
        return;
    forget_cpu_tasks();
    count_dropped(TABLE_THREADS, 0);
    bpf_map_push_elem(&free_states, &index, 0);
}
