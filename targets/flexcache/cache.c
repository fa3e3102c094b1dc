#define _GNU_SOURCE

#include "cache.h"

#include "consistency.h"
#include "process.h"
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int complain(const char *what, const char *why)
{
    fprintf(stderr, "flexclient: %s: %s\n", what, why);
    return -1;
}

/* Runs in the child.  The child's standard output tells the parent that it is ready. */
static _Noreturn void become_process_cacher(const struct cache_options *options, int ready,
                                            pid_t parent)
{
    char node[16], process[16];
    const char *arguments[11] = {options->program, "--dir", options->directory, "--node", node,
                                 "--process",      process};
    int count = 7;
    sigset_t none;
    snprintf(node, sizeof node, "%u", options->node);
    snprintf(process, sizeof process, "%u", options->process);
    if (options->log) {
        arguments[count++] = "--log";
        arguments[count++] = options->log;
    }
    if (!options->invalidates)
        arguments[count++] = "--no-invalidation";
    /* Its own process group: Ctrl-C goes to the client, which then ends this process. */
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) /* the parent had already ended */
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(ready, STDOUT_FILENO);
    execv(options->program, (char **)arguments);
    fprintf(stderr, "flexclient: cannot run %s: %s\n", options->program, strerror(errno));
    _exit(127);
}

static int start_process_cacher(struct cache *cache)
{
    int ready[2];
    char line[64];
    if (pipe2(ready, O_CLOEXEC) < 0)
        return complain("pipe", strerror(errno));
    pid_t parent = getpid();
    cache->pid = fork();
    if (cache->pid == 0)
        become_process_cacher(&cache->options, ready[1], parent);
    close(ready[1]);
    ssize_t got;
    do
        got = cache->pid < 0 ? 0 : read(ready[0], line, sizeof line);
    while (got < 0 && errno == EINTR);
    close(ready[0]);
    if (got > 0)
        return 0;
    if (cache->pid > 0)
        waitpid(cache->pid, NULL, 0);
    return complain("the process cacher", "it did not start");
}

int open_cache(struct cache *cache, const struct cache_options *options)
{
    char path[108];
    *cache = (struct cache){.options = *options};
    if (start_process_cacher(cache) < 0)
        return -1;
    path_of(path, options->directory, "segment", options->process);
    cache->segment = open_segment(path);
    path_of(path, options->directory, "socket", options->process);
    cache->process_cacher = connect_path(path, FLEX_PROCESS, FLEX_PROCESS_VERSION);
    if (cache->segment && cache->process_cacher)
        return 0;
    close_cache(cache);
    return complain("the process cacher", "it cannot be reached");
}

int close_cache(struct cache *cache)
{
    int status;
    if (cache->process_cacher)
        clnt_destroy(cache->process_cacher);
    for (unsigned i = 0; i < MOST_NODES; i++)
        if (cache->consistency_cachers[i])
            clnt_destroy(cache->consistency_cachers[i]);
    if (cache->segment)
        munmap(cache->segment, sizeof *cache->segment);
    kill(cache->pid, SIGTERM);
    while (waitpid(cache->pid, &status, 0) < 0)
        if (errno != EINTR)
            return complain("cannot wait for the process cacher", strerror(errno));
    return status == 0 ? 0 : complain("the process cacher", "it did not end well");
}

static CLIENT *consistency_cacher_of(struct cache *cache, unsigned node)
{
    if (node >= cache->options.node_count)
        return NULL;
    if (!cache->consistency_cachers[node])
        cache->consistency_cachers[node] =
            connect_tcp(&cache->options.nodes[node], FLEX_CONSISTENCY, FLEX_CONSISTENCY_VERSION);
    return cache->consistency_cachers[node];
}

flex_status create(struct cache *cache, const flex_state state, struct proxy *proxy)
{
    flex_creation creation;
    flex_created created;
    memcpy(creation.state, state, sizeof creation.state);
    if (flex_create_1(&creation, &created, cache->process_cacher) != RPC_SUCCESS)
        return FLEX_UNREACHABLE;
    *proxy = (struct proxy){.oid = created.oid, .owned = true};
    return created.status;
}

/* Fetches the object from its home into a slot; repeats if something else arrived meanwhile. */
static flex_status fetch(struct cache *cache, const flex_oid *oid, unsigned slot)
{
    flex_oid copy_of_oid = *oid;
    flex_copy copy;
    uint64_t arrivals;
    do {
        arrivals = arrivals_of(cache->segment);
        CLIENT *home = consistency_cacher_of(cache, oid->node);
        if (!home || flex_fetch_1(&copy_of_oid, &copy, home) != RPC_SUCCESS)
            return FLEX_UNREACHABLE;
        if (copy.status != FLEX_OK)
            return copy.status;
    } while (!install_copy(cache->segment, slot, &copy, arrivals));
    return FLEX_OK;
}

flex_status cache_object(struct cache *cache, const flex_oid *oid, struct proxy *proxy)
{
    flex_oid copy_of_oid = *oid;
    flex_place place;
    *proxy = (struct proxy){.oid = *oid, .owned = oid->process == cache->options.process};
    if (proxy->owned)
        return FLEX_OK;
    if (flex_adopt_1(&copy_of_oid, &place, cache->process_cacher) != RPC_SUCCESS)
        return FLEX_UNREACHABLE;
    proxy->slot = place.slot;
    return place.status == FLEX_OK ? fetch(cache, oid, place.slot) : place.status;
}

flex_status validate(struct cache *cache, const struct proxy *proxy)
{
    return proxy->owned ? FLEX_OK : fetch(cache, &proxy->oid, proxy->slot);
}

flex_status write_object(struct cache *cache, const struct proxy *proxy, const flex_state state)
{
    flex_update update = {.oid = proxy->oid};
    flex_copy copy;
    if (proxy->owned)
        return write_owned(cache->segment, proxy->oid.number, state);
    uint64_t arrivals = arrivals_of(cache->segment);
    memcpy(update.state, state, sizeof update.state);
    begin_write(cache->segment, update.clock);
    CLIENT *home = consistency_cacher_of(cache, proxy->oid.node);
    if (!home || flex_write_1(&update, &copy, home) != RPC_SUCCESS)
        return FLEX_UNREACHABLE;
    if (copy.status != FLEX_OK)
        return copy.status;
    /* If something else arrived meanwhile, the written state cannot serve as a copy. */
    if (!install_copy(cache->segment, proxy->slot, &copy, arrivals))
        learn_only(cache->segment, proxy->slot, &copy);
    return FLEX_OK;
}

bool read_object(struct cache *cache, const struct proxy *proxy, flex_state state)
{
    return proxy->owned ? read_owned(cache->segment, proxy->oid.number, state)
                        : read_copy(cache->segment, proxy->slot, state);
}

void invalidate(struct cache *cache, const struct proxy *proxy)
{
    invalidate_copy(cache->segment, proxy->slot);
}
