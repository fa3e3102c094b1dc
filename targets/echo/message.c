#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "echo.h"

#define MOST_BYTES (64u << 20)

bool send_message(int connection, const char *text, size_t bytes)
{
    uint32_t length = bytes;
    struct iovec parts[] = {{&length, sizeof(length)}, {(void *)text, bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    while (message.msg_iovlen > 0) {
        ssize_t sent = sendmsg(connection, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        while (message.msg_iovlen > 0 && (size_t)sent >= message.msg_iov->iov_len) {
            sent -= message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen > 0) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= sent;
        }
    }
    return true;
}

static bool receive_all(int connection, char *bytes, size_t left)
{
    while (left > 0) {
        ssize_t got = recv(connection, bytes, left, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        bytes += got;
        left -= got;
    }
    return true;
}

bool receive_message(int connection, char **text, size_t *bytes)
{
    uint32_t length;
    if (!receive_all(connection, (char *)&length, sizeof(length)) || length > MOST_BYTES)
        return false;
    *text = malloc(length + 1);
    if (!*text || !receive_all(connection, *text, length)) {
        free(*text);
        return false;
    }
    *bytes = length;
    return true;
}
