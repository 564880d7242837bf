/* SPDX-License-Identifier: Apache-2.0 */
/* A value below 128 is its own bucket; above, the bucket is its exponent and its next six bits. */
#include "tools/bench/load/histogram.h"

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

uint64_t histogram_quantile(const struct histogram *histogram, double part)
{
    uint64_t seen = 0, wanted = (uint64_t)((double)histogram->total * part);

    for (unsigned bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->counts[bucket];
        if (seen > wanted)
            return end_of(bucket) < histogram->max_ns ? end_of(bucket) : histogram->max_ns;
    }
    return histogram->max_ns;
}
