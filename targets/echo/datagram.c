#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "echo.h"

#define MOST_BYTES 65536
#define MOST_BATCH 64

/* Room for a batch of datagrams and their senders' addresses. */
struct batch {
    struct mmsghdr headers[MOST_BATCH];
    struct iovec parts[MOST_BATCH];
    struct sockaddr_un from[MOST_BATCH];
    char *text[MOST_BATCH];
};

static struct batch *new_batch(int size)
{
    struct batch *batch = calloc(1, sizeof(*batch));
    for (int i = 0; batch && i < size; i++) {
        batch->text[i] = malloc(MOST_BYTES);
        if (!batch->text[i])
            return NULL;
    }
    return batch;
}

static void make_room(struct batch *batch, int size)
{
    for (int i = 0; i < size; i++) {
        batch->parts[i] = (struct iovec){batch->text[i], MOST_BYTES};
        batch->headers[i].msg_hdr = (struct msghdr){.msg_name = &batch->from[i],
                                                    .msg_namelen = sizeof(batch->from[i]),
                                                    .msg_iov = &batch->parts[i],
                                                    .msg_iovlen = 1};
    }
}

int serve_datagrams(int server, int batch_size, int lose_every)
{
    struct batch *batch = new_batch(batch_size);
    if (!batch)
        return 1;
    for (int served = 0;;) {
        make_room(batch, batch_size);
        int came = 1;
        if (batch_size == 1) {
            ssize_t bytes = recvmsg(server, &batch->headers[0].msg_hdr, 0);
            if (bytes < 0)
                return 1;
            batch->headers[0].msg_len = bytes;
        } else {
            came = recvmmsg(server, batch->headers, batch_size, MSG_WAITFORONE, NULL);
        }
        if (came < 0)
            return 1;
        if (lose_every > 0 && ++served % lose_every == 0)
            continue;
        for (int i = 0; i < came; i++)
            batch->parts[i].iov_len = batch->headers[i].msg_len;
        if (batch_size == 1) {
            if (sendmsg(server, &batch->headers[0].msg_hdr, MSG_NOSIGNAL) < 0)
                return errno != EPIPE;
            continue;
        }
        for (int sent = 0; sent < came;) {
            int went = sendmmsg(server, batch->headers + sent, came - sent, MSG_NOSIGNAL);
            if (went <= 0)
                return 1;
            sent += went;
        }
    }
}

/* One try: sends a whole batch and receives as many datagrams; returns how many are right. */
static int ask_once(int client, const struct sockaddr *to, socklen_t to_bytes, char *text,
                    size_t bytes, int batch_size)
{
    static char echo[MOST_BYTES];
    if (batch_size == 1) {
        if (sendto(client, text, bytes, MSG_NOSIGNAL, to, to_bytes) < 0)
            return -1;
    } else {
        struct mmsghdr headers[MOST_BATCH] = {0};
        struct iovec part = {text, bytes};
        for (int i = 0; i < batch_size; i++)
            headers[i].msg_hdr = (struct msghdr){
                .msg_name = (void *)to, .msg_namelen = to_bytes, .msg_iov = &part, .msg_iovlen = 1};
        if (sendmmsg(client, headers, batch_size, MSG_NOSIGNAL) != batch_size)
            return -1;
    }
    int right = 0;
    for (int i = 0; i < batch_size; i++) {
        ssize_t got = recv(client, echo, sizeof(echo), 0);
        if (got < 0)
            return errno == EAGAIN ? right : -1;
        right += (size_t)got == bytes && memcmp(echo, text, bytes) == 0;
    }
    return right;
}

int ask_datagrams(int client, const struct sockaddr *to, socklen_t to_bytes, int requests,
                  size_t bytes, int batch_size)
{
    struct timeval patience = {.tv_usec = 300000};
    char *text = malloc(bytes + 1);
    if (!text || setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0)
        return 0;
    int answered = 0;
    for (int request = 0; request < requests; request++) {
        memset(text, 'a' + request % 26, bytes);
        int right = 0;
        while (right == 0)
            right = ask_once(client, to, to_bytes, text, bytes, batch_size);
        if (right < 0)
            break;
        answered += right == batch_size;
    }
    free(text);
    return answered;
}
