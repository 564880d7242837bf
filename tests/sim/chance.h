/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded chance for the simulator, in streams: each party and each message pipe draws from its own,
 * so that leaving one of them out does not change what the others draw. And the digest of all that
 * happens, by which two runs are compared. */
#ifndef STOCKADE_TESTS_SIM_CHANCE_H
#define STOCKADE_TESTS_SIM_CHANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state;
};

/* A stream of its own for each (seed, stream, number). */
struct rng rng_of(uint64_t seed, uint64_t stream, uint64_t number);
uint64_t rng_next(struct rng *rng);
/* 0 .. n-1 */
int64_t rng_below(struct rng *rng, int64_t n);
/* low .. high, both included */
int64_t rng_between(struct rng *rng, int64_t low, int64_t high);
bool rng_per_mille(struct rng *rng, int64_t per_mille);
void rng_fill(struct rng *rng, void *bytes, size_t len);

/* FNV-1a over everything fed to it. */
struct digest {
    uint64_t hash;
};

void digest_start(struct digest *digest);
void digest_bytes(struct digest *digest, const void *data, size_t len);
void digest_number(struct digest *digest, int64_t number);

#endif
