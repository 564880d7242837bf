/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: what a data command asks of the store, alone, under tokens, or as a transaction. Claims
 * (tokens for resources) are judged first; the steps (data commands) run behind them, all in one
 * operation of the store.
 *
 *   GET k                          no claim     one step
 *   FENCED 3 SET k v               one claim    one step
 *   FENCEDALL 2 a 3 b 7 MSET ...   two claims   one step
 *   MULTI ... EXEC                 all claims   all steps, whole or not at all
 *
 * It is made on the loop's thread from the request's own arguments, and only read on the store's
 * threads. */
#ifndef STOCKADE_ENGINE_PLAN_H
#define STOCKADE_ENGINE_PLAN_H

#include <stdlib.h>

#include "proxy/engine/command/command.h"
#include "store/sql.h"

#define PLAN_CLAIMS_MAX       1024 /* of one FENCEDALL */
#define TRANSACTION_STEPS_MAX 4096
#define TRANSACTION_BYTES_MAX (17 << 20) /* of arguments: as much as one request may have */
#define RECEIPT_ID_MAX        512        /* bytes */
#define RECEIPT_REPLY_MAX     (64 << 10) /* bytes */

struct request;

struct step {
    const struct command *command;
    size_t argc;
    const struct bytes *argv;
    const struct claim *claims; /* its own */
    size_t claims_count;
    bool claims_key; /* its only claim is for its only key */
    bool unfenced;   /* writes without a token, as far as no token is held */
    enum sql_right sql_right;
};

struct plan {
    struct claim *claims;
    struct step *steps;
    size_t claims_count, steps_count;
    struct bytes id;      /* of the request; empty: none */
    uint64_t fingerprint; /* of all but the tokens, where there is an id */
    int64_t sql_limit_ms; /* of each statement */
    bool whole;           /* a transaction: replies in an array, or one error */
    bool marked;          /* has a mark to go back to where it fails halfway; else, where a
                             transaction fails, its batch is rolled back and run without it */
    bool judged_first;    /* SQL may act under any claim: all are judged before the first step */
    bool refused;         /* the reply says why */
    /* Room for the usual. */
    struct claim only_claim;
    struct step only_step;
};

/* Makes request->plan, and sets request->order, from the arguments of a data command, FENCED,
 * FENCEDALL or SQL. Where that cannot be, the plan is refused and the error is in request->reply.
 */
command_start plan_make;
/* Refuses the plan; `format` NULL: with the error's usual text. Returns false. */
bool plan_refuse(struct request *request, enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Makes the plan of a transaction over those of the queued requests, whose arguments it borrows. */
void plan_join(struct request *request, struct request *const *queued, size_t count);
/* Counts, and writes to the log, that the token rule refused the plan; nothing where it did not. */
void plan_note_refusal(struct request *request);

/* Runs the request's plan in the store and finishes the request. */
command_start plan_start;

static inline void plan_free(struct plan *plan)
{
    if (plan->claims != &plan->only_claim)
        free(plan->claims);
    if (plan->steps != &plan->only_step)
        free(plan->steps);
}

#endif
