/* SPDX-License-Identifier: Apache-2.0 */
/* What the auditor's parts share. */
#ifndef STOCKADE_TESTS_SIM_AUDITOR_IMPL_H
#define STOCKADE_TESTS_SIM_AUDITOR_IMPL_H

#include "tests/sim/auditor.h"
#include "tests/sim/disk.h"

/* What was durable of a resource when the auditor read it last. */
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

struct auditor {
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

void audit_check(struct auditor *auditor, enum promise promise);
/* Has its receipt said, for each token that it was tried with, that it will never be applied? */
bool audit_is_never(const struct op *op);
/* auditor_replies.c */
void audit_reply(struct auditor *auditor, struct call *call, const redisReply *reply);
/* Return how many entries a history has had at most, those of calls under way not counted:
 * auditor_past.c. */
int64_t audit_entries(const struct auditor *auditor);
/* Compare what HISTORY and REFUSALS tell with what their daemon has told before they arrived. */
void audit_history(struct auditor *auditor, const struct call *call, const redisReply *reply);
void audit_refusals(struct auditor *auditor, const struct call *call, const redisReply *reply);
/* Check that of those who wait at one daemon the first to come is the first to be served:
 * auditor_live.c. */
void audit_line(struct auditor *auditor, const struct call *call, int64_t token);
/* Check that a lease that somebody has goes to nobody else while nothing is wrong. */
void audit_alone(struct auditor *auditor, const struct grant *known, const struct grant *grant);

#endif
