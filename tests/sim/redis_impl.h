/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulated service and the providers that talk to it share. */
#ifndef STOCKADE_TESTS_SIM_REDIS_IMPL_H
#define STOCKADE_TESTS_SIM_REDIS_IMPL_H

#include "tests/sim/redis.h"
#include "tests/twins/redis_lock.h"

#define REDIS_KEYS_MAX 16
#define REDIS_NAME_MAX 16

struct redis_key {
    char name[REDIS_NAME_MAX];
    struct redis_lock lock;
    int64_t busy_us; /* when somebody was last seen to have the lock, in true time */
};

/* A call on its way: a copy, for the call may be over before it arrives. */
struct redis_ask {
    uint64_t number;
    int daemon;
    uint64_t life, connection; /* of the daemon, of its connection */
    char name[REDIS_NAME_MAX];
    struct lease_call call; /* its resource is the name */
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
