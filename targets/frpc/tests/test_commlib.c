/*
 * Tests of commlib.  They are linked with --wrap=read and --wrap=writev, so that a test can limit
 * the bytes that the system calls transfer, and interrupt them.
 */
#define _POSIX_C_SOURCE 200809L

#include "commlib.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: not so: %s\n", __FILE__, __LINE__, __func__, #condition);  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

ssize_t __real_read(int fd, void *buffer, size_t length);
ssize_t __real_writev(int fd, const struct iovec *parts, int count);
ssize_t __wrap_read(int fd, void *buffer, size_t length);
ssize_t __wrap_writev(int fd, const struct iovec *parts, int count);

static size_t call_limit = SIZE_MAX; /* bytes that a call may transfer */
static int interrupt_every;          /* one of so many calls fails with EINTR; 0: none */
static int calls;

static int is_interrupted(void)
{
    calls++;
    if (interrupt_every == 0 || calls % interrupt_every != 0)
        return 0;
    errno = EINTR;
    return 1;
}

ssize_t __wrap_read(int fd, void *buffer, size_t length)
{
    if (is_interrupted())
        return -1;
    return __real_read(fd, buffer, length < call_limit ? length : call_limit);
}

ssize_t __wrap_writev(int fd, const struct iovec *parts, int count)
{
    if (is_interrupted())
        return -1;
    struct iovec cut[2];
    size_t left = call_limit;
    CHECK(count <= 2);
    for (int i = 0; i < count; i++) {
        size_t length = parts[i].iov_len < left ? parts[i].iov_len : left;
        cut[i] = (struct iovec){.iov_base = parts[i].iov_base, .iov_len = length};
        left -= length;
    }
    return __real_writev(fd, cut, count);
}

static void be_well_behaved(void)
{
    call_limit = SIZE_MAX;
    interrupt_every = 0;
    calls = 0;
}

static bool over_sockets;

/* Data written to the second end is read from the first. */
static void make_pipe(int ends[2])
{
    int bytes = 1 << 20; /* many small writes take much more room than their bytes */
    CHECK((over_sockets ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : pipe(ends)) == 0);
    if (over_sockets)
        CHECK(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
}

static int start(struct comm_peer *peer, comm_server *server)
{
    return (over_sockets ? comm_fork_socket : comm_fork)(peer, server, NULL);
}

static void write_raw(int fd, const void *bytes, size_t length)
{
    CHECK(write(fd, bytes, length) == (ssize_t)length);
}

static void fill(unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(i * 7 + i / 251);
}

static void test_frame_format(void)
{
    int ends[2];
    unsigned char frame[16];
    make_pipe(ends);
    CHECK(comm_send(ends[1], "hello", 5) == COMM_OK);
    CHECK(calls == 1);
    CHECK(__real_read(ends[0], frame, sizeof frame) == 9);
    CHECK(memcmp(frame, "\0\0\0\5hello", 9) == 0);
    close(ends[0]);
    close(ends[1]);
}

static void test_messages_stay_apart(void)
{
    int ends[2];
    char text[16];
    size_t length;
    make_pipe(ends);
    CHECK(comm_send(ends[1], "one", 3) == COMM_OK);
    CHECK(comm_send(ends[1], "", 0) == COMM_OK);
    CHECK(comm_send(ends[1], "three", 5) == COMM_OK);
    CHECK(comm_receive(ends[0], text, sizeof text, &length) == COMM_OK && length == 3);
    CHECK(memcmp(text, "one", 3) == 0);
    CHECK(comm_receive(ends[0], text, sizeof text, &length) == COMM_OK && length == 0);
    CHECK(comm_receive(ends[0], text, 5, &length) == COMM_OK && length == 5);
    CHECK(memcmp(text, "three", 5) == 0);
    close(ends[0]);
    close(ends[1]);
}

static void test_short_and_interrupted_calls(void)
{
    unsigned char sent[300], received[300];
    size_t length;
    fill(sent, sizeof sent);
    for (size_t limit = 1; limit <= 9; limit++) {
        int ends[2];
        make_pipe(ends);
        call_limit = limit;
        interrupt_every = 3;
        calls = 0;
        CHECK(comm_send(ends[1], sent, sizeof sent) == COMM_OK);
        CHECK(calls > (int)(sizeof sent / limit));
        memset(received, 0, sizeof received);
        CHECK(comm_receive(ends[0], received, sizeof received, &length) == COMM_OK);
        CHECK(length == sizeof sent && memcmp(sent, received, length) == 0);
        close(ends[0]);
        close(ends[1]);
    }
}

static void test_end_between_and_inside_frames(void)
{
    static const struct {
        const char *bytes;
        size_t length;
        enum comm_status status;
    } cases[] = {
        {"", 0, COMM_CLOSED},
        {"\0\0", 2, COMM_TRUNCATED},
        {"\0\0\0\5", 4, COMM_TRUNCATED},
        {"\0\0\0\5hell", 8, COMM_TRUNCATED},
    };
    char text[16];
    size_t length;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int ends[2];
        make_pipe(ends);
        write_raw(ends[1], cases[i].bytes, cases[i].length);
        close(ends[1]);
        CHECK(comm_receive(ends[0], text, sizeof text, &length) == cases[i].status);
        close(ends[0]);
    }
}

static void test_too_long(void)
{
    int ends[2];
    char text[8];
    size_t length;
    uint32_t huge = htonl((uint32_t)COMM_MAX_PAYLOAD + 1);
    make_pipe(ends);
    CHECK(comm_send(ends[1], text, COMM_MAX_PAYLOAD + 1) == COMM_TOO_LONG);
    CHECK(calls == 0);
    CHECK(comm_send(ends[1], "nine char", 9) == COMM_OK);
    CHECK(comm_receive(ends[0], text, sizeof text, &length) == COMM_TOO_LONG);
    CHECK(__real_read(ends[0], (char[9]){0}, 9) == 9);
    write_raw(ends[1], &huge, sizeof huge);
    CHECK(comm_receive(ends[0], text, SIZE_MAX, &length) == COMM_TOO_LONG);
    close(ends[0]);
    close(ends[1]);
}

static void test_peer_gone(void)
{
    int ends[2];
    char text[8];
    size_t length;
    make_pipe(ends);
    close(ends[0]);
    CHECK(comm_send(ends[1], "hello", 5) == COMM_CLOSED);
    close(ends[1]);
    CHECK(comm_send(ends[1], "hello", 5) == COMM_FAILED && errno == EBADF);
    CHECK(comm_receive(ends[0], text, sizeof text, &length) == COMM_FAILED && errno == EBADF);
}

/* A peer that ended before it read the data sent to it. */
static void test_reset(void)
{
    int pair[2];
    char text[8];
    size_t length;
    if (!over_sockets)
        return;
    for (size_t sent = 0; sent <= 2; sent += 2) {
        make_pipe(pair);
        write_raw(pair[0], "unread", 6);
        write_raw(pair[1], "\0\0", sent);
        close(pair[1]);
        enum comm_status status = comm_receive(pair[0], text, sizeof text, &length);
        CHECK(status == COMM_CLOSED || (sent > 0 && status == COMM_TRUNCATED));
        close(pair[0]);
    }
}

static volatile sig_atomic_t signals;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

/* Reads a frame from a pipe in small pieces, with a signal to the sender before each piece. */
static int read_slowly(int in, int out, const void *context)
{
    pid_t sender = getppid();
    size_t total = sizeof(uint32_t) + COMM_MAX_PAYLOAD;
    unsigned char *frame = malloc(total);
    (void)context;
    CHECK(frame);
    for (size_t got = 0; got < total;) {
        kill(sender, SIGUSR1);
        ssize_t n = __real_read(in, frame + got, total - got < 5000 ? total - got : 5000);
        CHECK(n > 0);
        got += (size_t)n;
    }
    /* Sends back single bytes at first, then pieces of another size than the reader's. */
    for (size_t done = 0; done < total;) {
        size_t piece = done < 100 ? 1 : 3001;
        if (piece > total - done)
            piece = total - done;
        if (done % 10 == 0)
            kill(sender, SIGUSR1);
        write_raw(out, frame + done, piece);
        done += piece;
    }
    free(frame);
    return 7;
}

static void test_slow_peer_and_signals(void)
{
    struct sigaction action = {.sa_handler = count_signal}; /* no SA_RESTART: calls do fail */
    struct comm_peer peer;
    unsigned char *sent = malloc(COMM_MAX_PAYLOAD), *received = malloc(COMM_MAX_PAYLOAD);
    size_t length;
    int status;
    CHECK(sent && received);
    fill(sent, COMM_MAX_PAYLOAD);
    sigaction(SIGUSR1, &action, NULL);
    CHECK(start(&peer, read_slowly) == 0);
    CHECK(comm_send(peer.to, sent, COMM_MAX_PAYLOAD) == COMM_OK);
    CHECK(comm_receive(peer.from, received, COMM_MAX_PAYLOAD, &length) == COMM_OK);
    CHECK(length == COMM_MAX_PAYLOAD && memcmp(sent, received, length) == 0);
    CHECK(comm_join(&peer, &status) == 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(signals > 0);
    free(sent);
    free(received);
}

/* A server ends when the pipes are closed, and leaves neither a zombie nor a descriptor. */
static int echo(int in, int out, const void *context)
{
    char text[16];
    size_t length;
    (void)context;
    while (comm_receive(in, text, sizeof text, &length) == COMM_OK)
        comm_send(out, text, length);
    return 0;
}

static void test_fork_and_join(void)
{
    for (int i = 0; i < 3; i++) {
        struct comm_peer peer;
        char text[16];
        size_t length;
        int status, free_fd = dup(0);
        close(free_fd);
        CHECK(start(&peer, echo) == 0);
        CHECK(comm_send(peer.to, "hello", 5) == COMM_OK);
        CHECK(comm_receive(peer.from, text, sizeof text, &length) == COMM_OK);
        CHECK(length == 5 && memcmp(text, "hello", 5) == 0);
        CHECK(comm_join(&peer, &status) == 0 && status == 0);
        CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
        CHECK(dup(0) == free_fd);
        close(free_fd);
    }
}

int main(void)
{
    static void (*const tests[])(void) = {
        test_frame_format,
        test_messages_stay_apart,
        test_short_and_interrupted_calls,
        test_end_between_and_inside_frames,
        test_too_long,
        test_peer_gone,
        test_reset,
        test_slow_peer_and_signals,
        test_fork_and_join,
    };
    size_t count = sizeof tests / sizeof tests[0];

    alarm(60); /* a test that hangs fails */
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < 2 * count; i++) {
        over_sockets = i >= count;
        be_well_behaved();
        tests[i % count]();
    }
    printf("commlib: %zu tests passed over pipes and over sockets\n", count);
    return 0;
}
