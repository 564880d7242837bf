/* SPDX-License-Identifier: Apache-2.0 */
/* The token rule: which tokens a resource accepts. What Stockade promises about safety (P1 fenced,
 * P2 rising, P3 issued) comes down to these few functions, which every write asks inside its
 * transaction.
 *
 *            admit (token above the floor)          release, revoke
 *   none  ───────────────────────────────▶  live  ─────────────────▶  released, revoked
 *                                            ▲  admit (larger token)        │
 *                                            └──────────────────────────────┘
 *
 * Source: M. Kleppmann, "How to do distributed locking", 2016, for the token checked at the data;
 * Stockade adds that a token dies at its successor's grant, not at the successor's first write. */
#ifndef STOCKADE_FENCE_TOKEN_H
#define STOCKADE_FENCE_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"

/* Tokens are 1 .. 2^53-1: exact as doubles, which is what Lua and JavaScript count in. */
#define TOKEN_MAX ((INT64_C(1) << 53) - 1)
/* A lease service's counter this far above the store's floor was not reached by granting. It is not
 * believed, and minting goes on from the floor. */
#define TOKEN_LEAP_MAX (INT64_C(1) << 32)

/* On disk as a number: never renumber. */
enum fence_state {
    FENCE_NONE = 0,     /* nothing was ever granted */
    FENCE_LIVE = 1,     /* the newest token may write */
    FENCE_RELEASED = 2, /* given back by its holder: retired */
    FENCE_REVOKED = 3,  /* taken away by force: retired */
};

struct fence {
    int64_t token; /* the newest one granted; 0 in FENCE_NONE */
    int64_t floor; /* no token up to this one may be granted (again); at least `token` */
    enum fence_state state;
};

/* May a command carrying `presented` touch the resource? STK_OK, STK_STALE or STK_UNKNOWN. */
enum stk_error fence_judge(const struct fence *fence, int64_t presented);

/* May `minted`, fresh from a lease service, become the newest token? */
bool fence_admits(const struct fence *fence, int64_t minted);

/* May a resource in this state be written without any token where the operator allows that? */
bool fence_unclaimed(const struct fence *fence);

/* Return the next token that a lease service has to hand out. `counter` is its own last one, which
 * may be corrupt; `floor` is the store's. 0: the tokens of this resource are used up. */
int64_t token_next(int64_t counter, int64_t floor);

/* Could a lease service have handed out this token above that floor, for this grant or for one
 * before it that nobody was told of? Any other would use up the resource's tokens. */
bool token_follows(int64_t token, int64_t floor);

/* Return the floor of a store that was restored, where `known` is the largest token that anybody
 * knows of: the time, in microseconds since 1970, for grants are far rarer than one a microsecond;
 * or, where a token lies higher than that, TOKEN_LEAP_MAX above it. 0: no token is left. */
int64_t token_floor_restored(int64_t known, int64_t now_us);

/* Read a token as a client writes it: a decimal number in 1..TOKEN_MAX. */
bool token_parse(struct bytes text, int64_t *token);

#endif
