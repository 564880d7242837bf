/* SPDX-License-Identifier: Apache-2.0 */
/* SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014). */
#include "tests/sim/chance.h"

#include <string.h>

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

struct rng rng_of(uint64_t seed, uint64_t stream, uint64_t number)
{
    return (struct rng){mix(mix(mix(seed + 1) ^ (stream + 0x9e3779b97f4a7c15u)) + number)};
}

uint64_t rng_next(struct rng *rng)
{
    rng->state += 0x9e3779b97f4a7c15u;
    return mix(rng->state);
}

int64_t rng_below(struct rng *rng, int64_t n)
{
    return (int64_t)(rng_next(rng) % (uint64_t)n);
}

int64_t rng_between(struct rng *rng, int64_t low, int64_t high)
{
    return low + rng_below(rng, high - low + 1);
}

bool rng_per_mille(struct rng *rng, int64_t per_mille)
{
    return rng_below(rng, 1000) < per_mille;
}

void rng_fill(struct rng *rng, void *bytes, size_t len)
{
    for (size_t at = 0; at < len; at += 8) {
        uint64_t word = rng_next(rng);
        memcpy((char *)bytes + at, &word, len - at < 8 ? len - at : 8);
    }
}

void digest_start(struct digest *digest)
{
    digest->hash = 0xcbf29ce484222325u;
}

void digest_bytes(struct digest *digest, const void *data, size_t len)
{
    const unsigned char *bytes = data;

    for (size_t i = 0; i < len; i++)
        digest->hash = (digest->hash ^ bytes[i]) * 0x100000001b3u;
}

void digest_number(struct digest *digest, int64_t number)
{
    digest->hash = (digest->hash ^ (uint64_t)number) * 0x100000001b3u;
    digest->hash ^= digest->hash >> 29;
}
