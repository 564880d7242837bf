/* SPDX-License-Identifier: Apache-2.0 */
/* Data commands on their way into the store: FENCED with its token, bare reads, and bare writes
 * where the operator allows them.
 *
 * A write is judged inside the transaction that applies it, a read inside the transaction that
 * serves it: between the judgement and the deed nothing can happen. A refused command has touched
 * nothing. */
#include "fence/base/check.h"
#include "proxy/engine/internal.h"

static bool is_data(const struct command *command)
{
    return command != NULL && command->exec != NULL && command->key_first > 0;
}

void data_prepare(struct request *request)
{
    request->inner_at = 2;
    request->inner = command_find(&request->engine->index, request->argv[2]);
    /* What cannot be run is refused by data_fenced, in its place in the order. */
    if (is_data(request->inner))
        request->order = request->inner->order;
}

/* Judges, then runs. On the store's thread; may run more than once. */
static enum stk_error data_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);
    struct exec exec = {.txn = txn,
                        .argc = request->argc - request->inner_at,
                        .argv = request->argv + request->inner_at,
                        .out = &request->reply,
                        .resp3 = request->resp3};

    buf_clear(&request->reply);
    request->verdict = STK_OK;
    if (request->inner->key_first > 0) {
        enum stk_error error = txn_resource(txn, exec.argv[1], &exec.resource);
        if (error != STK_OK)
            return error;
        if (request->token != 0)
            request->verdict = fence_judge(&exec.resource.fence, request->token);
        else if (op->writes && !fence_unclaimed(&exec.resource.fence))
            request->verdict = STK_NOTOKEN;
        if (request->verdict != STK_OK)
            return STK_OK;
    }
    return request->inner->exec(&exec);
}

bool request_refused(struct request *request)
{
    struct engine_counters *counters = &request->engine->counters;

    if (request->op.error != STK_OK) {
        counters->store_errors++;
        request_fail(request, request->op.error, NULL);
        return true;
    }
    if (request->verdict == STK_OK)
        return false;
    counters->refused_stale += request->verdict == STK_STALE;
    counters->refused_unknown += request->verdict == STK_UNKNOWN;
    counters->refused_notoken += request->verdict == STK_NOTOKEN;
    request_fail(request, request->verdict, NULL);
    return true;
}

static void data_done(struct store_op *op)
{
    struct request *request = request_of_op(op);

    if (request_refused(request))
        return;
    request->engine->counters.fenced_accepted += request->token != 0;
    request_finish(request);
}

/* Key names are checked here once, so that no command has to. */
static bool keys_fit(struct request *request)
{
    const struct command *inner = request->inner;
    size_t argc = request->argc - request->inner_at;

    if (inner->key_first == 0)
        return true;
    size_t last = inner->key_last < 0 ? argc - 1 : (size_t)inner->key_last;
    for (size_t i = (size_t)inner->key_first; i <= last; i += (size_t)inner->key_step)
        if (!request_name(request, request->inner_at + i, "a key"))
            return false;
    bool one = (size_t)inner->key_first + (size_t)inner->key_step > last;
    if (one || (!(inner->flags & COMMAND_WRITES) && request->token == 0))
        return true;
    request_fail(request, STK_ERR, "%s takes one key here: a token belongs to one resource",
                 inner->name);
    return false;
}

void data_start(struct request *request)
{
    bool writes = request->inner->flags & COMMAND_WRITES;

    if (!keys_fit(request))
        return;
    if (writes && request->token == 0 && !request->engine->options.unfenced_writes) {
        request->engine->counters.refused_notoken++;
        request_fail(request, STK_NOTOKEN, NULL);
        return;
    }
    if (request_submit(request, writes, data_run, data_done) != STK_OK)
        request_fail(request, STK_BUSY, NULL);
}

void data_fenced(struct request *request)
{
    if (!request_token(request, 1, &request->token))
        return;
    if (request->inner == NULL) {
        request_fail(request, STK_ERR, "FENCED: unknown command '%.*s'",
                     (int)(request->argv[2].len < 64 ? request->argv[2].len : 64),
                     request->argv[2].data);
        return;
    }
    if (!is_data(request->inner)) {
        request_fail(request, STK_ERR, "FENCED takes a command on a key, not %s",
                     request->inner->name);
        return;
    }
    if (!command_arity_fits(request->inner, request->argc - request->inner_at)) {
        request_fail_arity(request, request->inner->name);
        return;
    }
    data_start(request);
}
