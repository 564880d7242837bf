/* SPDX-License-Identifier: Apache-2.0 */
/* The sweeper: removes old receipts and forgotten resources, in small operations between which
 * everybody else's writes pass. It looks once a second, and goes on at once while there is more. */
#include "proxy/engine/internal.h"

#define SWEEP_EVERY_MS     1000
#define SWEEP_ROWS_MAX     128
#define RESOURCES_EVERY_MS (10 * 60 * 1000) /* from the end of one walk to the next */
/* A live token whose row was not written for so long has no lease any more: leases last at most
 * LEASE_TTL_MAX_MS, and renewals write the row once an hour. */
#define ABANDONED_MS (26 * 60 * 60 * 1000LL)

static enum stk_error sweep_run(struct store_op *op, struct store_txn *txn)
{
    struct sweeper *sweeper = list_entry(op, struct sweeper, op);
    const struct engine_options *options = &sweeper->engine->options;
    int64_t now_ms = txn_now_ms(txn), after = sweeper->resources_after;
    bool more_receipts = false, more_resources = false;

    sweeper->receipts_removed = sweeper->resources_removed = 0;
    enum stk_error error =
        txn_sweep_receipts(txn, now_ms - options->receipts_keep_ms, SWEEP_ROWS_MAX,
                           &sweeper->receipts_removed, &more_receipts);
    if (error == STK_OK && sweeper->walks) {
        int64_t before_ms = now_ms - options->forget_ms;
        error = txn_sweep_resources(txn, before_ms, before_ms - ABANDONED_MS, SWEEP_ROWS_MAX,
                                    &after, &sweeper->resources_removed, &more_resources);
    }
    sweeper->walked_to = after;
    sweeper->more = more_receipts || more_resources;
    return error;
}

static void sweep(struct sweeper *sweeper);

static void sweep_done(struct store_op *op)
{
    struct sweeper *sweeper = list_entry(op, struct sweeper, op);
    struct engine *engine = sweeper->engine;

    sweeper->under_way = false;
    engine->requests_open--;
    if (op->error == STK_OK) {
        engine->counters.receipts_removed += sweeper->receipts_removed;
        engine->counters.resources_forgotten += sweeper->resources_removed;
        sweeper->resources_after = sweeper->walked_to;
        if (sweeper->walks && sweeper->walked_to == 0)
            sweeper->walk_due_ms = engine_now_ms(engine) + RESOURCES_EVERY_MS;
        if (sweeper->more && !engine->draining)
            sweep(sweeper);
    }
}

static void sweep(struct sweeper *sweeper)
{
    struct engine *engine = sweeper->engine;

    sweeper->walks = engine->options.forget_ms > 0 && engine_now_ms(engine) >= sweeper->walk_due_ms;
    sweeper->op = (struct store_op){.writes = true, .run = sweep_run, .done = sweep_done};
    list_init(&sweeper->op.link);
    if (store_submit(engine->options.store, &sweeper->op) != STK_OK)
        return; /* the next time, then */
    sweeper->under_way = true;
    engine->requests_open++;
}

static void on_timer(struct timer *timer)
{
    struct sweeper *sweeper = list_entry(timer, struct sweeper, timer);

    if (!sweeper->under_way && !sweeper->engine->draining)
        sweep(sweeper);
    timer_set(sweeper->engine, timer, engine_now_ms(sweeper->engine) + SWEEP_EVERY_MS);
}

void sweeper_start(struct engine *engine)
{
    engine->sweeper.engine = engine;
    engine->sweeper.timer.fire = on_timer;
    timer_set(engine, &engine->sweeper.timer, engine_now_ms(engine) + SWEEP_EVERY_MS);
}

void sweeper_stop(struct engine *engine)
{
    timer_stop(engine, &engine->sweeper.timer);
}
