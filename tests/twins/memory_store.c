/* SPDX-License-Identifier: Apache-2.0 */
/* The store's in-memory twin: queues and batches. What a transaction does is memory_txn.c's.
 *
 * A batch is one transaction; an operation that fails is undone alone, a commit that fails undoes
 * the whole batch. store_memory_fail makes that happen. */
#include "tests/twins/memory_store.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/clock.h"
#include "store/open.h"
#include "store/txn.h"
#include "tests/twins/memory_rows.h"

struct queue {
    struct list ops;
    size_t count;
};

struct memory_store {
    struct store base;
    struct memory_rows *rows;
    struct store_clock clock;
    struct queue writes, reads;
    struct list done;
    size_t queue_max, batch_max;
    struct store_stats stats;
    enum memory_fault fault;
    int64_t opening;
    bool full, lost, holds_writes;
};

static struct memory_store *of(struct store *store)
{
    return (struct memory_store *)store;
}

static enum stk_error memory_submit(struct store *base, struct store_op *op)
{
    struct memory_store *store = of(base);
    struct queue *queue = op->writes ? &store->writes : &store->reads;

    if (queue->count >= store->queue_max || store->full || store->lost)
        return STK_BUSY;
    list_append(&queue->ops, &op->link);
    queue->count++;
    return STK_OK;
}

static size_t take(struct memory_store *store, struct queue *queue, struct list *batch)
{
    size_t count = 0;
    struct list *link;

    list_init(batch);
    while (count < store->batch_max && (link = list_pop(&queue->ops)) != NULL) {
        list_append(batch, link);
        count++;
    }
    queue->count -= count;
    return count;
}

static void run(struct memory_store *store, struct list *batch, bool writes)
{
    memory_rows_run(store->rows, batch, writes, store_clock_now_ms(&store->clock));
}

/* False: its outcome is unknown, and what it did is undone. */
static bool commit(struct memory_store *store, struct list *batch)
{
    enum memory_fault fault = store->fault;

    store->fault = MEMORY_FINE;
    if (fault == MEMORY_FINE) {
        store->stats.commits++;
        memory_rows_commit(store->rows);
        return true;
    }
    store->stats.failed_commits++;
    memory_rows_undo(store->rows, 0);
    for (struct list *at = batch->next; at != batch; at = at->next)
        list_entry(at, struct store_op, link)->error = STK_STORE;
    return fault != MEMORY_COMMIT_LOST;
}

static void step_writes(struct memory_store *store, size_t count, struct list *batch)
{
    run(store, batch, true);
    if (!commit(store, batch)) {
        store->lost = true;
        return;
    }
    store->stats.writes += count;
    if (count > store->stats.batch_writes_max)
        store->stats.batch_writes_max = count;
    list_splice(&store->done, batch);
}

static bool memory_step(struct store *base)
{
    struct memory_store *store = of(base);
    struct list batch;

    if (store->lost)
        return false;
    size_t writes = store->holds_writes ? 0 : take(store, &store->writes, &batch);
    if (writes > 0)
        step_writes(store, writes, &batch);
    size_t reads = take(store, &store->reads, &batch);
    if (reads > 0) {
        run(store, &batch, false);
        store->stats.reads += reads;
        store->stats.read_batches++;
        list_splice(&store->done, &batch);
    }
    return writes + reads > 0;
}

static void memory_collect(struct store *base)
{
    struct list done, *link;

    list_init(&done);
    list_splice(&done, &of(base)->done);
    while ((link = list_pop(&done)) != NULL) {
        struct store_op *op = list_entry(link, struct store_op, link);
        op->done(op);
    }
}

static bool memory_lost(const struct store *base)
{
    return ((const struct memory_store *)base)->lost;
}

static int64_t memory_opening(const struct store *base)
{
    return ((const struct memory_store *)base)->opening;
}

static struct store_stats memory_stats(const struct store *base)
{
    const struct memory_store *store = (const struct memory_store *)base;
    struct store_stats stats = store->stats;

    stats.writes_queued = store->writes.count;
    stats.reads_queued = store->reads.count;
    return stats;
}

static void memory_close(struct store *base)
{
    struct memory_store *store = of(base);

    store->holds_writes = false;
    while (memory_step(base))
        ;
    store->lost = true; /* takes no more */
    memory_collect(base);
    memory_rows_free(store->rows);
    free(store);
}

static const struct store_impl memory_impl = {
    .submit = memory_submit,
    .collect = memory_collect,
    .step = memory_step,
    .lost = memory_lost,
    .opening = memory_opening,
    .stats = memory_stats,
    .close = memory_close,
};

struct store *store_memory_new(const struct store_options *options)
{
    struct memory_store *store = mem_zalloc(sizeof *store);

    check(options->queue_ops_max > 0 && options->batch_ops_max > 0 && !options->threads);
    store->base.impl = &memory_impl;
    store->rows = memory_rows_new(&memory_txn_impl);
    store_clock_init(&store->clock, options->clock);
    (void)store_clock_resume(&store->clock, &(struct store_clock_note){0});
    list_init(&store->writes.ops);
    list_init(&store->reads.ops);
    list_init(&store->done);
    store->queue_max = options->queue_ops_max;
    store->batch_max = options->batch_ops_max;
    store->opening = STORE_OPENING_FIRST;
    return &store->base;
}

void store_memory_fail(struct store *base, enum memory_fault fault)
{
    check(base->impl == &memory_impl);
    of(base)->fault = fault;
}

void store_memory_fail_call(struct store *base, int nth)
{
    of(base)->rows->calls_left = nth;
    of(base)->rows->failed = false;
}

bool store_memory_has_failed(struct store *base)
{
    return of(base)->rows->failed;
}

void store_memory_set_full(struct store *base, bool full)
{
    of(base)->full = full;
}

void store_memory_run_once(struct store *base)
{
    of(base)->rows->once = true;
}

void store_memory_hold_writes(struct store *base, bool hold)
{
    of(base)->holds_writes = hold;
}

void store_memory_set_opening(struct store *base, int64_t opening)
{
    of(base)->opening = opening;
}
