#include "summary.h"

#include <stdlib.h>

int add_sample(struct samples *samples, uint64_t value)
{
    if (samples->count == samples->capacity) {
        size_t capacity = samples->capacity ? 2 * samples->capacity : 512;
        uint64_t *grown = realloc(samples->value, capacity * sizeof *grown);
        if (!grown)
            return -1;
        samples->value = grown;
        samples->capacity = capacity;
    }
    samples->value[samples->count++] = value;
    return 0;
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Interpolates linearly between the two nearest of the sorted samples. */
static double quantile(const struct samples *sorted, double fraction)
{
    double position = fraction * (double)(sorted->count - 1);
    size_t below = (size_t)position;
    size_t above = below + 1 < sorted->count ? below + 1 : below;
    double low = (double)sorted->value[below], high = (double)sorted->value[above];
    return low + (position - (double)below) * (high - low);
}

struct summary summarise(struct samples *samples)
{
    qsort(samples->value, samples->count, sizeof *samples->value, compare);
    return (struct summary){
        .median = quantile(samples, 0.5),
        .interquartile_range = quantile(samples, 0.75) - quantile(samples, 0.25),
        .maximum = (double)samples->value[samples->count - 1],
    };
}
