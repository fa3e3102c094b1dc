/*
 * All causes at random, two threads that serve two clients each, and competitors for the CPUs.
 *
 * Each cause is measured by itself.  A thread measures with system calls, too: the causes are
 * chosen so that their categories differ from the measuring's (kernel.vfs and kernel.other).
 */
#include "cases.h"
#include "give_up.h"
#include "kit_io.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { USER, KERNEL, FAULT, SLEEP, LOCK, BLOCK, HELPERS_RUNNABLE, ASKING_RUNNABLE };

enum { PAGE = 4096, PAGES = 256, FAULTS = 48 };
enum { READ_BYTES = 64 * 1024, READ_SLOTS = 256 };
/* Allowed difference of the scheduler's account of waiting from an independent measurement. */
enum { BELIEVED_NS = 100000 };
enum { COMPETITORS = 2, COMPETE_NS = 1000000, REST_NS = 3000000 };

/* A helper of one server thread: it spins for the thread, or holds the thread's mutex. */
struct helper {
    int asked, answered;    /* eventfds */
    pthread_mutex_t *holds; /* NULL: it spins */
    uint64_t amount_ns;
    uint64_t spun_ns, runnable_ns; /* the helper's measurement of its work */
};

/* State of each server thread. */
static struct worker {
    struct helper spinner, holder;
    pthread_mutex_t mutex;
    char *pages;
    char *touched;
    char *read;
} workers[KIT_THREADS];

static int read_fd;
static int competitors[COMPETITORS];

static void signal_event(int fd)
{
    const uint64_t one = 1;
    if (write(fd, &one, sizeof one) != sizeof one)
        give_up("write to", "an eventfd");
}

static void await_event(int fd)
{
    uint64_t count;
    if (read(fd, &count, sizeof count) != sizeof count)
        give_up("read", "an eventfd");
}

static void sleep_for(uint64_t ns)
{
    const struct timespec span = {.tv_nsec = (long)ns};
    nanosleep(&span, NULL);
}

static void *help(void *argument)
{
    struct helper *helper = argument;
    for (;;) {
        struct usage before = usage_before();
        await_event(helper->asked);
        if (helper->holds)
            pthread_mutex_lock(helper->holds);
        else
            helper->spun_ns = clock_spin(helper->amount_ns).cpu_ns;
        helper->runnable_ns = usage_between(before, usage_after()).runnable_ns;
        uint64_t amount_ns = helper->amount_ns;
        signal_event(helper->answered);
        if (helper->holds) {
            sleep_for(amount_ns);
            pthread_mutex_unlock(helper->holds);
        }
    }
    return NULL;
}

static void start_helper(struct helper *helper, pthread_mutex_t *holds)
{
    pthread_t thread;
    helper->holds = holds;
    helper->asked = eventfd(0, EFD_CLOEXEC);
    helper->answered = eventfd(0, EFD_CLOEXEC);
    if (helper->asked < 0 || helper->answered < 0 ||
        pthread_create(&thread, NULL, help, helper) != 0)
        give_up("start", "a helper");
}

static char *map(size_t bytes, int flags)
{
    char *mapped =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (mapped == MAP_FAILED || madvise(mapped, bytes, MADV_NOHUGEPAGE) < 0)
        give_up("map", "pages");
    return mapped;
}

static void prepare_file(void)
{
    char path[PATH_MAX];
    char *data = map(READ_BYTES, MAP_POPULATE);
    snprintf(path, sizeof path, "%s/read", kit_dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int i = 0; i < READ_SLOTS; i++)
        if (fd < 0 || write(fd, data, READ_BYTES) != READ_BYTES)
            give_up("write", path);
    if (fsync(fd) < 0)
        give_up("sync", path);
    close(fd);
    read_fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (read_fd < 0)
        give_up("open", path);
    munmap(data, READ_BYTES);
}

/* Each competitor is pinned to its own CPU, so that neither CPU is without a competitor. */
static void start_competitors(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    for (int i = 0; i < COMPETITORS; i++) {
        competitors[i] = kit_fork();
        if (competitors[i] > 0)
            continue;
        kit_pin((int)(i % cpus));
        for (;;) {
            clock_spin(COMPETE_NS);
            sleep_for(REST_NS);
        }
    }
}

static void set_up(void)
{
    /* Applies to all threads created later: timers expire without slack. */
    prctl(PR_SET_TIMERSLACK, 1);
    prepare_file();
    start_competitors();
    for (unsigned i = 0; i < KIT_THREADS; i++) {
        struct worker *worker = &workers[i];
        pthread_mutex_init(&worker->mutex, NULL);
        worker->pages = map(PAGES * PAGE, 0);
        worker->touched = map(FAULTS * PAGE, 0);
        worker->read = map(READ_BYTES, MAP_POPULATE);
        start_helper(&worker->spinner, NULL);
        start_helper(&worker->holder, &worker->mutex);
    }
}

static void tear_down(void)
{
    kit_kill(competitors, COMPETITORS);
}

static void add(uint64_t *truth, uint64_t ns)
{
    if (*truth != KIT_UNKNOWN)
        *truth += ns;
}

/*
 * The helper works while this thread waits.  Once the helper is woken, the request does not wait
 * for this thread, so this thread's waits for a CPU then do not count.  If the helper was done
 * before this thread began to wait, the two threads' times cannot be separated.
 */
static void ask_helper(struct helper *helper, uint64_t amount_ns, uint64_t *truth)
{
    helper->amount_ns = amount_ns;
    struct usage before = usage_before();
    signal_event(helper->asked);
    struct usage asked = usage_after();
    await_event(helper->answered);
    if (usage_asleep_ns(usage_between(asked, usage_after())) < 1000) {
        truth[USER] = truth[HELPERS_RUNNABLE] = KIT_UNKNOWN;
        return;
    }
    add(&truth[HELPERS_RUNNABLE], helper->runnable_ns);
    add(&truth[ASKING_RUNNABLE], usage_between(before, asked).runnable_ns);
    if (!helper->holds)
        add(&truth[USER], helper->spun_ns);
}

static void lock(struct worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    pthread_mutex_unlock(&worker->mutex);
}

static void populate(struct worker *worker, uint64_t pages)
{
    if (madvise(worker->pages, pages * PAGE, MADV_POPULATE_WRITE) < 0)
        give_up("populate", "pages");
}

static void touch(struct worker *worker)
{
    for (unsigned i = 0; i < FAULTS; i++)
        *(volatile char *)(worker->touched + i * PAGE) = 1;
}

static void read_block(struct worker *worker, unsigned at)
{
    if (pread(read_fd, worker->read, READ_BYTES, (off_t)(at % READ_SLOTS) * READ_BYTES) !=
        READ_BYTES)
        give_up("read", "a file");
}

static bool chosen(uint64_t *random)
{
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*random >> 60) < 5; /* of 16 */
}

static bool near(uint64_t a, uint64_t b)
{
    return a <= b + BELIEVED_NS && b <= a + BELIEVED_NS;
}

/*
 * Runs one cause and adds its time, by its own measure.  The scheduler's account is wrong in this
 * request if it says that a sleep lasted another time than requested, or if a spin missed more or
 * less time than the account says that it waited.
 */
static void cause(unsigned which, struct worker *worker, struct kit_request *request)
{
    uint64_t *truth = request->row->truth;
    unsigned seq = request->seq;
    uint64_t asked_ns = 0;
    struct spun spun = {0};
    struct usage before = usage_before();
    switch (which) {
    case USER:
        spun = clock_spin(vary(seq, 50000, 300000));
        break;
    case KERNEL:
        populate(worker, vary(seq, PAGES / 4, PAGES));
        break;
    case FAULT:
        touch(worker);
        break;
    case SLEEP:
        asked_ns = vary(seq, 100000, 500000);
        sleep_for(asked_ns);
        break;
    case LOCK:
        lock(worker);
        break;
    case BLOCK:
        read_block(worker, (unsigned)vary(seq, 0, READ_SLOTS));
        break;
    }
    struct usage between = usage_between(before, usage_after());
    uint64_t cpu_ns = between.cpu_ns < between.wall_ns ? between.cpu_ns : between.wall_ns;
    bool believed = true;
    switch (which) {
    case USER:
        add(&truth[USER], spun.cpu_ns);
        believed = near(spun.gaps_ns, between.runnable_ns);
        break;
    case SLEEP:
        add(&truth[SLEEP], asked_ns);
        believed = near(usage_asleep_ns(between), asked_ns);
        break;
    default:
        add(&truth[which], which == KERNEL || which == FAULT ? cpu_ns : usage_asleep_ns(between));
    }
    if (!believed)
        truth[HELPERS_RUNNABLE] = KIT_UNKNOWN;
}

static void mix(struct kit_request *request)
{
    struct worker *worker = &workers[request->thread];
    uint64_t random =
        (request->seq + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)(uintptr_t)request->row;

    memset(request->row->truth, 0, sizeof request->row->truth);
    for (unsigned which = USER; which <= BLOCK; which++) {
        if (!chosen(&random))
            continue;
        if (which == LOCK)
            ask_helper(&worker->holder, vary(request->seq, 200000, 600000), request->row->truth);
        cause(which, worker, request);
    }
    if (chosen(&random))
        ask_helper(&worker->spinner, vary(request->seq, 50000, 200000), request->row->truth);
}

static void drop_pages(struct kit_request *request)
{
    struct worker *worker = &workers[request->thread];
    if (madvise(worker->pages, PAGES * PAGE, MADV_DONTNEED) < 0 ||
        madvise(worker->touched, FAULTS * PAGE, MADV_DONTNEED) < 0)
        give_up("drop", "pages");
}

const struct kit_case mixed_cases[] = {
    {.name = "mixed",
     .truths = {"user_ns", "kernel_ns", "faults_ns", "sleep_ns", "lock_ns", "block_ns",
                "helpers_runnable_ns", "asking_runnable_ns"},
     .clients = KIT_CLIENTS,
     .threads = KIT_THREADS,
     .watch = true,
     .set_up = set_up,
     .handle = mix,
     .clean = drop_pages,
     .tear_down = tear_down},
    {0},
};
