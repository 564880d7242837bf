/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram of durations: how many were at most 50 us, 100 us, 250 us, and so on to 10 s. Counts
 * are for Prometheus; quantiles are estimated from them, as Prometheus does it. To add one takes a
 * dozen instructions. No locks: whoever owns it adds, and others are given a copy. */
#ifndef STOCKADE_BASE_DURATIONS_H
#define STOCKADE_BASE_DURATIONS_H

#include <stddef.h>
#include <stdint.h>

#define DURATIONS_BOUNDS 17

struct durations {
    uint64_t counts[DURATIONS_BOUNDS + 1]; /* by the smallest bound that is not exceeded; the last:
                                              longer than all bounds */
    uint64_t sum_us;
};

/* The bounds, in microseconds and as Prometheus writes them, in seconds. */
extern const int64_t durations_bounds_us[DURATIONS_BOUNDS];
extern const char *const durations_bounds_text[DURATIONS_BOUNDS];

/* The first bound that a number of so many bits can be within: at most one bound has that many. */
extern const uint8_t durations_first_of_bits[];
#define DURATIONS_BITS 24

/* Add so many of the same duration. What is negative, as two clocks may make it, counts as 0. */
static inline void durations_add_many(struct durations *durations, int64_t us, uint64_t count)
{
    uint64_t value = us > 0 ? (uint64_t)us : 0;
    unsigned bits = 64 - (unsigned)__builtin_clzll(value | 1);
    size_t at = DURATIONS_BOUNDS;

    if (bits <= DURATIONS_BITS) {
        at = durations_first_of_bits[bits];
        at += value > (uint64_t)durations_bounds_us[at];
    }
    durations->counts[at] += count;
    durations->sum_us += value * count;
}

/* Add one. */
static inline void durations_add(struct durations *durations, int64_t us)
{
    durations_add_many(durations, us, 1);
}

/* Return how many there are. */
uint64_t durations_count(const struct durations *durations);
/* Return what came in between an earlier copy and a later one. */
struct durations durations_between(const struct durations *earlier, const struct durations *later);
/* Return an estimate of the duration that the share `quantile` (0.99) of them does not exceed, -1
 * where there are none. It is as exact as the bounds are close; what exceeds all of them counts as
 * the last one. */
int64_t durations_quantile_us(const struct durations *durations, double quantile);

#endif
