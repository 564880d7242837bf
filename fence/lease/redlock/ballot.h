/* SPDX-License-Identifier: Apache-2.0 */
/* What the answers of N independent masters come to: a pure count, asked anew after each answer, so
 * that a decision never waits for a master that cannot change it.
 *
 * A quorum is N/2+1. A lease is granted where a quorum holds it under one token; where a quorum
 * holds it under different ones (a counter had run ahead), those below the largest are to be
 * raised. Source: "Distributed Locks with Redis", redis.io; that all masters hold the same token is
 * Stockade's addition. */
#ifndef STOCKADE_FENCE_LEASE_REDLOCK_BALLOT_H
#define STOCKADE_FENCE_LEASE_REDLOCK_BALLOT_H

#include "fence/lease/provider.h"

#define BALLOT_MASTERS_MAX 15

enum ballot_outcome {
    BALLOT_OPEN,    /* more answers are needed */
    BALLOT_GRANTED, /* these five as in enum lease_answer */
    BALLOT_OWN,
    BALLOT_HELD,
    BALLOT_FREE,
    BALLOT_DOWN,  /* too few masters answer */
    BALLOT_RAISE, /* a quorum has it under different tokens: `token` is what all should hold */
    BALLOT_SPLIT, /* nobody has a quorum, as far as one can see: to be tried again; else HELD */
};

struct vote {
    enum lease_answer answer; /* LEASE_UNANSWERED: still to come */
    int64_t token, ttl_ms;
};

struct ballot {
    int masters;
    struct vote votes[BALLOT_MASTERS_MAX];
};

struct verdict {
    enum ballot_outcome outcome;
    int64_t token;
    int64_t ttl_ms; /* HELD, SPLIT: until a quorum could be free */
};

int ballot_quorum(const struct ballot *ballot);
struct verdict ballot_count(const struct ballot *ballot, const struct lease_call *question);
/* Does this master have the lease for the one who asks, under whatever token? */
bool vote_has(const struct vote *vote);

#endif
