#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "echo.h"

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

int ask(int connection, int requests, size_t bytes, int client, FILE *log)
{
    char *text = malloc(bytes + 1);
    if (!text)
        return 0;
    int answered = 0;
    for (int request = 0; request < requests; request++) {
        memset(text, 'a' + request % 26, bytes);
        char *echo;
        size_t echo_bytes;
        unsigned long long begin_ns = log ? now_ns() : 0;
        if (!send_message(connection, text, bytes) ||
            !receive_message(connection, &echo, &echo_bytes))
            break;
        unsigned long long end_ns = log ? now_ns() : 0;
        bool right = echo_bytes == bytes && memcmp(echo, text, bytes) == 0;
        answered += right;
        if (log)
            fprintf(log, "%d,%d,echo,%llu,%llu,%s,%d\n", client, request, begin_ns, end_ns,
                    right ? "ok" : "wrong", (int)getpid());
        free(echo);
    }
    free(text);
    return answered;
}
