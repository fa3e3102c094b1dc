/* Vector clocks, and the machine's. */
#ifndef CLOCKS_H
#define CLOCKS_H

#include "flex.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Whether all that a is aware of, b is too. */
static inline bool is_known_to(const flex_clock a, const flex_clock b)
{
    for (int i = 0; i < FLEX_PROCESSES; i++)
        if (a[i] > b[i])
            return false;
    return true;
}

/* Whether a is causally before b. */
static inline bool is_before(const flex_clock a, const flex_clock b)
{
    return is_known_to(a, b) && !is_known_to(b, a);
}

static inline void merge(flex_clock into, const flex_clock other)
{
    for (int i = 0; i < FLEX_PROCESSES; i++)
        if (other[i] > into[i])
            into[i] = other[i];
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#endif
