/* SPDX-License-Identifier: Apache-2.0 */
/* What the oracle's parts share. */
#ifndef STOCKADE_TESTS_SIM_ORACLE_IMPL_H
#define STOCKADE_TESTS_SIM_ORACLE_IMPL_H

#include "tests/sim/disk.h"
#include "tests/sim/oracle.h"

/* What was durable of a resource when the oracle read it last. */
struct seen {
    int64_t token; /* the newest ever: stays where the row was forgotten */
    bool exists, live;
    int64_t token_us, changed_us; /* since when it is the newest; when token or state changed */
    int64_t retired;              /* the newest one that was seen released or revoked */
    int64_t number;
    struct buf text;
    int64_t acked[DAEMONS_MAX]; /* so long the text was, by what each daemon has answered */
};

/* Who was told of a token. */
struct grant {
    enum resource_number resource;
    int64_t token;
    int client, owner, id;
    int64_t asked_us, told_us; /* when */
    int64_t until_us;          /* how long it should last at least */
    int daemon;                /* that told it */
    int64_t entries_then;      /* when it was asked for; -1: it is older than that */
    int64_t released_us;       /* when that was told; 0: it was not */
};

struct oracle {
    struct world *world;
    struct seen seen[RESOURCES];
    struct call *calls;   /* all */
    struct call *waiting; /* arrived and not answered */
    struct op **ops;
    size_t ops_count, ops_room;
    struct grant *grants;
    size_t grants_count, grants_room;
    int ids;
    uint64_t arrivals;
    int64_t asked, answered; /* ACQUIREs, each resource for one */
    int64_t counted;         /* COUNT operations that were told to be applied */
    int64_t count_may;       /* those that arrived at all */
    int64_t sold;            /* SELL operations in the logs */
    struct stored sold_now;
    int64_t pair_us; /* when the pair was written last */
};

void oracle_check(struct oracle *oracle, enum promise promise);
/* Has its receipt said, for each token that it was tried with, that it will never be applied? */
bool oracle_is_never(const struct op *op);
/* oracle_replies.c */
void oracle_reply(struct oracle *oracle, struct call *call, const redisReply *reply);
/* Return how many entries a history has had at most, those of calls under way not counted:
 * oracle_past.c. */
int64_t oracle_entries(const struct oracle *oracle);
/* Compare what HISTORY and REFUSALS tell with what their daemon has told before they arrived. */
void oracle_history(struct oracle *oracle, const struct call *call, const redisReply *reply);
void oracle_refusals(struct oracle *oracle, const struct call *call, const redisReply *reply);
/* Check that of those who wait at one daemon the first to come is the first to be served:
 * oracle_live.c. */
void oracle_line(struct oracle *oracle, const struct call *call, int64_t token);
/* Check that a lease that somebody has goes to nobody else while nothing is wrong. */
void oracle_alone(struct oracle *oracle, const struct grant *known, const struct grant *grant);

#endif
