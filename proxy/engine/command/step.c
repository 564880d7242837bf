/* SPDX-License-Identifier: Apache-2.0 */
/* See step.h. */
#include "proxy/engine/command/step.h"

#include <stdarg.h>

#include "proxy/engine/command/exec.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/request.h"

#define LOCK_KEY_REFUSED                                                                           \
    "'%.*s' is a lock key, not a key for data, and its resource is '%.*s'; locks take SET key "    \
    "value NX PX ms, GET, PTTL, TTL, EXISTS, DEL and the scripts of lock libraries, outside of "   \
    "MULTI"

bool step_refuse(struct request *request, enum stk_error error, const char *format, ...)
{
    va_list args;

    request->plan.refused = true;
    request->verdict = error;
    buf_clear(&request->reply);
    va_start(args, format);
    resp_verror(&request->reply, error, format, args);
    va_end(args);
    return false;
}

bool step_is_name(struct bytes name)
{
    return name.len >= 1 && name.len <= RESOURCE_NAME_MAX;
}

/* A lock key is no key for data, and no resource: its resource is what the pattern's * stands for.
 */
bool step_is_no_lock(struct request *request, struct bytes name)
{
    const struct lock_patterns *patterns = &request->engine->lock_patterns;
    struct bytes resource;

    if (patterns->count == 0 || !lock_patterns_match(patterns, name, &resource))
        return true;
    return step_refuse(request, STK_ERR, LOCK_KEY_REFUSED, BYTES_CUT(name, 64),
                       BYTES_CUT(resource, 64));
}

bool step_take(struct request *request, size_t at, const struct command *command, struct step *step)
{
    step->command = command;
    step->argc = request->argc - at;
    step->argv = request->argv + at;
    if (step->command->key_first == 0)
        return true;
    for (size_t i = (size_t)step->command->key_first; i <= step_last_key(step);
         i += (size_t)step->command->key_step) {
        if (!step_is_name(step->argv[i]))
            return step_refuse(request, STK_ERR, "a key must be 1 to %d bytes long",
                               RESOURCE_NAME_MAX);
        if (!step_is_no_lock(request, step->argv[i]))
            return false;
    }
    return true;
}

void step_begin(const struct step *step, struct request *request, struct store_txn *txn,
                struct exec *exec)
{
    *exec = (struct exec){.txn = txn,
                          .argc = step->argc,
                          .argv = step->argv,
                          .out = &request->reply,
                          .at = request->reply.len,
                          .replies = &request->engine->replies,
                          .share = &request->share,
                          .cursors = request->engine->cursors,
                          .resp3 = request->resp3,
                          .rights = request->rights,
                          .sql_right = step->sql_right,
                          .sql_limit_ms = request->plan.sql_limit_ms};
}

enum stk_error step_run(const struct step *step, struct exec *exec)
{
    const struct command *command = step->command;
    enum stk_error error;

    if ((command->flags & COMMAND_VALUE) && !step->claims_key) {
        struct bytes value;
        bool found;
        if (txn_failed(error = txn_string_of(exec->txn, step->argv[1], &found, &value)))
            return error;
        if (found)
            return exec_bulk(exec, value);
    }
    if (command->key_first > 0 && !step->claims_key &&
        txn_failed(error =
                       txn_resource(exec->txn, step->argv[command->key_first], &exec->resource)))
        return error;
    return command->exec(exec);
}
