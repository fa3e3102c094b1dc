/*
 * inject: a server that spends known times on known causes, and logs, request by request, the times
 * by its own clocks.
 */
#include "cases.h"
#include "give_up.h"

#include <unistd.h>

static const struct kit_case *const lists[] = {
    cpu_cases,   wait_cases,       hop_cases,  file_cases,
    queue_cases, contention_cases, copy_cases, mixed_cases,
};

static const char help[] =
    "Usage: inject [-n REQUESTS] [-t TRANSPORT] [-d DIR] -l LOG CASE\n"
    "\n"
    "  -n REQUESTS  requests of each client (default: 250)\n"
    "  -t TRANSPORT pipe, unix or tcp (default: pipe)\n"
    "  -d DIR       where the case may create files (default: .)\n"
    "  -l LOG       a line for each request: when its client and its server did what by\n"
    "               CLOCK_MONOTONIC, and what is known of what it cost\n"
    "  -h           print this help and the cases\n";

static const struct kit_case *find(const char *name)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct kit_case *c = lists[i]; c->name; c++)
            if (strcmp(c->name, name) == 0)
                return c;
    fprintf(stderr, "inject: no case has the name %s\n", name);
    exit(UNUSABLE);
}

static void print_help(void)
{
    fputs(help, stdout);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct kit_case *c = lists[i]; c->name; c++)
            printf("  %s\n", c->name);
}

int main(int argc, char **argv)
{
    unsigned requests = 250;
    const char *log = NULL;
    int c;
    while ((c = getopt(argc, argv, "n:t:d:l:h")) != -1) {
        switch (c) {
        case 'n':
            requests = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 't':
            if (!transport_find(optarg, &kit_transport)) {
                fprintf(stderr, "inject: no transport has the name %s\n", optarg);
                return UNUSABLE;
            }
            break;
        case 'd':
            kit_dir = optarg;
            break;
        case 'l':
            log = optarg;
            break;
        case 'h':
            print_help();
            return 0;
        default:
            return UNUSABLE;
        }
    }
    if (optind + 1 != argc || !log || requests == 0 || requests > 1000000) {
        fputs("inject: a log, a case and from 1 to 1000000 requests are required\n", stderr);
        return UNUSABLE;
    }
    kit_run(find(argv[optind]), requests, log);
    return 0;
}
