/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: what a write asks of the store, alone, under tokens, or as a transaction, and what a read
 * under a token does (one without is command/read.c's, and no more than its step). Claims
 * (tokens for resources) are judged first; then the steps (data commands) run, all in one operation
 * of the store.
 *
 *   SET k v                        no claim     one step
 *   FENCED 3 SET k v               one claim    one step
 *   FENCEDALL 2 a 3 b 7 MSET ...   two claims   one step
 *   MULTI ... EXEC                 all claims   all steps, whole or not at all
 *
 * plan.c makes it on the loop's thread from the request's own arguments, and runs it on the
 * store's threads, where it is only read. */
#ifndef STOCKADE_ENGINE_PLAN_H
#define STOCKADE_ENGINE_PLAN_H

#include "proxy/engine/command/step.h"

struct request;
struct session;

#define PLAN_CLAIMS_MAX       1024 /* of one FENCEDALL */
#define TRANSACTION_STEPS_MAX 4096
#define TRANSACTION_BYTES_MAX (17 << 20) /* of arguments: as much as one request may have */
#define RECEIPT_REPLY_MAX     (64 << 10) /* bytes */

struct plan {
    struct claim *claims;
    struct step *steps;
    size_t claims_count, steps_count;
    struct bytes id;      /* of the request; empty: none */
    uint64_t fingerprint; /* of all but the tokens, where there is an id */
    int64_t sql_limit_ms; /* of each statement */
    bool whole;           /* a transaction: replies in an array, or one error */
    bool needs_savepoint; /* to go back to where it fails halfway; else, where a transaction
                             fails, its batch is rolled back and run without it */
    bool judged_first;    /* SQL may act under any claim: all are judged before the first step */
    bool has_values;      /* the tokens of some claims are to be found by their values first */
    bool refused;         /* the reply says why */
    /* Room for the usual. */
    struct claim only_claim;
    struct step only_step;
};

/* Make request->plan, and set request->order, from the arguments of a data command, FENCED,
 * FENCEDALL or SQL. Where that cannot be, the plan is refused and the error is in request->reply.
 */
command_start plan_make;
/* Make the plan of a transaction over those of the queued requests, whose arguments it borrows. */
void plan_join(struct request *request, struct request *const *queued, size_t count);
/* Counts, and writes to the log, that the token rule refused the plan; nothing where it did not. */
void plan_note_refusal(struct request *request);

/* Run the request's plan in the store and finish the request. */
command_start plan_start;

/* multi.c: MULTI, EXEC, DISCARD, and WATCH, which is refused. */
command_start multi_begin, multi_exec, multi_discard, multi_watch;
/* Drop the transaction that a connection has begun, if any. */
void multi_drop(struct session *session);

#endif
