#include "clocks.h"

#include "give_up.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Reading the clock takes about 40 ns; an interrupt takes more than 1 us. */
#define GAP_NS 400

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t clock_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

struct spun clock_spin(uint64_t user_ns)
{
    struct spun spun = {0};
    uint64_t begin_cpu = read_clock(CLOCK_THREAD_CPUTIME_ID), last = clock_ns(), spent = 0;
    while (spent < user_ns) {
        uint64_t now = clock_ns(), passed = now - last;
        if (passed < GAP_NS) {
            spent += passed;
        } else {
            spun.gaps_ns += passed;
            if (passed > spun.longest_gap_ns)
                spun.longest_gap_ns = passed;
        }
        last = now;
    }
    spun.cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID) - begin_cpu;
    return spun;
}

void clock_spin_until(uint64_t until_ns)
{
    while (clock_ns() < until_ns)
        ;
}

/* The second number of schedstat: ns spent waiting on a run queue. */
static uint64_t read_run_delay(void)
{
    static __thread int fd = -1;
    char text[96];
    uint64_t delay = 0;

    if (fd < 0)
        fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    if (length <= 0)
        give_up("read", "/proc/thread-self/schedstat");
    text[length] = '\0';
    /* Parsed by hand, because this runs within requests. */
    const char *second = strchr(text, ' ');
    if (!second)
        give_up("understand", "/proc/thread-self/schedstat");
    for (second++; *second >= '0' && *second <= '9'; second++)
        delay = delay * 10 + (uint64_t)(*second - '0');
    return delay;
}

static uint64_t read_sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_nvcsw;
}

struct usage usage_before(void)
{
    struct usage usage;
    usage.sleeps = read_sleeps();
    usage.runnable_ns = read_run_delay();
    usage.cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
    usage.wall_ns = clock_ns();
    return usage;
}

struct usage usage_after(void)
{
    struct usage usage;
    usage.wall_ns = clock_ns();
    usage.cpu_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
    usage.runnable_ns = read_run_delay();
    usage.sleeps = read_sleeps();
    return usage;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

struct usage usage_between(struct usage before, struct usage after)
{
    return (struct usage){
        .wall_ns = after.wall_ns - before.wall_ns,
        .cpu_ns = after.cpu_ns - before.cpu_ns,
        .runnable_ns = after.runnable_ns - before.runnable_ns,
        .sleeps = after.sleeps - before.sleeps,
    };
}

uint64_t usage_asleep_ns(struct usage between)
{
    return between.sleeps ? less(between.wall_ns, between.cpu_ns + between.runnable_ns) : 0;
}

uint64_t usage_awake_ns(struct usage between)
{
    return less(between.wall_ns, between.runnable_ns);
}
