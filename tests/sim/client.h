/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated client: a program in straight lines (client_rounds.c) that runs as a coroutine, so
 * that it can wait for replies and time, be paused, and die in the middle of anything. */
#ifndef STOCKADE_TESTS_SIM_CLIENT_H
#define STOCKADE_TESTS_SIM_CLIENT_H

#include <ucontext.h>

#include "tests/sim/calls.h"
#include "tests/sim/link.h"

#define OPEN_OPS_MAX 64

/* A write whose outcome the client does not know. */
struct open_op {
    struct op *op;
    int64_t tokens[2];
};

struct client {
    struct world *world;
    int number;
    struct party party;
    uint64_t links; /* opened so far */
    struct link *link;
    int home; /* the daemon that it prefers */
    /* The coroutine. */
    ucontext_t here, *back;
    char *stack;
    bool runs, waits_reply;
    uint64_t wakes; /* counted up with each wait: a late timer means nothing */
    /* What came. */
    bool got;
    redisReply *reply; /* the latest one, or NULL */
    /* What it remembers, over its deaths too. */
    struct rng rng;   /* of the round */
    int round, owner; /* owner: that its latest lease was taken as; -1: none */
    int64_t round_starts_us[ROUNDS_MAX + 1];
    int64_t old_tokens[RESOURCES];
    struct open_op open[OPEN_OPS_MAX];
    int open_count;
    bool done;
};

void clients_new(struct world *world);
void clients_free(struct world *world);

/* For the coroutine. */
void client_sleep(struct client *client, int64_t ms);
void client_sleep_until(struct client *client, int64_t at_us);
/* Send, and wait for the reply. False: the connection is gone, or the client has lost patience. */
bool client_call(struct client *client, struct call *call);

/* Go to the next daemon, and stay there. */
void client_move(struct client *client);

/* For the network. */
void client_replied(struct client *client, struct link *link, struct bytes raw);
void client_closed(struct client *client, struct link *link);

/* The client dies, and comes back after `ms`. Its connection ends, or just falls silent. */
void client_die(struct client *client, int64_t ms, bool silently);
/* What it does: client_rounds.c. */
void client_main(struct client *client);

#endif
