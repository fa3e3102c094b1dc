/*
 * Waits for a file system and its device.  The truth is the time that the thread slept in the call,
 * by its own account: wall time less CPU time less time spent runnable.
 */
#include "cases.h"
#include "clocks.h"
#include "give_up.h"
#include "kit_io.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static void in_dir(char path[PATH_MAX], const char *name)
{
    snprintf(path, PATH_MAX, "%s/%s", kit_dir, name);
}

static int open_file(const char *name, int flags)
{
    char path[PATH_MAX];
    in_dir(path, name);
    int fd = open(path, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        give_up("open", path);
    return fd;
}

/* ---- fsync ---- */

enum { BLOCK = 4096, SYNCED_BLOCKS = 4 };

static int synced_fd;

static void open_synced(void)
{
    synced_fd = open_file("synced", O_RDWR | O_CREAT | O_TRUNC);
}

static void sync_some(struct kit_request *request)
{
    static char data[SYNCED_BLOCKS * BLOCK];
    /* Appends, so that there is metadata to commit, too. */
    if (write(synced_fd, data, sizeof data) != sizeof data)
        give_up("write", "a file");
    struct usage before = usage_before();
    int result = fsync(synced_fd);
    struct usage between = usage_between(before, usage_after());
    if (result < 0)
        give_up("sync", "a file");
    request->row->truth[0] = usage_asleep_ns(between);
    request->row->truth[1] = between.wall_ns;
}

/* ---- more dirty pages than the kernel wants ---- */

/* A pause by the kernel is a tick or more; shorter sleeps have other causes. */
enum { DIRTIED = 1024 * 1024, DIRTIED_SLOTS = 32, LEAST_PAUSE_NS = 1000000 };

static int dirtied_fd;

static void open_dirtied(void)
{
    dirtied_fd = open_file("dirtied", O_RDWR | O_CREAT | O_TRUNC);
}

static void dirty_some(struct kit_request *request)
{
    static char data[DIRTIED];
    off_t at = (off_t)(request->seq % DIRTIED_SLOTS) * DIRTIED;
    struct usage before = usage_before();
    ssize_t put = pwrite(dirtied_fd, data, sizeof data, at);
    struct usage between = usage_between(before, usage_after());
    if (put != sizeof data)
        give_up("write", "a file");
    uint64_t asleep_ns = usage_asleep_ns(between);
    request->row->truth[0] = asleep_ns < LEAST_PAUSE_NS ? 0 : asleep_ns;
    request->row->truth[1] = between.wall_ns;
}

/* ---- a journal kept busy by another process ---- */

static int writer;

/* Makes many small changes of metadata, commits them, and repeats for ever. */
static _Noreturn void keep_journal_busy(void)
{
    char path[PATH_MAX], name[32];
    in_dir(path, "shared/writer");
    mkdir(path, 0700);
    for (unsigned round = 0;; round++) {
        int fd = -1;
        for (unsigned i = 0; i < 32; i++) {
            snprintf(name, sizeof name, "shared/writer/%u", i);
            if (round % 2) {
                in_dir(path, name);
                unlink(path);
                continue;
            }
            if (fd >= 0)
                close(fd);
            fd = open_file(name, O_RDWR | O_CREAT | O_TRUNC);
            if (write(fd, path, 1000) != 1000)
                give_up("write", path);
        }
        if (fd < 0)
            fd = open_file("shared/writer", O_RDONLY | O_DIRECTORY);
        fsync(fd);
        close(fd);
    }
}

static void start_writer(void)
{
    char path[PATH_MAX];
    /*
     * Separate directories, so that the two processes do not wait for each other's lock.  Both
     * are below a directory other than the root, so that their inodes come from the same block
     * group, and creating a file changes blocks that the other process's fsync is writing.
     */
    in_dir(path, "shared");
    mkdir(path, 0700);
    in_dir(path, "shared/server");
    mkdir(path, 0700);
    writer = kit_fork();
    if (writer == 0)
        keep_journal_busy();
}

static void end_writer(void)
{
    kit_kill(&writer, 1);
}

enum { CREATED = 16 };

static void create(struct kit_request *request)
{
    char name[48];
    int fds[CREATED];
    struct usage before = usage_before();
    for (unsigned i = 0; i < CREATED; i++) {
        snprintf(name, sizeof name, "shared/server/%u.%u", request->seq, i);
        fds[i] = open_file(name, O_WRONLY | O_CREAT | O_TRUNC);
    }
    struct usage between = usage_between(before, usage_after());
    for (unsigned i = 0; i < CREATED; i++)
        close(fds[i]);
    request->row->truth[0] = usage_asleep_ns(between);
    request->row->truth[1] = between.wall_ns;
}

static void remove_created(struct kit_request *request)
{
    char path[PATH_MAX], name[48];
    for (unsigned i = 0; i < CREATED; i++) {
        snprintf(name, sizeof name, "shared/server/%u.%u", request->seq, i);
        in_dir(path, name);
        unlink(path);
    }
}

/* ---- reads that the page cache cannot serve ---- */

enum { READ_BYTES = 64 * 1024, READ_SLOTS = 256 };

static int read_fd;
static char *read_buffer;

static void write_file_to_read(int flags)
{
    if (posix_memalign((void **)&read_buffer, BLOCK, READ_BYTES) != 0)
        give_up("allocate", "a buffer");
    memset(read_buffer, 7, READ_BYTES);
    int fd = open_file("read", O_WRONLY | O_CREAT | O_TRUNC);
    for (int i = 0; i < READ_SLOTS; i++)
        if (write(fd, read_buffer, READ_BYTES) != READ_BYTES)
            give_up("write", "a file");
    if (fsync(fd) < 0)
        give_up("sync", "a file");
    close(fd);
    read_fd = open_file("read", O_RDONLY | flags);
    posix_fadvise(read_fd, 0, 0, POSIX_FADV_RANDOM);
    posix_fadvise(read_fd, 0, 0, POSIX_FADV_DONTNEED);
}

static void prepare_dropped(void)
{
    write_file_to_read(0);
}

static void prepare_direct(void)
{
    write_file_to_read(O_DIRECT);
}

static void read_some(struct kit_request *request)
{
    off_t at = (off_t)vary(request->seq, 0, READ_SLOTS - 1) * READ_BYTES;
    struct usage before = usage_before();
    ssize_t got = pread(read_fd, read_buffer, READ_BYTES, at);
    struct usage between = usage_between(before, usage_after());
    if (got != READ_BYTES)
        give_up("read", "a file");
    request->row->truth[0] = usage_asleep_ns(between);
    request->row->truth[1] = between.wall_ns;
}

static void drop_read(struct kit_request *request)
{
    (void)request;
    posix_fadvise(read_fd, 0, 0, POSIX_FADV_DONTNEED);
}

const struct kit_case file_cases[] = {
    {.name = "fsync",
     .truths = {"asleep_ns", "wall_ns"},
     .set_up = open_synced,
     .handle = sync_some},
    {.name = "throttled",
     .truths = {"asleep_ns", "wall_ns"},
     .set_up = open_dirtied,
     .handle = dirty_some},
    {.name = "openat_spike",
     .truths = {"asleep_ns", "wall_ns"},
     .set_up = start_writer,
     .handle = create,
     .clean = remove_created,
     .tear_down = end_writer},
    {.name = "read_dropped",
     .truths = {"asleep_ns", "wall_ns"},
     .set_up = prepare_dropped,
     .handle = read_some,
     .clean = drop_read},
    {.name = "read_direct",
     .truths = {"asleep_ns", "wall_ns"},
     .set_up = prepare_direct,
     .handle = read_some},
    {0},
};
