/* The object server: objects that are invoked where they are, through ONC RPC. */
#define _GNU_SOURCE

#include "numbers.h"
#include "object.h"
#include "server.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define OBJECTS 1024

static const char help[] =
    "Usage: objserver [--port N] [--log FILE]\n"
    "\n"
    "Serves 1024 objects, numbers that can be added to, by ONC RPC over UDP and TCP.\n"
    "\n"
    "  --port N     the port of both (default: 7301); rpcbind is not used\n"
    "  --log FILE   write a line for each request\n"
    "  --help       print this help\n"
    "\n"
    "Says \"objserver: ready\" once it listens; ends on SIGTERM or SIGINT.\n"
    "Exit status: 0 when it was told to end, 1 if it fails, 2 for wrong usage.\n";

static quad_t values[OBJECTS];

bool_t flex_invoke_1_svc(flex_invocation *invocation, flex_result *result, struct svc_req *request)
{
    (void)request;
    *result = (flex_result){.status = FLEX_NOT_FOUND};
    if (invocation->oid.number >= OBJECTS || invocation->method > 1)
        return TRUE;
    quad_t *value = &values[invocation->oid.number];
    if (invocation->method == 1)
        *value = (quad_t)((u_quad_t)*value + (u_quad_t)invocation->argument);
    *result = (flex_result){.status = FLEX_OK, .value = *value};
    return TRUE;
}

int flex_object_1_freeresult(SVCXPRT *transport, xdrproc_t result_type, caddr_t result)
{
    (void)transport;
    xdr_free(result_type, result);
    return TRUE;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {
        {"port", required_argument, NULL, 'p'},
        {"log", required_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static const struct procedure procedures[] = {{FLEX_INVOKE, "invoke"}, {0, NULL}};
    struct server server = {.name = "objserver",
                            .program = FLEX_OBJECT,
                            .version = FLEX_OBJECT_VERSION,
                            .dispatch = flex_object_1,
                            .procedures = procedures};
    unsigned port = 7301;
    int c;
    while ((c = getopt_long(argc, argv, "h", known, NULL)) != -1) {
        switch (c) {
        case 'p':
            port = number_or_exit("objserver", "--port", optarg, 65535);
            break;
        case 'l':
            server.log = optarg;
            break;
        case 'h':
            fputs(help, stdout);
            return fflush(stdout) == EOF;
        default:
            fputs("Try 'objserver --help'.\n", stderr);
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "objserver: unexpected argument '%s'\n", argv[optind]);
        return 2;
    }
    listen_on_port(&server, (unsigned short)port);
    return serve(&server);
}
