/* The consistency cacher of a node: asks the node's process cachers about their objects. */
#define _GNU_SOURCE

#include "consistency.h"
#include "process.h"
#include "numbers.h"
#include "remote.h"
#include "server.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "Usage: consistency_cacher --dir DIR [--port N] [--log FILE]\n"
    "\n"
    "Serves the objects of a node's clients to clients anywhere, by ONC RPC over UDP\n"
    "and TCP: each request is passed on to the process cacher of the client that\n"
    "created the object.\n"
    "\n"
    "  --dir DIR    where the node's process cachers have their sockets\n"
    "  --port N     the port of both (default: 7302); rpcbind is not used\n"
    "  --log FILE   write a line for each request\n"
    "  --help       print this help\n"
    "\n"
    "Says \"consistency_cacher: ready\" once it listens; ends on SIGTERM or SIGINT.\n"
    "Exit status: 0 when it was told to end, 1 if it fails, 2 for wrong usage.\n";

static const char *directory;
static CLIENT *cachers[FLEX_PROCESSES];

/* NULL if there is no such process cacher. */
static CLIENT *cacher_of(unsigned process)
{
    char path[108];
    if (process >= FLEX_PROCESSES)
        return NULL;
    if (!cachers[process]) {
        path_of(path, directory, "socket", process);
        cachers[process] = connect_path(path, FLEX_PROCESS, FLEX_PROCESS_VERSION);
    }
    return cachers[process];
}

/* The process cacher may have ended and been replaced: the next request finds the new one. */
static void forget_cacher(unsigned process)
{
    clnt_destroy(cachers[process]);
    cachers[process] = NULL;
}

bool_t flex_fetch_1_svc(flex_oid *oid, flex_copy *copy, struct svc_req *request)
{
    (void)request;
    memset(copy, 0, sizeof *copy);
    for (int tries = 0; tries < 2; tries++) {
        CLIENT *cacher = cacher_of(oid->process);
        if (!cacher)
            break;
        if (flex_give_1(oid, copy, cacher) == RPC_SUCCESS)
            return TRUE;
        forget_cacher(oid->process);
    }
    copy->status = FLEX_UNREACHABLE;
    return TRUE;
}

/* Does not retry, because the write may have been done. */
bool_t flex_write_1_svc(flex_update *update, flex_copy *copy, struct svc_req *request)
{
    (void)request;
    memset(copy, 0, sizeof *copy);
    CLIENT *cacher = cacher_of(update->oid.process);
    if (cacher && flex_take_1(update, copy, cacher) == RPC_SUCCESS)
        return TRUE;
    if (cacher)
        forget_cacher(update->oid.process);
    copy->status = FLEX_UNREACHABLE;
    return TRUE;
}

int flex_consistency_1_freeresult(SVCXPRT *transport, xdrproc_t result_type, caddr_t result)
{
    (void)transport;
    xdr_free(result_type, result);
    return TRUE;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"dir", required_argument, NULL, 'd'},
        {"port", required_argument, NULL, 'p'},
        {"log", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static const struct procedure procedures[] = {
        {FLEX_FETCH, "fetch"}, {FLEX_WRITE, "write"}, {0, NULL}};
    struct server server = {.name = "consistency_cacher",
                            .program = FLEX_CONSISTENCY,
                            .version = FLEX_CONSISTENCY_VERSION,
                            .dispatch = flex_consistency_1,
                            .procedures = procedures};
    unsigned port = 7302;
    int c;
    while ((c = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (c) {
        case 'd':
            directory = optarg;
            break;
        case 'p':
            port = number_or_exit("consistency_cacher", "--port", optarg, 65535);
            break;
        case 'l':
            server.log = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return fflush(stdout) == EOF;
        default:
            fputs("Try 'consistency_cacher --help'.\n", stderr);
            return 2;
        }
    }
    if (optind < argc || !directory) {
        fprintf(stderr, "consistency_cacher: %s\nTry 'consistency_cacher --help'.\n",
                directory ? "unexpected argument" : "--dir is missing");
        return 2;
    }
    listen_on_port(&server, (unsigned short)port);
    return serve(&server);
}
