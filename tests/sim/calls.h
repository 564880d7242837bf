/* SPDX-License-Identifier: Apache-2.0 */
/* What clients ask: resources, operations that can be told from each other in the stored data, and
 * calls, as bytes of the protocol. It shares nothing with the product's own protocol code; replies
 * are read by hiredis.
 *
 *   log0..2  strings to which operations append "17;", their number: order, once, by whom
 *   sold     a counter that goes up together with an entry in a log, in one transaction
 *   count    a counter that goes up alone, in commands whose reply may be lost
 *   pairA B  two strings that are only written together, to the same text
 *   lock     a lease without data */
#ifndef STOCKADE_TESTS_SIM_CALLS_H
#define STOCKADE_TESTS_SIM_CALLS_H

#include <hiredis/hiredis.h>

#include "tests/sim/world.h"

enum resource_number { LOG0, LOG1, LOG2, SOLD, COUNT, PAIR_A, PAIR_B, LOCK, RESOURCES };
extern const char *const resource_names[RESOURCES];

#define SOLD_MAX 40 /* then it is sold out: RANGE */

enum verb {
    VERB_ACQUIRE,
    VERB_ACQUIRE_ALL,
    VERB_RENEW,
    VERB_RELEASE,
    VERB_REVOKE,
    VERB_DEQUEUE,
    VERB_APPEND,
    VERB_COUNT,
    VERB_SELL,
    VERB_PAIR,
    VERB_GET,
    VERB_FENCED_GET,
    VERB_RECEIPT,
    VERB_HISTORY,
    VERB_REFUSALS, /* of all resources */
    VERBS
};

/* A write that is to happen at most once, however often it is sent. */
struct op {
    int number;
    enum verb verb;
    int client, count;
    enum resource_number resources[2];
    bool has_id; /* "w" and its number */
    /* The oracle's. */
    int64_t tokens[8][2]; /* that it arrived with, at some daemon */
    int tokens_count;
    int arrivals, refusals; /* of its calls; where they are as many, it is not to be there */
    int64_t never_token;    /* under which, its receipt said, it never will be applied; 0: none */
    bool applied, acknowledged;
    int64_t arrived_us; /* the first of its calls */
    int64_t applied_us;
    int64_t end;        /* of its entry in the log */
    int64_t replies[2]; /* that it got first */
};

/* One command sent once (a transaction counts as one). */
struct call {
    struct call *next; /* all there ever were, newest first */
    enum verb verb;
    int client, count;
    enum resource_number resources[2];
    int64_t tokens[2], ttl_ms, wait_ms;
    int owner;      /* "o3"; -1: none */
    int id;         /* "a3"; of leases; 0: none */
    bool ephemeral; /* of an ACQUIRE, as queue */
    bool queue;
    struct op *op; /* of writes, RECEIPT */
    /* The network's. */
    struct link *link;
    int replies_left;
    /* The oracle's: at the daemon's door. */
    struct call *waiting; /* the next of those that the daemon has not answered */
    bool arrived, answered;
    int64_t arrived_us, arrived_pauses_us;
    uint64_t arrival;
    int64_t tokens_then[2]; /* newest ones, when it arrived */
    int64_t acked_then;     /* how long the log was known to be at this daemon */
    bool applied_then;
    int64_t entries_then; /* oracle_past.c */
    int64_t answered_us;
    const char *refused; /* a write: "STALE" or "UNKNOWN" */
};

/* The command's bytes; sets replies_left. */
void call_write(struct call *call, struct buf *out);
/* Read a reply that is there as a whole. Free it with freeReplyObject. */
redisReply *reply_read(struct bytes raw);
/* Return the number at this place of an array, or 0. */
int64_t reply_item(const redisReply *reply, int place);
/* Find the value of this name in a map, or NULL. */
const redisReply *reply_value(const redisReply *map, const char *name);
/* Is it ["queued", place]? */
bool reply_is_queued(const redisReply *reply);
bool reply_is_error(const redisReply *reply, const char *code);
/* For the story. */
void call_describe(const struct call *call, char *out, size_t size);
void reply_describe(const redisReply *reply, char *out, size_t size);

#endif
