/* SPDX-License-Identifier: Apache-2.0 */
/* A look goes down this file: one read of the store tells what it knows of all of them, and then
 * the lease service is asked about each, several at a time, until one of them is known to be held.
 * What fails ends it, once no question is under way any more. */
#include "proxy/engine/lease/look_all.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/mem.h"

static void read_done(struct store_op *op);
static void on_answered(struct lease_call *call);

struct look_all *look_all_new(struct engine *engine, size_t count)
{
    struct look_all *look = mem_zalloc(sizeof *look + count * sizeof *look->items);

    look->engine = engine;
    look->denied_at = look->count = count;
    return look;
}

/* The first failure is the one that is told. */
static void fail(struct look_all *look, enum stk_error error, const char *reason)
{
    if (look->error != STK_OK)
        return;
    look->error = error;
    snprintf(look->reason, sizeof look->reason, "%s", reason != NULL ? reason : "");
}

/* What the store knows. */

static enum stk_error read_item(struct look_all *look, struct store_txn *txn,
                                struct look_item *item)
{
    struct resource row;
    enum id_use use = ID_UNUSED;
    enum stk_error error = lease_read(
        txn, item->resource, store_opening(look->engine->options.store), &row, &item->record, NULL);

    if (error == STK_OK && look->id.len > 0 && row.id != 0)
        error = lease_find_repeat(txn, &row, look->id, look->fingerprint, &use);
    item->repeats = use == ID_REPEATS;
    if (look->id_use <= ID_REPEATS)
        look->id_use = use;
    item->enters = item->repeats || (look->owner.len > 0 && item->record.live &&
                                     strcmp(item->record.nonce, look->nonce) == 0);
    return error;
}

static enum stk_error read_run(struct store_op *op, struct store_txn *txn)
{
    struct look_all *look = list_entry(op, struct look_all, op);
    enum stk_error error = STK_OK;

    look->id_use = ID_UNUSED;
    for (size_t i = 0; error == STK_OK && i < look->count; i++)
        error = read_item(look, txn, &look->items[i]);
    return error;
}

void look_all_start(struct look_all *look)
{
    if (look->owner.len > 0)
        lease_nonce(look->owner, false, look->nonce);
    if (lease_submit(look->engine, &look->op, false, look->items[0].resource, read_run,
                     read_done) == STK_OK)
        return;
    fail(look, STK_BUSY, NULL);
    look->on_end(look);
}

/* What the lease service says. */

static void ask(struct look_question *question, enum lease_verb verb)
{
    struct look_all *look = question->look;
    const struct look_item *item = &look->items[question->at];

    question->busy = true;
    look->busy++;
    question->call = (struct lease_call){.verb = verb,
                                         .resource = item->resource,
                                         .ttl_ms = look->ttl_ms,
                                         .floor = item->record.floor,
                                         .reentry_only = true,
                                         .asked_ms = engine_now_ms(look->engine),
                                         .record = item->record,
                                         .done = on_answered};
    memcpy(question->call.nonce, look->nonce, sizeof question->call.nonce);
    lease_ask(look->engine->options.provider, &question->call);
}

/* Ask about as many as may be asked at once, unless it is known already that not all are free. */
static void ask_on(struct look_all *look)
{
    if (look->asking)
        return;
    look->asking = true;
    for (size_t i = 0; i < LOOKS_MAX; i++)
        while (!look->questions[i].busy && look->next < look->count &&
               look->denied_at == look->count && look->error == STK_OK) {
            look->questions[i].look = look;
            look->questions[i].at = look->next++;
            ask(&look->questions[i], LEASE_QUERY);
        }
    look->asking = false;
    if (look->busy == 0)
        look->on_end(look);
}

static void read_done(struct store_op *op)
{
    struct look_all *look = list_entry(op, struct look_all, op);

    if (op->error != STK_OK) {
        look->engine->counters.store_errors++;
        fail(look, op->error, NULL);
    } else if (look->id_use == ID_MISUSED) {
        fail(look, STK_ERR, ID_OF_ANOTHER);
    } else if (look->id_use == ID_OVER) {
        fail(look, STK_STALE, ID_LEASES_OVER);
    }
    ask_on(look);
}

/* May it be taken, as far as its lease service and its line say? */
static bool is_free(const struct look_item *item, const struct lease_call *call)
{
    if (call->answer == LEASE_FREE)
        return line_is_head(item->waiter) || (item->repeats && item->record.unexpired);
    if (call->answer == LEASE_HELD)
        return item->enters && call->answer_token == item->record.token;
    return call->answer == LEASE_OWN;
}

static void on_answered(struct lease_call *call)
{
    struct look_question *question = list_entry(call, struct look_question, call);
    struct look_all *look = question->look;
    struct look_item *item = &look->items[question->at];
    /* Its own, by a grant that the store never saw? Only this question tells. */
    bool may_be_own = call->verb == LEASE_QUERY && call->answer == LEASE_HELD &&
                      look->owner.len > 0 && call->answer_token != item->record.token;

    question->busy = false;
    look->busy--;
    if (call->answer == LEASE_FREE && !(item->repeats && item->record.unexpired))
        item->enters = false; /* it has expired: one more is to be had */
    if (call->answer == LEASE_DOWN) {
        fail(look, STK_LEASEDOWN, call->reason);
    } else if (may_be_own) {
        ask(question, LEASE_GRANT);
        return;
    } else if (!is_free(item, call) && question->at < look->denied_at) {
        look->denied_at = question->at;
        look->denial = *call;
    }
    ask_on(look);
}
