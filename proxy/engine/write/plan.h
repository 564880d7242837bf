/* SPDX-License-Identifier: Apache-2.0 */
/* Data commands: each is made into a plan (session/request.h), which is one operation of the store:
 * the claims are judged first, then the steps run. */
#ifndef STOCKADE_ENGINE_PLAN_H
#define STOCKADE_ENGINE_PLAN_H

#include "proxy/engine/session/request.h"

#define PLAN_CLAIMS_MAX       1024 /* of one FENCEDALL */
#define TRANSACTION_STEPS_MAX 4096
#define TRANSACTION_BYTES_MAX (17 << 20) /* of arguments: as much as one request may have */
#define RECEIPT_REPLY_MAX     (64 << 10) /* bytes */

/* Make request->plan, and set request->order, from the arguments of a data command, FENCED,
 * FENCEDALL or SQL. Where that cannot be, the plan is refused and the error is in request->reply.
 */
command_start plan_make;
/* Refuse the plan; `format` NULL: with the error's usual text. Return false. */
bool plan_refuse(struct request *request, enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
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
