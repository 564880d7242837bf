/* SPDX-License-Identifier: Apache-2.0 */
/* What the scripts of the Redis lease service (fence/lease/redis/scripts.c) do to one resource. The
 * lease service in memory and the simulator's Redises are built on it. */
#ifndef STOCKADE_TESTS_TWINS_REDIS_LOCK_H
#define STOCKADE_TESTS_TWINS_REDIS_LOCK_H

#include "fence/lease/provider.h"

#define REDIS_ATTEMPTS_MAX 8

/* All zero: never asked for. */
struct redis_lock {
    int64_t counter;  /* the last token */
    int64_t token;    /* the lock's; 0: there is none */
    int64_t until_us; /* the lock's end, on the service's clock */
    char nonce[LEASE_NONCE_LEN + 1];
    /* Who has entered and not given up. None: no attempt can give the lock up, only its token. */
    uint64_t attempts[REDIS_ATTEMPTS_MAX];
    size_t attempts_count;
};

struct redis_answer {
    enum lease_answer answer; /* DOWN: the tokens are used up */
    int64_t token, ttl_ms;
    int64_t ended; /* the token whose end others are to be told of; 0: none */
};

/* Do at once what is asked. */
struct redis_answer redis_lock_ask(struct redis_lock *lock, const struct lease_call *call,
                                   int64_t now_us);
/* Remove it where its time is over. */
void redis_lock_expire(struct redis_lock *lock, int64_t now_us);

#endif
