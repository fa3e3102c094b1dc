/*
 * waits: known waits and known work, in sequence, for the test of stacks: a sleep, a mutex that
 * another thread holds, a read of standard input, and a loop in an inlined function. With the
 * argument "loop" it runs the loop only.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t held;
static volatile unsigned long sum;

static unsigned long long cpu_time_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static inline __attribute__((always_inline)) void spin_inlined(void)
{
    for (int i = 0; i < 1000000; i++)
        sum += i; /* line of the loop */
}

__attribute__((noinline)) void work_named(void)
{
    unsigned long long begin_ns = cpu_time_ns();
    while (cpu_time_ns() - begin_ns < 40000000)
        spin_inlined();
    sum++; /* keeps this function's frame until the loop is over */
}

static void nap(void)
{
    struct timespec time = {.tv_nsec = 20000000};
    nanosleep(&time, NULL);
}

static void *hold(void *unused)
{
    pthread_mutex_lock(&mutex);
    sem_post(&held);
    nap();
    pthread_mutex_unlock(&mutex);
    return unused;
}

int main(int argc, char **argv)
{
    char byte;
    pthread_t holder;

    if (argc < 2 || strcmp(argv[1], "loop") != 0) {
        nap();
        sem_init(&held, 0, 0);
        pthread_create(&holder, NULL, hold, NULL);
        sem_wait(&held);
        pthread_mutex_lock(&mutex);
        if (read(0, &byte, 1) < 0)
            return 1;
    }
    work_named();
    return 0;
}
