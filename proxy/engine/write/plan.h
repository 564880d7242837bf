/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: what a request wants from the store. Claims (tokens for resources) are judged first; the
 * steps (data commands) run behind them, all in one operation.
 *
 *   GET k                          no claim     one step
 *   FENCED 3 SET k v               one claim    one step
 *   FENCEDALL 2 a 3 b 7 MSET ...   two claims   one step
 *   MULTI ... EXEC                 all claims   all steps, whole or not at all
 *
 * Made on the loop's thread from the request's own arguments, read-only on the store's. */
#ifndef STOCKADE_ENGINE_PLAN_H
#define STOCKADE_ENGINE_PLAN_H

#include "proxy/engine/command/command.h"
#include "store/sql.h"

#define PLAN_CLAIMS_MAX       1024 /* of one FENCEDALL */
#define TRANSACTION_STEPS_MAX 4096
#define TRANSACTION_BYTES_MAX                                                                      \
    (17 << 20)                       /* of arguments, as requests count them: as one request       \
                                      */
#define RECEIPT_ID_MAX    512        /* bytes */
#define RECEIPT_REPLY_MAX (64 << 10) /* bytes */

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
    bool marked;          /* may fail halfway: what it did is undone by itself then; else, where a
                             transaction fails, its batch is rolled back and run without it */
    bool judged_first;    /* SQL may act on any claim: all are judged before the first step */
    bool refused;         /* the reply says why */
    /* Room for the usual. */
    struct claim only_claim;
    struct step only_step;
};

/* Makes request->plan and request->order from the arguments of a data command, FENCED, FENCEDALL
 * or SQL. Where that cannot be, the plan is refused and the error is in request->reply. `queued`:
 * it becomes part of a transaction. */
void plan_make(struct request *request, bool queued);
/* The plan of a transaction over those of the queued requests, whose arguments it borrows. */
void plan_join(struct request *request, struct request *const *queued, size_t count);
/* Frees what plan_make and plan_join have allocated. */
void plan_free(struct plan *plan);

#endif
