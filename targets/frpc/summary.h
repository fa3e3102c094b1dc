/* Samples of one quantity, and the figures that sum them up. */
#ifndef SUMMARY_H
#define SUMMARY_H

#include <stddef.h>
#include <stdint.h>

struct samples {
    uint64_t *value;
    size_t count;
    size_t capacity;
};

/* 0, or -1 if there is no memory left. */
int add_sample(struct samples *samples, uint64_t value);

struct summary {
    double median;
    double interquartile_range;
    double maximum;
};

/* Sorts the samples, of which there must be at least one. */
struct summary summarise(struct samples *samples);

#endif
