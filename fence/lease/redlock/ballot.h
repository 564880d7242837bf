/* SPDX-License-Identifier: Apache-2.0 */
/* What the answers of N independent masters add up to. The count is pure, and made anew after each
 * answer, so that a decision never waits for a master that cannot change it.
 *
 * A quorum is N/2+1. A lease is granted where a quorum holds it under one token. Where a quorum
 * holds it under different ones (a counter had run ahead), the smaller ones have to be raised.
 * Source: "Distributed Locks with Redis", redis.io; that all masters hold the same token is
 * Stockade's addition.
 *
 * News from the masters are counted, too (news_votes_add). */
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
    BALLOT_SPLIT, /* nobody seems to have a quorum: try again; after the last try it is HELD */
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

int quorum_of(int masters);
struct verdict ballot_count(const struct ballot *ballot, const struct lease_call *question);
/* Has this master granted the lease to the one who asks, under whatever token? */
bool vote_has(const struct vote *vote);

#define NEWS_VOTES_SLOTS   1024
#define NEWS_VOTES_KEPT_MS 2000

/* The same news arrive from each master, and count once a quorum has sent them: what a loser gives
 * back to a minority ends nobody's lease, and would make losers wake each other for ever.
 *
 * The table is of a fixed size. News that were pushed out of it, or whose quorum comes too late,
 * are lost, as news may be. All zero is empty. */
struct news_votes {
    struct {
        uint64_t key; /* of resource, token and kind */
        int64_t until_ms;
        uint32_t masters; /* that sent them, as bits */
    } slots[NEWS_VOTES_SLOTS];
};

/* Master number `master` (0 to 31) has sent these. True: with it, a quorum has. */
bool news_votes_add(struct news_votes *votes, const struct lease_news *news, int master, int quorum,
                    int64_t now_ms);

#endif
