/* A client's process cacher: keeps its objects, gives copies to others, accepts their writes. */
#define _GNU_SOURCE

#include "process.h"
#include "numbers.h"
#include "remote.h"
#include "segment.h"
#include "server.h"

#include <err.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "Usage: process_cacher --dir DIR --node N --process N [--log FILE]\n"
    "                      [--no-invalidation]\n"
    "\n"
    "Started by a client, with which it ends.  Keeps the client's objects in memory\n"
    "that both share, and serves client and consistency cacher by ONC RPC over a\n"
    "Unix socket.\n"
    "\n"
    "  --dir DIR           make the socket and the shared memory's file here\n"
    "  --node N            the number of the node\n"
    "  --process N         the number of the client, 0 to 31\n"
    "  --log FILE          write a line for each request\n"
    "  --no-invalidation   keep copies valid that may be outdated\n"
    "  --help              print this help\n"
    "\n"
    "Exit status: 0 when it was told to end, 1 if it fails, 2 for wrong usage.\n";

static struct segment *segment;

bool_t flex_create_1_svc(flex_creation *creation, flex_created *created, struct svc_req *request)
{
    (void)request;
    memset(created, 0, sizeof *created);
    created->status = create_object(segment, creation->state, &created->oid);
    return TRUE;
}

bool_t flex_adopt_1_svc(flex_oid *oid, flex_place *place, struct svc_req *request)
{
    (void)request;
    place->status = find_slot(segment, oid, &place->slot);
    return TRUE;
}

bool_t flex_give_1_svc(flex_oid *oid, flex_copy *copy, struct svc_req *request)
{
    (void)request;
    memset(copy, 0, sizeof *copy);
    copy->status = give_object(segment, oid->number, copy);
    return TRUE;
}

bool_t flex_take_1_svc(flex_update *update, flex_copy *copy, struct svc_req *request)
{
    (void)request;
    memset(copy, 0, sizeof *copy);
    copy->status = take_write(segment, update, copy);
    return TRUE;
}

int flex_process_1_freeresult(SVCXPRT *transport, xdrproc_t result_type, caddr_t result)
{
    (void)transport;
    xdr_free(result_type, result);
    return TRUE;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"dir", required_argument, NULL, 'd'},
        {"node", required_argument, NULL, 'n'},
        {"process", required_argument, NULL, 'p'},
        {"log", required_argument, NULL, 'l'},
        {"no-invalidation", no_argument, NULL, 'i'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static const struct procedure procedures[] = {{FLEX_CREATE, "create"},
                                                  {FLEX_ADOPT, "adopt"},
                                                  {FLEX_GIVE, "give"},
                                                  {FLEX_TAKE, "take"},
                                                  {0, NULL}};
    struct server server = {.name = "process_cacher",
                            .program = FLEX_PROCESS,
                            .version = FLEX_PROCESS_VERSION,
                            .dispatch = flex_process_1,
                            .procedures = procedures};
    const char *directory = NULL;
    unsigned node = 0, process = 0;
    bool invalidates = true;
    int c;
    while ((c = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (c) {
        case 'd':
            directory = optarg;
            break;
        case 'n':
            node = number_or_exit("process_cacher", "--node", optarg, 1000);
            break;
        case 'p':
            process = number_or_exit("process_cacher", "--process", optarg, FLEX_PROCESSES - 1);
            break;
        case 'l':
            server.log = optarg;
            break;
        case 'i':
            invalidates = false;
            break;
        case 'h':
            fputs(help, stdout);
            return fflush(stdout) == EOF;
        default:
            fputs("Try 'process_cacher --help'.\n", stderr);
            return 2;
        }
    }
    if (optind < argc || !directory) {
        fprintf(stderr, "process_cacher: %s\nTry 'process_cacher --help'.\n",
                directory ? "unexpected argument" : "--dir is missing");
        return 2;
    }
    char path[108], socket_path[108];
    path_of(path, directory, "segment", process);
    path_of(socket_path, directory, "socket", process);
    unlink(path); /* both may be left over from a killed client */
    unlink(socket_path);
    segment = make_segment(path, node, process, invalidates);
    if (!segment)
        err(1, "cannot make %s", path);
    listen_on_path(&server, socket_path);
    int status = serve(&server);
    unlink(path);
    unlink(socket_path);
    return status;
}
