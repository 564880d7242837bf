/* SPDX-License-Identifier: Apache-2.0 */
/* A value below 128 is its own bucket; above, the bucket is its exponent and its next six bits. */
#include "tools/bench/load/histogram.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ULL + (uint64_t)now.tv_nsec;
}

static unsigned bucket_of(uint64_t ns)
{
    unsigned shift = ns < 2 * HISTOGRAM_PARTS ? 0 : 63U - (unsigned)__builtin_clzll(ns) - 6;
    uint64_t bucket = (uint64_t)shift * HISTOGRAM_PARTS + (ns >> shift);

    return bucket < HISTOGRAM_BUCKETS ? (unsigned)bucket : HISTOGRAM_BUCKETS - 1;
}

static uint64_t end_of(unsigned bucket)
{
    unsigned shift = bucket < 2 * HISTOGRAM_PARTS ? 0 : bucket / HISTOGRAM_PARTS - 1;

    return ((uint64_t)(bucket - shift * HISTOGRAM_PARTS) + 1) << shift;
}

void histogram_add(struct histogram *histogram, uint64_t ns)
{
    histogram->counts[bucket_of(ns)]++;
    histogram->total++;
    if (ns > histogram->max_ns)
        histogram->max_ns = ns;
}

/* Return the upper end of the bucket below which `part` (0..1) of the values are; 0 without any. */
static uint64_t quantile(const struct histogram *histogram, double part)
{
    uint64_t seen = 0, wanted = (uint64_t)((double)histogram->total * part);

    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if (seen > wanted)
            return end_of(bucket) < histogram->max_ns ? end_of(bucket) : histogram->max_ns;
    }
    return histogram->max_ns;
}

void histogram_print(const struct histogram *histogram, uint64_t ops, uint64_t took_ns)
{
    printf("{\"ops\": %" PRIu64 ", \"rate\": %.3f, \"p50\": %.4f, \"p99\": %.4f, \"p999\": %.4f, "
           "\"max\": %.4f",
           ops, (double)ops * 1e9 / (double)took_ns, (double)quantile(histogram, 0.5) / 1e6,
           (double)quantile(histogram, 0.99) / 1e6, (double)quantile(histogram, 0.999) / 1e6,
           (double)histogram->max_ns / 1e6);
}
