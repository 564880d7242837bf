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

void histogram_add(struct histogram *histogram, uint64_t ns);
/* The upper end of the bucket below which `part` (0..1) of the values are. 0 without values. */
uint64_t histogram_quantile(const struct histogram *histogram, double part);

#endif
