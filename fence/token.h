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
/* So far above a floor grants alone may have taken a lease service's counter. */
#define TOKEN_STEPS_MAX (INT64_C(1) << 32)
/* By so much the clocks may differ whose time floors are raised to: a day, in microseconds. */
#define TOKEN_DRIFT_MAX_US (24 * 3600 * INT64_C(1000000))

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

/* Return up to where a lease service's counter is believed, at the time `now_us` (since 1970). A
 * store that is not the one it was begins anew at the time (token_floor_anew), and its lease
 * service may remember one that did so later, by a clock that is ahead. What lies higher somebody
 * has written there: it would use up the resource's tokens. */
int64_t token_believed_max(int64_t floor, int64_t now_us);

/* Return the next token that a lease service has to hand out. `counter` is its own last one, which
 * may be corrupt; `floor` is the store's. 0: the tokens of this resource are used up. */
int64_t token_next(int64_t counter, int64_t floor, int64_t believed_max);

/* Could a lease service have handed out this token above that floor, for this grant or for one
 * before it that nobody was told of? */
bool token_follows(int64_t token, int64_t floor, int64_t believed_max);

/* Return the floor of a store that may not remember all tokens that it has given out: it was
 * restored, copied, promoted, or started anew. `known` is the largest token that it knows of.
 *
 * The floor is the time, in microseconds since 1970. Grants are far rarer than one a microsecond,
 * so that is above all tokens that were given out before, also by another copy that began anew
 * earlier. A fixed step above what is known would not do: two copies of one state would step to the
 * same place. Where the clock is behind what is known, the step is a random one (`random`, any
 * bits), so that two copies meet in one of 2^32 cases. 0: no token is left. */
int64_t token_floor_anew(int64_t known, int64_t now_us, uint32_t random);

/* Read a token as a client writes it: a decimal number in 1..TOKEN_MAX. */
bool token_parse(struct bytes text, int64_t *token);

#endif
