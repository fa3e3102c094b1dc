#define _POSIX_C_SOURCE 200809L

#include "request_log.h"

#include <errno.h>
#include <time.h>

int open_request_log(struct request_log *log, const char *path)
{
    *log = (struct request_log){.file = fopen(path, "we")};
    if (!log->file)
        return -1;
    fputs("client,request,method,begin_ns,end_ns,status,expressions\n", log->file);
    return 0;
}

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void log_request(struct request_log *log, uint64_t begin_ns, bool answered, unsigned expressions)
{
    if (!log->file)
        return;
    uint64_t end_ns = now_ns();
    fprintf(log->file, "0,%lu,evaluate,%llu,%llu,%s,%u\n", log->requests++,
            (unsigned long long)begin_ns, (unsigned long long)end_ns, answered ? "ok" : "failed",
            expressions);
}

int close_request_log(struct request_log *log)
{
    if (!log->file)
        return 0;
    int failed = ferror(log->file);
    if (fclose(log->file) == EOF)
        return -1;
    if (failed) /* errno no longer has the cause */
        errno = EIO;
    return failed ? -1 : 0;
}
