/* SPDX-License-Identifier: Apache-2.0 */
/* Plans in the store: judged, run, and remembered, in one operation.
 *
 * A write is judged inside the transaction that applies it, a read inside the transaction that
 * serves it: between the judgement and the deed nothing can happen. A repeat is looked for before
 * the judgement: what was applied once gets its first reply, whatever has become of its token. A
 * refused plan has changed nothing and leaves no receipt. */
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/session/events.h"
#include "proxy/engine/write/exec.h"

static bool reply_is_error(const struct buf *reply, size_t at)
{
    return reply->len > at && reply->data[at] == '-';
}

/* The whole reply becomes this error. */
static void refuse(struct request *request, enum stk_error error, const char *text)
{
    buf_clear(&request->reply);
    resp_error(&request->reply, error, text != NULL ? "%s" : NULL, text);
}

/* Looks for a receipt of the plan's id on the resource of each claim. */
static enum stk_error replay(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;

    for (size_t i = 0; i < plan->claims_count; i++) {
        enum stk_error error;
        struct resource resource;
        struct receipt receipt;
        bool found = false;

        if (failed(txn_resource(txn, plan->claims[i].resource, &resource)))
            return error;
        if (resource.id != 0 && failed(txn_receipt(txn, &resource, plan->id, &found, &receipt)))
            return error;
        if (!found)
            continue;
        request->replayed = true;
        if (receipt.fingerprint != plan->fingerprint)
            refuse(request, STK_ERR, "this ID was used for another command");
        else
            resp_append_value(&request->reply, receipt.reply, receipt.resp3, request->resp3);
        return STK_OK;
    }
    return STK_OK;
}

/* Judges the claims of a step. `first`: the resource of the first one. */
static enum stk_error judge(struct request *request, struct store_txn *txn, const struct step *step,
                            struct resource *first)
{
    for (size_t i = 0; i < step->claims_count; i++) {
        const struct claim *claim = &step->claims[i];
        enum stk_error error;
        struct resource resource;

        if (failed(txn_resource(txn, claim->resource, &resource)))
            return error;
        if (i == 0)
            *first = resource;
        request->verdict = fence_judge(&resource.fence, claim->token);
        if (request->verdict == STK_OK)
            continue;
        request->refused = claim;
        request->refused_name = claim->resource;
        request->newest = resource.fence.token;
        if (request->plan.claims_count == 1) {
            refuse(request, request->verdict, NULL);
        } else {
            char name[128], text[256];
            snprintf(text, sizeof text, "token %lld of %s: %s", (long long)claim->token,
                     log_quoted(claim->resource, name, sizeof name),
                     stk_error_text(request->verdict));
            refuse(request, request->verdict, text);
        }
        break;
    }
    return STK_OK;
}

/* A write without a token: no key of it may be held. */
static enum stk_error judge_unfenced(struct request *request, struct store_txn *txn,
                                     const struct step *step)
{
    const struct command *command = step->command;
    size_t last = command->key_last < 0 ? step->argc - 1 : (size_t)command->key_last;

    for (size_t i = (size_t)command->key_first; i <= last; i += (size_t)command->key_step) {
        enum stk_error error;
        struct resource resource;
        if (failed(txn_resource(txn, step->argv[i], &resource)))
            return error;
        if (!fence_unclaimed(&resource.fence)) {
            request->verdict = STK_NOTOKEN;
            request->refused_name = step->argv[i];
            refuse(request, STK_NOTOKEN, NULL);
            return STK_OK;
        }
    }
    return STK_OK;
}

/* One step, judged first; its reply is appended. */
static enum stk_error run_step(struct request *request, struct store_txn *txn,
                               const struct step *step)
{
    enum stk_error error;
    struct exec exec = {.txn = txn,
                        .argc = step->argc,
                        .argv = step->argv,
                        .out = &request->reply,
                        .at = request->reply.len,
                        .replies = &request->engine->replies,
                        .share = &request->share,
                        .resp3 = request->resp3,
                        .sql_right = step->sql_right,
                        .sql_limit_ms = request->plan.sql_limit_ms};

    if (failed(step->unfenced ? judge_unfenced(request, txn, step)
                              : judge(request, txn, step, &exec.resource)))
        return error;
    if (request->verdict != STK_OK)
        return STK_OK;
    if ((step->command->flags & COMMAND_VALUE) && !step->claims_key) {
        struct bytes value;
        bool found;
        if (failed(txn_string_of(txn, step->argv[1], &found, &value)))
            return error;
        if (found)
            return exec_bulk(&exec, value);
    }
    if (step->command->key_first > 0 && !step->claims_key &&
        failed(txn_resource(txn, step->argv[step->command->key_first], &exec.resource)))
        return error;
    return step->command->exec(&exec);
}

/* The steps of a transaction, until one fails: then its error is the whole reply. */
static enum stk_error run_steps(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;
    struct buf *reply = &request->reply;

    for (size_t i = 0; plan->judged_first && i < plan->steps_count; i++) {
        struct resource first;
        enum stk_error error = judge(request, txn, &plan->steps[i], &first);
        if (error != STK_OK || request->verdict != STK_OK)
            return error;
    }
    resp_array(reply, plan->steps_count);
    for (size_t i = 0; i < plan->steps_count; i++) {
        size_t at = reply->len;
        enum stk_error error = run_step(request, txn, &plan->steps[i]);
        if (error != STK_OK)
            return error;
        if (request->verdict != STK_OK)
            return STK_OK;
        if (reply_is_error(reply, at)) {
            buf_consume(reply, at);
            return STK_OK;
        }
        if (reply->len > REPLY_BYTES_MAX) {
            refuse(request, STK_ERR,
                   "the transaction's replies are too large; nothing was applied");
            return STK_OK;
        }
    }
    return STK_OK;
}

/* The receipts, one for each resource. Returns an error where the reply is too large for one. */
static enum stk_error remember(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;
    struct receipt receipt = {.fingerprint = plan->fingerprint,
                              .resp3 = request->resp3,
                              .reply = buf_bytes(&request->reply)};

    if (receipt.reply.len > RECEIPT_REPLY_MAX) {
        refuse(request, STK_ERR,
               "the reply is too large to be kept for a repeat; nothing was applied");
        return STK_ERR;
    }
    for (size_t i = 0; i < plan->claims_count; i++) {
        enum stk_error error;
        struct resource resource;
        struct receipt present;
        bool found = false;
        if (failed(txn_resource(txn, plan->claims[i].resource, &resource)))
            return error;
        if (i > 0 && failed(txn_receipt(txn, &resource, plan->id, &found, &present)))
            return error;
        receipt.token = plan->claims[i].token;
        if (!found && failed(txn_receipt_put(txn, &resource, plan->id, &receipt)))
            return error;
    }
    return STK_OK;
}

/* Does it and remembers it, or undoes it. */
static enum stk_error apply(struct request *request, struct store_txn *txn)
{
    const struct plan *plan = &request->plan;
    bool marked = plan->marked && request->op.writes;
    enum stk_error error;

    if (plan->claims_count > 0)
        txn_present(txn, plan->claims, plan->claims_count);
    if (marked && failed(txn_mark(txn)))
        return error;
    error = plan->whole ? run_steps(request, txn) : run_step(request, txn, &plan->steps[0]);
    if (error == STK_BUSY)
        replies_refuse(&request->engine->replies, &request->reply);
    if (error != STK_OK)
        return error;
    if (request->verdict != STK_OK || reply_is_error(&request->reply, 0))
        return marked ? txn_mark_undo(txn) : plan->whole ? STK_ERR : STK_OK;
    if (plan->id.len > 0 && failed(remember(request, txn)))
        return error;
    return marked ? txn_mark_keep(txn) : STK_OK;
}

/* On the store's thread; may run more than once. An error of its own (not STK_STORE) comes with the
 * reply that says why. */
static enum stk_error data_run(struct store_op *op, struct store_txn *txn)
{
    struct request *request = request_of_op(op);

    buf_clear(&request->reply);
    replies_count(&request->engine->replies, &request->share, 0);
    request->verdict = STK_OK;
    request->refused = NULL;
    request->replayed = false;
    if (request->plan.id.len > 0) {
        enum stk_error error = replay(request, txn);
        if (error != STK_OK || request->replayed)
            return error;
    }
    return apply(request, txn);
}

static void count_verdict(struct engine_counters *counters, enum stk_error verdict)
{
    counters->refused_stale += verdict == STK_STALE;
    counters->refused_unknown += verdict == STK_UNKNOWN;
    counters->refused_notoken += verdict == STK_NOTOKEN;
}

void request_count_refusal(struct request *request)
{
    enum stk_error verdict = request->verdict;

    if (verdict == STK_OK)
        return;
    count_verdict(&request->engine->counters, verdict);
    if (verdict == STK_STALE || verdict == STK_UNKNOWN || verdict == STK_NOTOKEN)
        note_refused(request, verdict);
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
    count_verdict(counters, request->verdict);
    request_fail(request, request->verdict, NULL);
    return true;
}

static void publish_refusal(const struct request *request)
{
    const struct claim *claim = request->refused;

    if (claim != NULL)
        events_publish(request->engine, &(struct event){.kind = EVENT_REFUSED,
                                                        .resource = claim->resource,
                                                        .token = claim->token,
                                                        .newest = request->newest});
}

static bool is_guarded(const struct buf *reply)
{
    static const struct bytes start = BYTES_LITERAL("-GUARDED ");
    return reply_is_error(reply, 0) && reply->len > start.len &&
           memcmp(reply->data, start.data, start.len) == 0;
}

static void data_done(struct store_op *op)
{
    struct request *request = request_of_op(op);
    struct engine_counters *counters = &request->engine->counters;

    if (op->error == STK_STORE || (op->error != STK_OK && request->reply.len == 0)) {
        (void)request_refused(request);
        return;
    }
    if (op->error == STK_BUSY) { /* there is no room for the reply, which says so now */
        counters->refused_busy++;
        request_finish(request);
        return;
    }
    request_count_refusal(request);
    if (is_guarded(&request->reply))
        note_refused(request, STK_GUARDED);
    publish_refusal(request);
    counters->receipts_replayed += request->replayed;
    if (request->verdict == STK_OK && !request->replayed)
        counters->fenced_accepted += request->plan.claims_count > 0;
    if (request->plan.whole && reply_is_error(&request->reply, 0))
        request->engine->marks_left = MARKS_AFTER_FAILURE;
    else if (request->plan.whole)
        counters->transactions_committed += !request->replayed;
    request_finish(request);
}

void data_start(struct request *request)
{
    if (request->plan.refused) {
        request_count_refusal(request);
        request_finish(request);
        return;
    }
    request->plan.sql_limit_ms = request->engine->options.sql_limit_ms;
    if (request_submit(request, request->order == ORDER_WRITE, data_run, data_done) != STK_OK)
        request_fail(request, STK_BUSY, NULL);
}

void data_fenced(struct request *request)
{
    data_start(request);
}

void data_fenced_all(struct request *request)
{
    data_start(request);
}
