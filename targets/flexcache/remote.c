#define _GNU_SOURCE

#include "remote.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

static CLIENT *with_timeout(CLIENT *client)
{
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    if (client)
        clnt_control(client, CLSET_TIMEOUT, (char *)&timeout);
    return client;
}

CLIENT *connect_udp(const struct sockaddr_in *address, rpcprog_t program, rpcvers_t version)
{
    struct sockaddr_in copy = *address;
    int fd = RPC_ANYSOCK;
    struct timeval before_repeating = {.tv_sec = 1};
    return with_timeout(clntudp_create(&copy, program, version, before_repeating, &fd));
}

CLIENT *connect_tcp(const struct sockaddr_in *address, rpcprog_t program, rpcvers_t version)
{
    struct sockaddr_in copy = *address;
    int fd = RPC_ANYSOCK, on = 1;
    CLIENT *client = with_timeout(clnttcp_create(&copy, program, version, &fd, 0, 0));
    if (client)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return client;
}

CLIENT *connect_path(const char *path, rpcprog_t program, rpcvers_t version)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = RPC_ANYSOCK;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    return with_timeout(clntunix_create(&address, program, version, &fd, 0, 0));
}

void path_of(char path[108], const char *directory, const char *what, unsigned process)
{
    snprintf(path, 108, "%s/%s.%u", directory, what, process);
}
