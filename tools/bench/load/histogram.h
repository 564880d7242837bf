/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of nanoseconds in buckets that are 1/64 of their value wide, so quantiles are good to
 * 1.6 %, from a nanosecond to hours, in constant memory. */
#ifndef STOCKADE_TOOLS_BENCH_HISTOGRAM_H
#define STOCKADE_TOOLS_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_PARTS   64
#define HISTOGRAM_BUCKETS (HISTOGRAM_PARTS * 48)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS], total, max_ns;
};

/* Return the monotonic clock's time. */
uint64_t now_ns(void);
void histogram_add(struct histogram *histogram, uint64_t ns);
/* Begin a line of JSON: how many operations there were in so many nanoseconds, and how long those
 * took that were counted. */
void histogram_print(const struct histogram *histogram, uint64_t ops, uint64_t took_ns);

#endif
