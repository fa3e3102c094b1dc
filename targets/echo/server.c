#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "echo.h"

static bool answer_one(int connection)
{
    char *text;
    size_t bytes;
    if (!receive_message(connection, &text, &bytes))
        return false;
    bool sent = send_message(connection, text, bytes);
    free(text);
    return sent;
}

int serve_connection(int connection)
{
    while (answer_one(connection))
        ;
    close(connection);
    return 0;
}

static void *serve_in_thread(void *connection)
{
    serve_connection((int)(intptr_t)connection);
    return NULL;
}

int serve_with_threads(int listener, int clients)
{
    pthread_t *threads = calloc(clients + 1, sizeof(*threads));
    if (!threads)
        return 1;
    for (int i = 0; i < clients; i++) {
        intptr_t connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0 ||
            pthread_create(&threads[i], NULL, serve_in_thread, (void *)connection))
            return 1;
    }
    for (int i = 0; i < clients; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    return 0;
}

/* One thread for all connections: a request waits while another connection is served. */
int serve_with_epoll(int listener, int clients)
{
    int poller = epoll_create1(EPOLL_CLOEXEC), open = 0, came = 0;
    struct epoll_event interest = {.events = EPOLLIN, .data.fd = listener};
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &interest) != 0)
        return 1;
    while (open > 0 || came < clients) {
        struct epoll_event ready[64];
        int count = epoll_wait(poller, ready, 64, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
                interest.data.fd = connection;
                if (connection < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, connection, &interest) != 0)
                    return 1;
                open++;
                came++;
            } else if (!answer_one(fd)) {
                close(fd);
                open--;
            }
        }
    }
    close(poller);
    return 0;
}
