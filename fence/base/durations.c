/* SPDX-License-Identifier: Apache-2.0 */
/* See durations.h. */
#include "fence/base/durations.h"

/* X(microseconds, seconds). Prometheus's clients write the seconds in this form. */
#define BOUNDS(X)                                                                                  \
    X(50, "5e-05")                                                                                 \
    X(100, "0.0001")                                                                               \
    X(250, "0.00025")                                                                              \
    X(500, "0.0005")                                                                               \
    X(1000, "0.001")                                                                               \
    X(2500, "0.0025")                                                                              \
    X(5000, "0.005")                                                                               \
    X(10000, "0.01")                                                                               \
    X(25000, "0.025")                                                                              \
    X(50000, "0.05")                                                                               \
    X(100000, "0.1")                                                                               \
    X(250000, "0.25")                                                                              \
    X(500000, "0.5")                                                                               \
    X(1000000, "1.0")                                                                              \
    X(2500000, "2.5")                                                                              \
    X(5000000, "5.0")                                                                              \
    X(10000000, "10.0")

#define MICROSECONDS(us, seconds) us,
const int64_t durations_bounds_us[DURATIONS_BOUNDS] = {BOUNDS(MICROSECONDS)};
#define SECONDS(us, seconds) seconds,
const char *const durations_bounds_text[DURATIONS_BOUNDS] = {BOUNDS(SECONDS)};

const uint8_t durations_first_of_bits[DURATIONS_BITS + 1] = {
    0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 14, 15, 16};

uint64_t durations_count(const struct durations *durations)
{
    uint64_t count = 0;

    for (size_t i = 0; i <= DURATIONS_BOUNDS; i++)
        count += durations->counts[i];
    return count;
}

struct durations durations_between(const struct durations *earlier, const struct durations *later)
{
    struct durations between = *later;

    for (size_t i = 0; i <= DURATIONS_BOUNDS; i++)
        between.counts[i] -= earlier->counts[i];
    between.sum_us -= earlier->sum_us;
    return between;
}

int64_t durations_quantile_us(const struct durations *durations, double quantile)
{
    uint64_t below = 0, count = durations_count(durations);
    double rank = quantile * (double)count;

    if (count == 0)
        return -1;
    for (size_t i = 0; i < DURATIONS_BOUNDS; i++) {
        uint64_t here = durations->counts[i];
        if (here > 0 && (double)(below + here) >= rank) {
            double low = i == 0 ? 0 : (double)durations_bounds_us[i - 1];
            double width = (double)durations_bounds_us[i] - low;
            return (int64_t)(low + width * ((rank - (double)below) / (double)here));
        }
        below += here;
    }
    return durations_bounds_us[DURATIONS_BOUNDS - 1];
}
