#define _GNU_SOURCE

#include "operations.h"

#include "clocks.h"
#include "object.h"
#include "remote.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE_NS 10000000000ull /* for others to start and create their objects */

struct client {
    const struct plan *plan;
    struct cache cache;
    CLIENT *object_server;
    struct proxy proxy;    /* of the plan's object */
    struct proxy *proxies; /* of the workload's objects, by process and number */
    unsigned short random[3];
    uint32_t writes;
    unsigned long requests;
};

static const char *word_for(flex_status status)
{
    static const char *const words[] = {"ok", "not_found", "full", "unreachable"};
    return words[status <= FLEX_UNREACHABLE ? status : FLEX_UNREACHABLE];
}

/* Logs a request that ends now; false after a message if it failed. */
static bool finish(struct client *client, const char *method, uint64_t begin_ns, flex_status status)
{
    const struct plan *plan = client->plan;
    uint64_t end_ns = now_ns();
    if (plan->log)
        fprintf(plan->log, "%u,%lu,%s,%llu,%llu,%s\n", plan->client, client->requests, method,
                (unsigned long long)begin_ns, (unsigned long long)end_ns, word_for(status));
    client->requests++;
    if (status != FLEX_OK)
        fprintf(stderr, "flexclient: client %u: %s: %s\n", plan->client, method, word_for(status));
    return status == FLEX_OK;
}

/* The state of a client's next write, which identifies the writer to readers. */
static void next_state(struct client *client, flex_state state)
{
    uint32_t identity[] = {client->cache.options.process, ++client->writes};
    memset(state, 0, sizeof(flex_state));
    memcpy(state, identity, sizeof identity);
}

/* Records a read or write for the checker. */
static void remember(const struct client *client, const char *what, const struct proxy *proxy,
                     const flex_state state)
{
    uint32_t identity[2];
    memcpy(identity, state, sizeof identity);
    if (client->plan->history)
        fprintf(client->plan->history, "%u,%s,%u.%u.%u,%u,%u\n", client->cache.options.process,
                what, proxy->oid.node, proxy->oid.process, proxy->oid.number, identity[0],
                identity[1]);
}

/* The arguments and the result of a null call. */
static bool_t nothing(XDR *xdr, ...)
{
    (void)xdr;
    return TRUE;
}

/* The single operations, each one request and one line of the log. */

static bool do_null(struct client *client)
{
    uint64_t begin_ns = now_ns();
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    enum clnt_stat status =
        clnt_call(client->object_server, NULLPROC, nothing, NULL, nothing, NULL, timeout);
    return finish(client, "null", begin_ns, status == RPC_SUCCESS ? FLEX_OK : FLEX_UNREACHABLE);
}

static bool do_invoke(struct client *client)
{
    uint64_t begin_ns = now_ns();
    flex_invocation invocation = {.oid = client->plan->object};
    flex_result result;
    if (flex_invoke_1(&invocation, &result, client->object_server) != RPC_SUCCESS)
        result.status = FLEX_UNREACHABLE;
    return finish(client, "invoke", begin_ns, result.status);
}

static bool do_create_at(struct client *client, struct proxy *proxy)
{
    flex_state state;
    next_state(client, state);
    uint64_t begin_ns = now_ns();
    flex_status status = create(&client->cache, state, proxy);
    if (status == FLEX_OK)
        remember(client, "write", proxy, state);
    return finish(client, "create", begin_ns, status);
}

static bool do_create(struct client *client)
{
    struct proxy proxy;
    return do_create_at(client, &proxy);
}

static bool do_cache_at(struct client *client, struct proxy *proxy)
{
    flex_oid oid = proxy->oid;
    uint64_t begin_ns = now_ns();
    return finish(client, "cache", begin_ns, cache_object(&client->cache, &oid, proxy));
}

static bool do_cache(struct client *client)
{
    return do_cache_at(client, &client->proxy);
}

static bool do_validate_at(struct client *client, struct proxy *proxy)
{
    uint64_t begin_ns = now_ns();
    return finish(client, "validate", begin_ns, validate(&client->cache, proxy));
}

static bool do_validate(struct client *client)
{
    return do_validate_at(client, &client->proxy);
}

static bool do_read_at(struct client *client, struct proxy *proxy)
{
    for (;;) {
        flex_state state;
        uint64_t begin_ns = now_ns();
        if (read_object(&client->cache, proxy, state)) {
            bool fine = finish(client, "read", begin_ns, FLEX_OK);
            remember(client, "read", proxy, state);
            return fine;
        }
        if (!do_validate_at(client, proxy))
            return false;
    }
}

static bool do_read(struct client *client)
{
    return do_read_at(client, &client->proxy);
}

static bool do_write_at(struct client *client, struct proxy *proxy)
{
    flex_state state;
    next_state(client, state);
    uint64_t begin_ns = now_ns();
    flex_status status = write_object(&client->cache, proxy, state);
    if (status == FLEX_OK)
        remember(client, "write", proxy, state);
    return finish(client, proxy->owned ? "write_own" : "write", begin_ns, status);
}

static bool do_write(struct client *client)
{
    return do_write_at(client, &client->proxy);
}

static bool do_invalidate_at(struct client *client, struct proxy *proxy)
{
    uint64_t begin_ns = now_ns();
    invalidate(&client->cache, proxy);
    return finish(client, "invalidate", begin_ns, FLEX_OK);
}

static bool do_invalidate(struct client *client)
{
    return do_invalidate_at(client, &client->proxy);
}

/* Random operations on all objects of all clients. */
static bool do_something(struct client *client)
{
    const struct plan *plan = client->plan;
    unsigned choice = (unsigned)(erand48(client->random) * 100);
    unsigned index = (unsigned)(erand48(client->random) * plan->processes * plan->objects);
    struct proxy *proxy = &client->proxies[index];
    if (choice < 45)
        return do_read_at(client, proxy);
    if (choice < 70 || proxy->owned)
        return do_write_at(client, proxy);
    if (choice < 85)
        return do_validate_at(client, proxy);
    if (choice < 95)
        return do_cache_at(client, proxy);
    return do_invalidate_at(client, proxy);
}

enum needs { OBJECT_SERVER, CACHE, CACHED_OBJECT, ALL_OBJECTS };

static const struct method {
    const char *name;
    enum needs needs;
    bool (*operation)(struct client *);
} methods[] = {
    {"null", OBJECT_SERVER, do_null},
    {"invoke", OBJECT_SERVER, do_invoke},
    {"create", CACHE, do_create},
    {"cache", CACHED_OBJECT, do_cache},
    {"validate", CACHED_OBJECT, do_validate},
    {"read", CACHED_OBJECT, do_read},
    {"write", CACHED_OBJECT, do_write},
    {"invalidate", CACHED_OBJECT, do_invalidate},
    {"workload", ALL_OBJECTS, do_something},
};

static const struct method *find_method(const char *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if (strcmp(methods[i].name, name) == 0)
            return &methods[i];
    return NULL;
}

bool is_method(const char *name)
{
    return find_method(name) != NULL;
}

static bool connect_to_object_server(struct client *client)
{
    const struct plan *plan = client->plan;
    client->object_server = (plan->over_udp ? connect_udp : connect_tcp)(&plan->server, FLEX_OBJECT,
                                                                         FLEX_OBJECT_VERSION);
    if (!client->object_server)
        clnt_pcreateerror("flexclient: cannot reach the object server");
    return client->object_server != NULL;
}

/* Caches an object that another client may not have created yet. */
static bool cache_in_time(struct client *client, const flex_oid *oid, struct proxy *proxy)
{
    uint64_t deadline_ns = now_ns() + PATIENCE_NS;
    flex_status status;
    while ((status = cache_object(&client->cache, oid, proxy)) != FLEX_OK) {
        if (status == FLEX_FULL || now_ns() > deadline_ns || *client->plan->stopped) {
            fprintf(stderr, "flexclient: client %u: cannot cache object %u.%u.%u: %s\n",
                    client->plan->client, oid->node, oid->process, oid->number, word_for(status));
            return false;
        }
        usleep(5000);
    }
    return true;
}

static bool cache_all_objects(struct client *client)
{
    const struct plan *plan = client->plan;
    struct proxy *proxy;
    unsigned own = client->cache.options.process * plan->objects;
    client->proxies = calloc((size_t)plan->processes * plan->objects, sizeof *client->proxies);
    if (!client->proxies)
        return false;
    for (unsigned i = 0; i < plan->objects; i++)
        if (!do_create_at(client, &client->proxies[own + i]))
            return false;
    for (unsigned process = 0; process < plan->processes; process++) {
        for (unsigned i = 0; i < plan->objects; i++) {
            flex_oid oid = {process / plan->clients, process, i};
            proxy = &client->proxies[process * plan->objects + i];
            if (!proxy->owned && !cache_in_time(client, &oid, proxy))
                return false;
        }
    }
    return true;
}

static bool prepare(struct client *client, enum needs needs)
{
    const struct plan *plan = client->plan;
    if (needs == OBJECT_SERVER)
        return connect_to_object_server(client);
    if (needs == CACHED_OBJECT)
        return cache_in_time(client, &plan->object, &client->proxy);
    return needs == CACHE || cache_all_objects(client);
}

int carry_out(const struct plan *plan)
{
    const struct method *method = find_method(plan->method);
    struct client client = {
        .plan = plan,
        .random = {(unsigned short)plan->seed, (unsigned short)plan->cache.process, 1}};
    bool has_cache = method->needs != OBJECT_SERVER;
    if (has_cache && open_cache(&client.cache, &plan->cache) < 0)
        return 1;
    bool fine = prepare(&client, method->needs);
    for (unsigned i = 0; fine && i < plan->requests && !*plan->stopped; i++)
        fine = method->operation(&client);
    bool early = *plan->stopped;
    if (fine && plan->hold && !early) {
        printf("flexclient: client %u is done\n", plan->client);
        fflush(stdout);
        while (!*plan->stopped)
            usleep(10000);
    }
    if (has_cache && close_cache(&client.cache) < 0)
        fine = false;
    if (client.object_server)
        clnt_destroy(client.object_server);
    free(client.proxies);
    return fine && !early ? 0 : 1;
}
