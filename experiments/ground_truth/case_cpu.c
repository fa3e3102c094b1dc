/* Causes on the CPU: user code, system calls, page faults, interrupts. */
#include "cases.h"
#include "clocks.h"
#include "give_up.h"
#include "kit_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* The part of wall-clock gaps that a thread's CPU clock counts: all except other threads' time. */
static uint64_t counted_ns(uint64_t gaps_ns, uint64_t wall_ns, uint64_t cpu_ns)
{
    uint64_t off_ns = wall_ns > cpu_ns ? wall_ns - cpu_ns : 0;
    return gaps_ns > off_ns ? gaps_ns - off_ns : 0;
}

/* truth[1] is the part of that time that interrupts and the hypervisor may have taken. */
static void user_spin(struct kit_request *request)
{
    uint64_t begin_ns = clock_ns();
    struct spun spun = clock_spin(vary(request->seq, 200000, 600000));
    request->row->truth[0] = spun.cpu_ns;
    request->row->truth[1] = counted_ns(spun.gaps_ns, clock_ns() - begin_ns, spun.cpu_ns);
}

/* ---- in the kernel ---- */

#define ZEROES_MOST (8u << 20)

static int zero_fd;
static char *zeroes;

static void open_zero(void)
{
    zero_fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    if (zero_fd < 0)
        give_up("open", "/dev/zero");
    zeroes = mmap(NULL, ZEROES_MOST, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (zeroes == MAP_FAILED)
        give_up("allocate", "a buffer");
}

/* Measured by the thread's CPU clock: the call never sleeps, but may lose the CPU. */
static void kernel_spin(struct kit_request *request)
{
    size_t bytes = vary(request->seq, ZEROES_MOST / 4, ZEROES_MOST);
    struct usage before = usage_before();
    ssize_t got = read(zero_fd, zeroes, bytes);
    struct usage after = usage_after();
    if (got != (ssize_t)bytes)
        give_up("read", "/dev/zero");
    /* The smaller of the two clocks, because reading the CPU time itself takes time. */
    struct usage between = usage_between(before, after);
    request->row->truth[0] = between.cpu_ns < between.wall_ns ? between.cpu_ns : between.wall_ns;
}

/* ---- page faults ---- */

#define PAGE 4096u
#define PAGES_MOST 512u

static char *pages;

static void map_pages(void)
{
    pages =
        mmap(NULL, PAGES_MOST * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || madvise(pages, PAGES_MOST * PAGE, MADV_NOHUGEPAGE) < 0)
        give_up("map", "pages");
}

/* Batches of pages, so that reading the clock is a negligible part of a batch. */
#define BATCH_PAGES 16u
#define BATCHES_MOST (PAGES_MOST / BATCH_PAGES)

/* The extra time of batches that took over 1.5 times as long as the fastest batch. */
static uint64_t disturbed_ns(const uint64_t *batch_ns, unsigned batches)
{
    uint64_t least_ns = UINT64_MAX, gaps_ns = 0;
    for (unsigned i = 0; i < batches; i++)
        if (batch_ns[i] < least_ns)
            least_ns = batch_ns[i];
    for (unsigned i = 0; i < batches; i++)
        if (batch_ns[i] > least_ns + least_ns / 2)
            gaps_ns += batch_ns[i] - least_ns;
    return gaps_ns;
}

/* Measured by the thread's CPU clock: touching a page that is present takes negligible time. */
static void faults(struct kit_request *request)
{
    unsigned batches = (unsigned)vary(request->seq, PAGES_MOST / 4, PAGES_MOST) / BATCH_PAGES;
    uint64_t batch_ns[BATCHES_MOST];
    volatile char *page = pages;
    struct usage before = usage_before();
    uint64_t last_ns = clock_ns();
    for (unsigned i = 0; i < batches; i++) {
        for (unsigned k = 0; k < BATCH_PAGES; k++, page += PAGE)
            *page = 1;
        uint64_t now_ns = clock_ns();
        batch_ns[i] = now_ns - last_ns;
        last_ns = now_ns;
    }
    struct usage between = usage_between(before, usage_after());
    request->row->truth[0] = between.cpu_ns < between.wall_ns ? between.cpu_ns : between.wall_ns;
    request->row->truth[1] = batches * BATCH_PAGES;
    uint64_t gaps_ns = disturbed_ns(batch_ns, batches);
    request->row->truth[2] = counted_ns(gaps_ns, between.wall_ns, between.cpu_ns);
}

static void drop_pages(struct kit_request *request)
{
    (void)request;
    if (madvise(pages, PAGES_MOST * PAGE, MADV_DONTNEED) < 0)
        give_up("drop", "pages");
}

/* ---- interrupts ---- */

/*
 * Many timers that expire at the same time are one long hard interrupt.  A single timer is an
 * interrupt, too.  The fixed cost of any interrupt (under a hypervisor more than its handler takes)
 * is subtracted.
 */
#define TIMERS 8000
#define PAUSE_US 40000
#define EXPIRY_NS 42000000

static int timers[TIMERS];
static uint64_t expiry_ns, one_timer_ns;

/* Setting the timers takes long, so it is done between requests: they expire in the next one. */
static void set_timers(unsigned count, uint64_t in_ns)
{
    expiry_ns = clock_ns() + in_ns;
    struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(expiry_ns / 1000000000),
                     .tv_nsec = (long)(expiry_ns % 1000000000)},
    };
    for (unsigned i = 0; i < count; i++)
        if (timerfd_settime(timers[i], TFD_TIMER_ABSTIME, &when, NULL) < 0)
            give_up("set", "a timer");
}

/* The gap in a spin that the timers' expiry causes. */
static uint64_t interrupted_ns(void)
{
    if (clock_ns() > expiry_ns - 60000)
        return KIT_UNKNOWN; /* too late to see the expiry */
    clock_spin_until(expiry_ns - 60000);
    struct usage before = usage_before();
    if (before.wall_ns > expiry_ns - 1000)
        return KIT_UNKNOWN;
    struct spun spun = clock_spin(200000);
    struct usage between = usage_between(before, usage_after());
    /* If another thread ran in between, the gap is not only the interrupt's. */
    return between.runnable_ns == 0 ? spun.longest_gap_ns : KIT_UNKNOWN;
}

static unsigned timers_of(unsigned seq)
{
    return (unsigned)vary(seq, TIMERS / 2, TIMERS);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void open_timers(void)
{
    const struct rlimit files = {.rlim_cur = TIMERS + 100, .rlim_max = TIMERS + 100};
    uint64_t taken[51];

    /* Timers interrupt the CPU that set them. */
    kit_pin(0);
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        give_up("open", "that many files");
    for (unsigned i = 0; i < TIMERS; i++)
        if ((timers[i] = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) < 0)
            give_up("create", "a timer");
    for (unsigned i = 0; i < sizeof taken / sizeof *taken; i++) {
        set_timers(1, 300000);
        taken[i] = interrupted_ns();
    }
    qsort(taken, sizeof taken / sizeof *taken, sizeof *taken, by_value);
    one_timer_ns = taken[sizeof taken / sizeof *taken / 2];
    set_timers(timers_of(0), EXPIRY_NS);
}

static void interrupts(struct kit_request *request)
{
    uint64_t taken = interrupted_ns();
    request->row->truth[0] = taken == KIT_UNKNOWN   ? KIT_UNKNOWN
                             : taken > one_timer_ns ? taken - one_timer_ns
                                                    : 0;
    request->row->truth[1] = one_timer_ns;
}

static void set_next_timers(struct kit_request *request)
{
    set_timers(timers_of(request->seq + 1), EXPIRY_NS);
}

const struct kit_case cpu_cases[] = {
    {.name = "user_spin", .truths = {"cpu_ns", "gaps_ns"}, .handle = user_spin},
    {.name = "kernel_spin", .truths = {"kernel_ns"}, .set_up = open_zero, .handle = kernel_spin},
    {.name = "faults",
     .truths = {"faults_ns", "faults", "gaps_ns"},
     .set_up = map_pages,
     .handle = faults,
     .clean = drop_pages},
    {.name = "interrupts",
     .truths = {"interrupts_ns", "one_timer_ns"},
     .set_up = open_timers,
     .handle = interrupts,
     .clean = set_next_timers,
     .pause_us = PAUSE_US},
    {0},
};
