/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation is wrapped, so that it runs over a transaction that counts its calls, and hands
 * them on to the memory store's. */
#include "tests/unit/engine/moody_store.h"

#include <stdlib.h>

#include "fence/base/mem.h"
#include "store/txn.h"

struct moody {
    struct store base;
    struct store *inner;
    int left; /* calls until one fails; 0: none does */
    bool failed, full;
    int64_t session; /* 0: as it is */
};

struct moody_txn {
    struct store_txn base;
    struct store_txn *inner;
    struct moody *store;
};

struct wrapped {
    struct store_op op;
    struct store_op *outer;
    struct moody *store;
};

static struct store_txn *inner(struct store_txn *base)
{
    return ((struct moody_txn *)base)->inner;
}

/* One more call: is it the one that fails? */
static bool fails(struct store_txn *base)
{
    struct moody *store = ((struct moody_txn *)base)->store;

    if (store->left == 0 || --store->left > 0)
        return false;
    store->failed = true;
    return true;
}

static int64_t on_now_ms(struct store_txn *base)
{
    return txn_now_ms(inner(base));
}

static enum stk_error on_mark(struct store_txn *base)
{
    return fails(base) ? STK_STORE : txn_mark(inner(base));
}

static enum stk_error on_mark_keep(struct store_txn *base)
{
    return fails(base) ? STK_STORE : txn_mark_keep(inner(base));
}

static enum stk_error on_mark_undo(struct store_txn *base)
{
    return fails(base) ? STK_STORE : txn_mark_undo(inner(base));
}

static enum stk_error on_resource(struct store_txn *base, struct bytes name, struct resource *row)
{
    return fails(base) ? STK_STORE : txn_resource(inner(base), name, row);
}

static enum stk_error on_make(struct store_txn *base, struct bytes name, struct resource *row)
{
    return fails(base) ? STK_STORE : txn_resource_make(inner(base), name, row);
}

static enum stk_error on_fence_put(struct store_txn *base, const struct resource *row,
                                   const struct lease *lease)
{
    return fails(base) ? STK_STORE : txn_fence_put(inner(base), row, lease);
}

static enum stk_error on_lease(struct store_txn *base, const struct resource *row,
                               struct lease *lease)
{
    return fails(base) ? STK_STORE : txn_lease(inner(base), row, lease);
}

static enum stk_error on_each_live(struct store_txn *base, int64_t after, txn_each_name each,
                                   void *context)
{
    return fails(base) ? STK_STORE : txn_each_live(inner(base), after, each, context);
}

static enum stk_error on_each_key(struct store_txn *base, int64_t after, txn_each_name each,
                                  void *context)
{
    return fails(base) ? STK_STORE : txn_each_key(inner(base), after, each, context);
}

static enum stk_error on_count_keys(struct store_txn *base, int64_t *count)
{
    return fails(base) ? STK_STORE : txn_count_keys(inner(base), count);
}

static enum stk_error on_count_live(struct store_txn *base, int64_t *count)
{
    return fails(base) ? STK_STORE : txn_count_live(inner(base), count);
}

static enum stk_error on_string(struct store_txn *base, const struct resource *row, bool *found,
                                struct bytes *value)
{
    return fails(base) ? STK_STORE : txn_string(inner(base), row, found, value);
}

static enum stk_error on_string_put(struct store_txn *base, struct resource *row,
                                    struct bytes value)
{
    return fails(base) ? STK_STORE : txn_string_put(inner(base), row, value);
}

static enum stk_error on_field(struct store_txn *base, const struct resource *row,
                               struct bytes field, bool *found, struct bytes *value)
{
    return fails(base) ? STK_STORE : txn_field(inner(base), row, field, found, value);
}

static enum stk_error on_field_put(struct store_txn *base, struct resource *row, struct bytes field,
                                   struct bytes value)
{
    return fails(base) ? STK_STORE : txn_field_put(inner(base), row, field, value);
}

static enum stk_error on_field_remove(struct store_txn *base, struct resource *row,
                                      struct bytes field, bool *found)
{
    return fails(base) ? STK_STORE : txn_field_remove(inner(base), row, field, found);
}

static enum stk_error on_each_field(struct store_txn *base, const struct resource *row,
                                    struct bytes from, txn_each_field each, void *context)
{
    return fails(base) ? STK_STORE : txn_each_field_from(inner(base), row, from, each, context);
}

static enum stk_error on_count_fields(struct store_txn *base, const struct resource *row,
                                      int64_t *count)
{
    return fails(base) ? STK_STORE : txn_count_fields(inner(base), row, count);
}

static enum stk_error on_clear(struct store_txn *base, struct resource *row)
{
    return fails(base) ? STK_STORE : txn_value_clear(inner(base), row);
}

static enum stk_error on_receipt(struct store_txn *base, const struct resource *row,
                                 struct bytes id, bool *found, struct receipt *receipt)
{
    return fails(base) ? STK_STORE : txn_receipt(inner(base), row, id, found, receipt);
}

static enum stk_error on_receipt_put(struct store_txn *base, const struct resource *row,
                                     struct bytes id, const struct receipt *receipt)
{
    return fails(base) ? STK_STORE : txn_receipt_put(inner(base), row, id, receipt);
}

static enum stk_error on_receipt_remove(struct store_txn *base, const struct resource *row,
                                        struct bytes id)
{
    return fails(base) ? STK_STORE : txn_receipt_remove(inner(base), row, id);
}

static enum stk_error on_sweep_receipts(struct store_txn *base, int64_t before_ms, size_t max,
                                        size_t *removed, bool *more)
{
    return fails(base) ? STK_STORE : txn_sweep_receipts(inner(base), before_ms, max, removed, more);
}

static enum stk_error on_sweep_resources(struct store_txn *base, int64_t before_ms,
                                         int64_t live_before_ms, size_t max, int64_t *after,
                                         size_t *removed, bool *more)
{
    return fails(base) ? STK_STORE
                       : txn_sweep_resources(inner(base), before_ms, live_before_ms, max, after,
                                             removed, more);
}

static enum stk_error on_receipts_due(struct store_txn *base, int64_t before_ms, bool *due)
{
    return fails(base) ? STK_STORE : txn_receipts_due(inner(base), before_ms, due);
}

static enum stk_error on_resources_due(struct store_txn *base, int64_t before_ms,
                                       int64_t live_before_ms, size_t max, int64_t *after,
                                       bool *due, bool *more)
{
    return fails(base)
               ? STK_STORE
               : txn_resources_due(inner(base), before_ms, live_before_ms, max, after, due, more);
}

static enum stk_error on_flush(struct store_txn *base)
{
    return fails(base) ? STK_STORE : txn_flush(inner(base));
}

static const struct store_txn_impl txn_impl = {
    .now_ms = on_now_ms,
    .mark = on_mark,
    .mark_keep = on_mark_keep,
    .mark_undo = on_mark_undo,
    .resource = on_resource,
    .resource_make = on_make,
    .fence_put = on_fence_put,
    .lease = on_lease,
    .each_live = on_each_live,
    .each_key = on_each_key,
    .count_keys = on_count_keys,
    .count_live = on_count_live,
    .string = on_string,
    .string_put = on_string_put,
    .field = on_field,
    .field_put = on_field_put,
    .field_remove = on_field_remove,
    .each_field_from = on_each_field,
    .count_fields = on_count_fields,
    .value_clear = on_clear,
    .receipt = on_receipt,
    .receipt_put = on_receipt_put,
    .receipt_remove = on_receipt_remove,
    .sweep_receipts = on_sweep_receipts,
    .sweep_resources = on_sweep_resources,
    .receipts_due = on_receipts_due,
    .resources_due = on_resources_due,
    .flush = on_flush,
};

static enum stk_error wrapped_run(struct store_op *op, struct store_txn *txn)
{
    struct wrapped *wrapped = (struct wrapped *)op;
    struct moody_txn moody = {.base = {&txn_impl}, .inner = txn, .store = wrapped->store};

    return wrapped->outer->run(wrapped->outer, &moody.base);
}

static void wrapped_done(struct store_op *op)
{
    struct store_op *outer = ((struct wrapped *)op)->outer;

    outer->error = op->error;
    free(op);
    outer->done(outer);
}

static enum stk_error moody_submit(struct store *base, struct store_op *op)
{
    struct moody *store = (struct moody *)base;

    if (store->full)
        return STK_BUSY;
    struct wrapped *wrapped = mem_zalloc(sizeof *wrapped);
    *wrapped = (struct wrapped){
        .op = {.writes = op->writes, .slow = op->slow, .run = wrapped_run, .done = wrapped_done},
        .outer = op,
        .store = store,
    };
    list_init(&wrapped->op.link);
    return store_submit(store->inner, &wrapped->op);
}

static void moody_collect(struct store *base)
{
    store_collect(((struct moody *)base)->inner);
}

static bool moody_step(struct store *base)
{
    return store_step(((struct moody *)base)->inner);
}

static bool moody_lost(const struct store *base)
{
    return store_lost(((const struct moody *)base)->inner);
}

static int64_t moody_session(const struct store *base)
{
    const struct moody *store = (const struct moody *)base;
    return store->session != 0 ? store->session : store_session(store->inner);
}

static struct store_stats moody_stats(const struct store *base)
{
    return store_stats(((const struct moody *)base)->inner);
}

static void moody_close(struct store *base)
{
    store_close(((struct moody *)base)->inner);
    free(base);
}

static const struct store_impl impl = {
    .submit = moody_submit,
    .collect = moody_collect,
    .step = moody_step,
    .lost = moody_lost,
    .session = moody_session,
    .stats = moody_stats,
    .close = moody_close,
};

struct store *moody_store_new(const struct store_options *options)
{
    struct moody *store = mem_zalloc(sizeof *store);

    store->base.impl = &impl;
    store->inner = store_memory_new(options);
    return &store->base;
}

void moody_store_fail(struct store *base, int nth)
{
    struct moody *store = (struct moody *)base;

    store->left = nth;
    store->failed = false;
}

bool moody_store_failed(const struct store *base)
{
    return ((const struct moody *)base)->failed;
}

void moody_store_set_full(struct store *base, bool full)
{
    ((struct moody *)base)->full = full;
}

void moody_store_set_session(struct store *base, int64_t session)
{
    ((struct moody *)base)->session = session;
}
