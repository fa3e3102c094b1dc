/* Threads that all write to one file, one at a time: convoy THREADS WRITES */
#define _GNU_SOURCE
#include <err.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MOST_THREADS 64

static int file_fd, writes;

static void *write_all(void *unused)
{
    static const char bytes[1 << 18];
    for (int i = 0; i < writes; i++)
        if (pwrite(file_fd, bytes, sizeof bytes, 0) != sizeof bytes)
            err(1, "write");
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST_THREADS];
    int count = argc == 3 ? atoi(argv[1]) : 0;
    if (count < 1 || count > MOST_THREADS)
        errx(2, "usage: convoy THREADS WRITES");
    writes = atoi(argv[2]);
    file_fd = memfd_create("convoy", 0);
    if (file_fd < 0)
        err(1, "memfd");
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, write_all, NULL))
            errx(1, "thread");
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
