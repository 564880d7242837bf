/* SPDX-License-Identifier: Apache-2.0 */
/* The sweeper: removes old receipts and resources that nobody uses, in small operations between
 * which everybody else's writes pass. It checks once a second, and goes on at once while there is
 * more. The check only reads, and a write follows where something is due: an idle daemon commits
 * nothing.
 *
 *   idle ──each second──▶ checking ──something is due──▶ sweeping ──▶ checking on, or idle
 *                             └──nothing is due──▶ checking on, or idle */
#include "proxy/engine/sweep.h"

#include <stdlib.h>

#include "fence/base/mem.h"
#include "proxy/engine/internal.h"
#include "store/txn.h"

#define SWEEP_EVERY_MS     1000
#define SWEEP_ROWS_MAX     128
#define RESOURCES_EVERY_MS (10 * 60 * 1000) /* from the end of one walk to the next */
/* A live token whose row was not written for so long has no lease any more: leases last at most
 * LEASE_TTL_MAX_MS, and renewals write the row once an hour. A daemon that starts may hold the
 * leases of its last run for their full time again, however old they are. */
#define ABANDONED_MS (26 * 60 * 60 * 1000LL)

struct sweeper {
    struct timer timer;
    struct store_op op;
    struct engine *engine;
    bool under_way;
    int64_t resources_after; /* where the walk over the resources is: an id */
    int64_t walk_due_ms;
    /* The operation's. */
    bool walks, ends_abandoned, due, more;
    int64_t walked_to;
    size_t receipts_removed, resources_removed;
};

static int64_t receipts_before_ms(const struct sweeper *sweeper, struct store_txn *txn)
{
    return txn_now_ms(txn) - sweeper->engine->options.receipts_keep_ms;
}

static int64_t resources_before_ms(const struct sweeper *sweeper, struct store_txn *txn)
{
    return txn_now_ms(txn) - sweeper->engine->options.forget_ms;
}

static int64_t live_before_ms(const struct sweeper *sweeper, struct store_txn *txn)
{
    return sweeper->ends_abandoned ? resources_before_ms(sweeper, txn) - ABANDONED_MS : INT64_MIN;
}

static enum stk_error check_run(struct store_op *op, struct store_txn *txn)
{
    struct sweeper *sweeper = list_entry(op, struct sweeper, op);
    enum stk_error error = txn_receipts_due(txn, receipts_before_ms(sweeper, txn), &sweeper->due);

    sweeper->walked_to = sweeper->resources_after;
    sweeper->more = false;
    if (error == STK_OK && sweeper->walks && !sweeper->due)
        error =
            txn_resources_due(txn, resources_before_ms(sweeper, txn), live_before_ms(sweeper, txn),
                              SWEEP_ROWS_MAX, &sweeper->walked_to, &sweeper->due, &sweeper->more);
    return error;
}

static enum stk_error sweep_run(struct store_op *op, struct store_txn *txn)
{
    struct sweeper *sweeper = list_entry(op, struct sweeper, op);
    bool more_receipts = false, more_resources = false;

    sweeper->receipts_removed = sweeper->resources_removed = 0;
    sweeper->walked_to = sweeper->resources_after;
    enum stk_error error = txn_sweep_receipts(txn, receipts_before_ms(sweeper, txn), SWEEP_ROWS_MAX,
                                              &sweeper->receipts_removed, &more_receipts);
    if (error == STK_OK && sweeper->walks)
        error = txn_sweep_resources(
            txn, resources_before_ms(sweeper, txn), live_before_ms(sweeper, txn), SWEEP_ROWS_MAX,
            &sweeper->walked_to, &sweeper->resources_removed, &more_resources);
    sweeper->more = more_receipts || more_resources;
    return error;
}

static void check_due(struct sweeper *sweeper);

static void go_on(struct sweeper *sweeper)
{
    struct engine *engine = sweeper->engine;

    sweeper->resources_after = sweeper->walked_to;
    if (sweeper->walks && sweeper->walked_to == 0)
        sweeper->walk_due_ms = engine_now_ms(engine) + RESOURCES_EVERY_MS;
    if (sweeper->more && !engine->draining)
        check_due(sweeper);
    else
        engine->counters.sweeps++;
}

static void submit(struct sweeper *sweeper, const struct store_op *op)
{
    sweeper->op = *op;
    sweeper->op.submitted_us = sweeper->engine->now_us;
    list_init(&sweeper->op.link);
    if (store_submit(sweeper->engine->options.store, &sweeper->op) != STK_OK)
        return; /* the next time, then */
    sweeper->under_way = true;
    sweeper->engine->requests_open++;
}

static bool ended_well(struct sweeper *sweeper)
{
    sweeper->under_way = false;
    sweeper->engine->requests_open--;
    return sweeper->op.error == STK_OK;
}

static void sweep_done(struct store_op *op)
{
    struct sweeper *sweeper = list_entry(op, struct sweeper, op);

    if (!ended_well(sweeper))
        return;
    sweeper->engine->counters.receipts_removed += sweeper->receipts_removed;
    sweeper->engine->counters.resources_forgotten += sweeper->resources_removed;
    go_on(sweeper);
}

static void check_done(struct store_op *op)
{
    struct sweeper *sweeper = list_entry(op, struct sweeper, op);

    if (!ended_well(sweeper))
        return;
    if (!sweeper->due)
        go_on(sweeper);
    else if (!sweeper->engine->draining)
        submit(sweeper, &(struct store_op){.writes = true, .run = sweep_run, .done = sweep_done});
}

static void check_due(struct sweeper *sweeper)
{
    const struct engine *engine = sweeper->engine;
    int64_t now_ms = engine_now_ms(engine);

    sweeper->walks = engine->options.forget_ms > 0 && now_ms >= sweeper->walk_due_ms;
    sweeper->ends_abandoned = now_ms - engine->started_ms >= ABANDONED_MS;
    submit(sweeper, &(struct store_op){.brief = true, .run = check_run, .done = check_done});
}

static void on_timer(struct timer *timer)
{
    struct sweeper *sweeper = list_entry(timer, struct sweeper, timer);

    conditions_look(sweeper->engine);
    if (!sweeper->under_way && !sweeper->engine->draining)
        check_due(sweeper);
    timer_set(sweeper->engine, timer, engine_now_ms(sweeper->engine) + SWEEP_EVERY_MS);
}

struct sweeper *sweeper_new(struct engine *engine)
{
    struct sweeper *sweeper = mem_zalloc(sizeof *sweeper);

    sweeper->engine = engine;
    sweeper->timer.fire = on_timer;
    timer_set(engine, &sweeper->timer, engine_now_ms(engine) + SWEEP_EVERY_MS);
    return sweeper;
}

void sweeper_free(struct sweeper *sweeper)
{
    timer_stop(sweeper->engine, &sweeper->timer);
    free(sweeper);
}
