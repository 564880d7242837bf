/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated service and the providers that talk to it share. */
#ifndef STOCKADE_TESTS_SIM_REDIS_IMPL_H
#define STOCKADE_TESTS_SIM_REDIS_IMPL_H

#include "tests/sim/redis.h"

#define REDIS_KEYS_MAX  16
#define REDIS_NAME_MAX  16
#define REDIS_MARKS_MAX 8

struct redis_key {
    char name[REDIS_NAME_MAX];
    int64_t counter, token; /* token 0: no lock */
    int64_t until_us;       /* on the service's clock */
    int64_t busy_us;        /* when somebody was last seen to have the lock, in true time */
    char nonce[LEASE_NONCE_LEN + 1];
    uint64_t marks[REDIS_MARKS_MAX]; /* attempts that have entered and not given up, or 0 */
};

/* A call on its way: a copy, for the call may be over before it arrives. */
struct redis_ask {
    uint64_t number;
    int daemon;
    uint64_t life, connection; /* of the daemon, of its connection */
    enum lease_verb verb;
    char name[REDIS_NAME_MAX], nonce[LEASE_NONCE_LEN + 1];
    int64_t token, ttl_ms, floor, void_token;
    uint64_t attempt;
    bool reentry_only, revoked;
};

struct redis_answer {
    enum lease_answer answer;
    int64_t token, ttl_ms;
};

struct redis {
    struct world *world;
    int number;
    struct rng rng;
    struct redis_key keys[REDIS_KEYS_MAX], marked[REDIS_KEYS_MAX];
    int count;
    int64_t clock_us, clock_set_us, rate_per_mille;
    bool down;
    struct redis_provider *providers[DAEMONS_MAX]; /* by daemon; NULL: there is none now */
};

/* At once, as a script. */
struct redis_answer redis_execute(struct redis *redis, const struct redis_ask *ask);
/* redis_provider.c */
void redis_send_news(struct redis *redis, int daemon, const struct redis_ask *ask, int64_t token);

#endif
