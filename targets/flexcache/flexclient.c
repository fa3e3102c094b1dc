/* The client: operations on objects, by any number of client processes. */
#define _GNU_SOURCE

#include "numbers.h"
#include "operations.h"

#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] =
    "Usage: flexclient --method METHOD [OPTION...]\n"
    "\n"
    "Works with objects, one request after another.\n"
    "\n"
    "  --method METHOD   null        a call of ONC RPC that does nothing\n"
    "                    invoke      the method of an object that does nothing\n"
    "                    create      an object of the client's own\n"
    "                    cache       a copy of an object of another client\n"
    "                    validate    the copy, whose state is fetched anew\n"
    "                    read        the copy, which is validated before if need be\n"
    "                    write       the object\n"
    "                    invalidate  the copy\n"
    "                    workload    random ones of these on the objects of all\n"
    "  --clients N       so many clients at once, each a process (default: 1)\n"
    "  --requests N      so many of each (default: 10)\n"
    "  --log FILE        write a line for each request\n"
    "\n"
    "For null and invoke:\n"
    "  --server HOST:PORT   the object server (default: 127.0.0.1:7301)\n"
    "  --transport T        udp (the default) or tcp\n"
    "\n"
    "For the others:\n"
    "  --dir DIR            where clients of this node have their sockets and shared\n"
    "                       memory; as given to the node's consistency_cacher\n"
    "  --node N             the number of this node (default: 0)\n"
    "  --nodes HOST:PORT,.. the consistency cachers of the nodes, from 0\n"
    "                       (default: 127.0.0.1:7302)\n"
    "  --first-process N    number the clients from here, 0 to 31; no two on any node\n"
    "                       can have the same (default: node times clients)\n"
    "  --object N.P.I       the object, by node, process and number (default: 0.0.0)\n"
    "  --hold               stay when done, so that others can work with the objects\n"
    "  --cacher-log PREFIX  have each process cacher write a line for each request to\n"
    "                       PREFIX and its number\n"
    "  --no-invalidation    use copies that may be outdated, against causality\n"
    "\n"
    "For workload, on all nodes with the same numbers and of as many clients each:\n"
    "  --processes N        so many clients on all nodes (default: as on this)\n"
    "  --objects N          so many objects of each (default: 4)\n"
    "  --seed N             another choice of operations\n"
    "  --history FILE       write what was read and written, for check_causality.py\n"
    "\n"
    "  --help               print this help\n"
    "\n"
    "Exit status: 0 if all went well, 1 if not or if SIGTERM or SIGINT stopped it before\n"
    "it was done, 2 for wrong usage.\n";

static volatile sig_atomic_t stopped;

static _Noreturn void usage_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("flexclient: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\nTry 'flexclient --help'.\n", stderr);
    va_end(arguments);
    exit(2);
}

static unsigned parse_number(const char *option, const char *text, unsigned least, unsigned most)
{
    unsigned number = number_or_exit("flexclient", option, text, most);
    if (number < least)
        usage_error("%s is less than %u", option, least);
    return number;
}

static struct sockaddr_in parse_address(const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[INET_ADDRSTRLEN];
    const char *colon = strchr(text, ':');
    if (!colon || (size_t)(colon - text) >= sizeof host)
        usage_error("'%s' is not an IPv4 address, a colon and a port", text);
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        usage_error("'%s' is not an IPv4 address, a colon and a port", text);
    address.sin_port = htons((unsigned short)parse_number("the port", colon + 1, 1, 65535));
    return address;
}

static unsigned parse_nodes(char *text, struct sockaddr_in nodes[MOST_NODES])
{
    unsigned count = 0;
    for (char *rest, *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        if (count == MOST_NODES)
            usage_error("there are more than %d nodes", MOST_NODES);
        nodes[count++] = parse_address(one);
    }
    return count;
}

static flex_oid parse_object(const char *text)
{
    flex_oid oid;
    char end;
    if (sscanf(text, "%u.%u.%u%c", &oid.node, &oid.process, &oid.number, &end) != 3)
        usage_error("the object '%s' is not three numbers with points between them", text);
    return oid;
}

/* The path of process_cacher, which is beside this program. */
static const char *path_of_process_cacher(void)
{
    static char path[PATH_MAX];
    static const char name[] = "process_cacher";
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - sizeof name);
    if (length < 0)
        err(1, "cannot read /proc/self/exe");
    path[length] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    return path;
}

/* Paths that are not part of the plan of one client. */
struct paths {
    const char *log, *history, *cacher_log;
};

static void parse_options(int argc, char **argv, struct plan *plan, struct paths *paths)
{
    enum { DIRECTORY = 256, NODE, NODES, FIRST, OBJECT, HOLD, CACHER_LOG, CARELESS, SERVER };
    enum { TRANSPORT = 512, PROCESSES, OBJECTS, SEED, HISTORY };
    static const struct option known[] = {
        {"method", required_argument, NULL, 'm'},
        {"clients", required_argument, NULL, 'c'},
        {"requests", required_argument, NULL, 'n'},
        {"log", required_argument, NULL, 'l'},
        {"server", required_argument, NULL, SERVER},
        {"transport", required_argument, NULL, TRANSPORT},
        {"dir", required_argument, NULL, DIRECTORY},
        {"node", required_argument, NULL, NODE},
        {"nodes", required_argument, NULL, NODES},
        {"first-process", required_argument, NULL, FIRST},
        {"object", required_argument, NULL, OBJECT},
        {"hold", no_argument, NULL, HOLD},
        {"cacher-log", required_argument, NULL, CACHER_LOG},
        {"no-invalidation", no_argument, NULL, CARELESS},
        {"processes", required_argument, NULL, PROCESSES},
        {"objects", required_argument, NULL, OBJECTS},
        {"seed", required_argument, NULL, SEED},
        {"history", required_argument, NULL, HISTORY},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct cache_options *cache = &plan->cache;
    bool has_first = false;
    int c;
    *plan = (struct plan){.clients = 1, .requests = 10, .objects = 4, .over_udp = true};
    plan->server = parse_address("127.0.0.1:7301");
    cache->nodes[0] = parse_address("127.0.0.1:7302");
    cache->node_count = 1;
    cache->invalidates = true;
    while ((c = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (c) {
        case 'm':
            plan->method = optarg;
            if (!is_method(optarg))
                usage_error("there is no method '%s'", optarg);
            break;
        case 'c':
            plan->clients = parse_number("--clients", optarg, 1, FLEX_PROCESSES);
            break;
        case 'n':
            plan->requests = parse_number("--requests", optarg, 0, 1000000000);
            break;
        case 'l':
            paths->log = optarg;
            break;
        case SERVER:
            plan->server = parse_address(optarg);
            break;
        case TRANSPORT:
            plan->over_udp = strcmp(optarg, "udp") == 0;
            if (!plan->over_udp && strcmp(optarg, "tcp") != 0)
                usage_error("the transport '%s' is not udp or tcp", optarg);
            break;
        case DIRECTORY:
            cache->directory = optarg;
            break;
        case NODE:
            cache->node = parse_number("--node", optarg, 0, MOST_NODES - 1);
            break;
        case NODES:
            cache->node_count = parse_nodes(optarg, cache->nodes);
            break;
        case FIRST:
            cache->process = parse_number("--first-process", optarg, 0, FLEX_PROCESSES - 1);
            has_first = true;
            break;
        case OBJECT:
            plan->object = parse_object(optarg);
            break;
        case HOLD:
            plan->hold = true;
            break;
        case CACHER_LOG:
            paths->cacher_log = optarg;
            break;
        case CARELESS:
            cache->invalidates = false;
            break;
        case PROCESSES:
            plan->processes = parse_number("--processes", optarg, 1, FLEX_PROCESSES);
            break;
        case OBJECTS:
            plan->objects = parse_number("--objects", optarg, 1, 16);
            break;
        case SEED:
            plan->seed = parse_number("--seed", optarg, 0, UINT_MAX);
            break;
        case HISTORY:
            paths->history = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            exit(fflush(stdout) == EOF);
        default:
            usage_error("wrong usage");
        }
    }
    if (optind < argc)
        usage_error("unexpected argument '%s'", argv[optind]);
    if (!plan->method)
        usage_error("--method is missing");
    if (!cache->directory && strcmp(plan->method, "null") != 0 &&
        strcmp(plan->method, "invoke") != 0)
        usage_error("--dir is missing");
    if (cache->directory && strlen(cache->directory) > 80)
        usage_error("the name of the directory is too long for that of a socket");
    if (cache->node >= cache->node_count)
        usage_error("--nodes does not have node %u", cache->node);
    if (!has_first)
        cache->process = cache->node * plan->clients;
    if (cache->process + plan->clients > FLEX_PROCESSES)
        usage_error("there are more than %d clients on all nodes", FLEX_PROCESSES);
    if (plan->processes == 0)
        plan->processes = plan->clients;
    if (strcmp(plan->method, "workload") == 0 &&
        (plan->processes % plan->clients != 0 ||
         plan->processes / plan->clients > cache->node_count ||
         cache->process + plan->clients > plan->processes))
        usage_error("--processes does not fit --clients and --nodes");
    cache->program = path_of_process_cacher();
    plan->stopped = &stopped;
}

/* A file to which several processes append whole lines. */
static FILE *open_lines(const char *path, const char *header)
{
    if (!path)
        return NULL;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "a");
    if (!file)
        err(1, "cannot open %s", path);
    setvbuf(file, NULL, _IOLBF, 1 << 12);
    fputs(header, file);
    return file;
}

static void stop(int number)
{
    (void)number;
    stopped = 1;
}

static _Noreturn void become_client(struct plan plan, unsigned number, const struct paths *paths)
{
    char cacher_log[PATH_MAX];
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    plan.client = number;
    plan.cache.process += number;
    if (paths->cacher_log) {
        snprintf(cacher_log, sizeof cacher_log, "%s%u", paths->cacher_log, plan.cache.process);
        plan.cache.log = cacher_log;
    }
    int status = carry_out(&plan);
    if ((plan.log && (ferror(plan.log) || fflush(plan.log) == EOF)) ||
        (plan.history && (ferror(plan.history) || fflush(plan.history) == EOF))) {
        fprintf(stderr, "flexclient: client %u: cannot write a log\n", number);
        status = 1;
    }
    exit(status);
}

int main(int argc, char **argv)
{
    struct plan plan;
    struct paths paths = {0};
    parse_options(argc, argv, &plan, &paths);
    plan.log = open_lines(paths.log, "client,request,method,begin_ns,end_ns,status\n");
    plan.history = open_lines(paths.history, "process,operation,object,writer,serial\n");

    struct sigaction action = {.sa_handler = stop}; /* no SA_RESTART: wait() must be interrupted */
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    pid_t children[FLEX_PROCESSES];
    for (unsigned i = 0; i < plan.clients; i++) {
        children[i] = fork();
        if (children[i] < 0)
            err(1, "cannot start a client"); /* the started clients end with this process */
        if (children[i] == 0)
            become_client(plan, i, &paths);
    }
    bool all_well = true, told = false;
    unsigned left = plan.clients;
    while (left > 0) {
        int status;
        if (stopped && !told) {
            for (unsigned i = 0; i < plan.clients; i++)
                if (children[i] > 0)
                    kill(children[i], SIGTERM);
            told = true;
        }
        pid_t ended = wait(&status);
        if (ended < 0 && errno != EINTR)
            err(1, "wait");
        for (unsigned i = 0; i < plan.clients && ended > 0; i++) {
            if (children[i] != ended)
                continue;
            children[i] = 0;
            left--;
            if (WIFSIGNALED(status))
                fprintf(stderr, "flexclient: client %u was killed by signal %d\n", i,
                        WTERMSIG(status));
            all_well = all_well && status == 0;
        }
    }
    return all_well ? 0 : 1;
}
