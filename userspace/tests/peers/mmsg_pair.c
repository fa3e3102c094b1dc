// A client that pipelines two HTTP/1.1 requests in one sendmmsg(), split where no message ends, and
// a server that reads with recvmmsg() into buffers smaller than a request and answers both with one
// sendmmsg(). Usage: mmsg_pair COUNT (the number of requests, sent two at a time)
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUEST "GET /%d HTTP/1.1\r\nHost: here\r\n\r\n"
#define ANSWER "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

static void need(int holds, const char *what)
{
    if (!holds) {
        perror(what);
        exit(1);
    }
}

// Sends all bytes, in two messages of two buffers each.
static void send_cut(int fd, const char *text, size_t bytes)
{
    size_t cuts[] = {0, 7, bytes / 2 + 3, bytes - 5, bytes};
    struct iovec buffers[4];
    for (int i = 0; i < 4; i++)
        buffers[i] = (struct iovec){(char *)text + cuts[i], cuts[i + 1] - cuts[i]};
    struct mmsghdr messages[2] = {
        {.msg_hdr = {.msg_iov = buffers, .msg_iovlen = 2}},
        {.msg_hdr = {.msg_iov = buffers + 2, .msg_iovlen = 2}},
    };
    need(sendmmsg(fd, messages, 2, 0) == 2, "sendmmsg");
    need(messages[0].msg_len + messages[1].msg_len == bytes, "sendmmsg was cut");
}

// Receives what has arrived, up to 60 bytes. Returns 0 at the end of the stream.
static size_t receive_cut(int fd, char *text)
{
    struct iovec buffers[6];
    struct mmsghdr messages[3] = {0};
    for (int i = 0; i < 6; i++)
        buffers[i] = (struct iovec){text + 10 * i, 10};
    for (int i = 0; i < 3; i++)
        messages[i].msg_hdr = (struct msghdr){.msg_iov = buffers + 2 * i, .msg_iovlen = 2};
    int got = recvmmsg(fd, messages, 3, MSG_WAITFORONE, NULL);
    need(got >= 0, "recvmmsg");
    size_t bytes = 0;
    for (int i = 0; i < got; i++) {
        memmove(text + bytes, text + 20 * i, messages[i].msg_len);
        bytes += messages[i].msg_len;
    }
    return bytes;
}

static int ends(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

static void serve(int listener)
{
    char text[4096] = "", answers[] = ANSWER ANSWER;
    int fd = accept(listener, NULL, NULL);
    need(fd >= 0, "accept");
    for (size_t have = 0, got; (got = receive_cut(fd, text + have)) > 0;) {
        have += got;
        text[have] = 0;
        if (ends(text, "\r\n\r\n") == 2) {
            send_cut(fd, answers, strlen(answers));
            have = 0;
        }
    }
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    need(!bind(listener, (struct sockaddr *)&address, bytes) && !listen(listener, 1), "listen");
    need(!getsockname(listener, (struct sockaddr *)&address, &bytes), "getsockname");
    if (!fork()) {
        serve(listener);
        return 0;
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(!connect(fd, (struct sockaddr *)&address, sizeof(address)), "connect");
    for (int i = 0; i < count; i += 2) {
        char text[4096];
        int length = sprintf(text, REQUEST REQUEST, i, i + 1);
        send_cut(fd, text, length);
        size_t have = 0, got;
        while (ends(text, "\r\n\r\nok") < 2 && (got = receive_cut(fd, text + have)) > 0) {
            have += got;
            text[have] = 0;
        }
    }
    close(fd);
    int status;
    wait(&status);
    return status != 0;
}
