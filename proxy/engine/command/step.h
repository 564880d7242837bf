/* SPDX-License-Identifier: Apache-2.0 */
/* A step: one data command as it runs in the store, alone (read.c) or as part of a plan
 * (write/plan.h). */
#ifndef STOCKADE_ENGINE_STEP_H
#define STOCKADE_ENGINE_STEP_H

#include "proxy/engine/command/command.h"
#include "store/sql.h"
#include "store/txn.h"

struct exec;
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

/* Its keys are at key_first, and on by key_step up to this. */
size_t step_last_key(const struct step *step);

/* Fill in the step of a command that begins at argv[at], and check the names of its keys. False: it
 * is refused. */
bool step_take(struct request *request, size_t at, const struct command *command,
               struct step *step);
/* Refuse what the request asks for, before it starts: the error is in its reply. `format` NULL:
 * with the error's usual text. Return false. */
bool step_refuse(struct request *request, enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Has it a name's length? */
bool step_is_name(struct bytes name);
/* May this be a name of a key, as far as lock keys go? False: it is refused. */
bool step_is_no_lock(struct request *request, struct bytes name);

/* In the store, on its thread: prepare to run the step, whose reply is appended. */
void step_begin(const struct step *step, struct request *request, struct store_txn *txn,
                struct exec *exec);
/* Run it; where its only claim is for its key, exec->resource is known. */
enum stk_error step_run(const struct step *step, struct exec *exec);

/* read.c: data commands that only read, without a token. */
command_start read_prepare, read_start;

#endif
