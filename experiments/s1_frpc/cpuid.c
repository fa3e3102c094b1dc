/* Prints the nanoseconds per CPUID instruction: on a virtual machine, each instruction exits to the
 * hypervisor. */
#include <cpuid.h>
#include <stdio.h>
#include <time.h>

#define TIMES 2000

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(void)
{
    double begin = now_ns();
    for (int i = 0; i < TIMES; i++) {
        unsigned a, b, c, d;
        __cpuid(0, a, b, c, d);
    }
    printf("%.0f\n", (now_ns() - begin) / TIMES);
    return 0;
}
