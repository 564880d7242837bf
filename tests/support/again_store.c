/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon whose operations run again: linked into it, this stands around the store that it opens.
 * About every other write gets a neighbour that changes something and then fails, so that what runs
 * with it in one transaction is undone and runs once more (store.h). */
#include <stdlib.h>

#include "fence/base/mem.h"
#include "store/open.h"
#include "store/txn.h"

struct store *__real_store_open(const char *uri, struct store_options options, char *why,
                                size_t why_size);
struct store *__wrap_store_open(const char *uri, struct store_options options, char *why,
                                size_t why_size);

struct again {
    struct store store;
    struct store_impl impl;
    struct store *inner;
    unsigned seed;
};

#define NAME "\1neighbour"

static enum stk_error neighbour_run(struct store_op *op, struct store_txn *txn)
{
    struct resource resource;
    enum stk_error error = txn_resource(txn, op->about, &resource);

    if (error == STK_OK)
        error = txn_resource_make(txn, op->about, &resource);
    if (error == STK_OK)
        error = txn_string_put(txn, &resource, op->about);
    return error == STK_OK ? STK_ERR : error;
}

static void neighbour_hints(const struct store_op *op, store_each_hint *each, void *context)
{
    struct store_hint hint = {.resource = op->about};

    each(context, &hint);
}

static void neighbour_done(struct store_op *op)
{
    free(op);
}

static void add_neighbour(struct again *again)
{
    struct store_op *op = mem_zalloc(sizeof *op);

    *op = (struct store_op){.writes = true,
                            .brief = true,
                            .about = {NAME, sizeof NAME - 1},
                            .hints = neighbour_hints,
                            .run = neighbour_run,
                            .done = neighbour_done};
    if (store_submit(again->inner, op) != STK_OK)
        free(op);
}

static enum stk_error submit(struct store *store, struct store_op *op)
{
    struct again *again = (struct again *)store;
    bool joined = op->writes && rand_r(&again->seed) % 2 == 0;
    enum stk_error error = store_submit(again->inner, op);

    if (error == STK_OK && joined)
        add_neighbour(again);
    return error;
}

static bool flush(struct store *store)
{
    return store_flush(((struct again *)store)->inner);
}

static void collect(struct store *store)
{
    store_collect(((struct again *)store)->inner);
}

static void listen_to(struct store *store, const struct store_news *news)
{
    store_listen(((struct again *)store)->inner, news);
}

static bool holds_up(const struct store *store, const struct store_op *op)
{
    return store_holds_up(((const struct again *)store)->inner, op);
}

static bool lost(const struct store *store)
{
    return store_lost(((const struct again *)store)->inner);
}

static int64_t opening(const struct store *store)
{
    return store_opening(((const struct again *)store)->inner);
}

static struct store_stats stats(const struct store *store)
{
    return store_stats(((const struct again *)store)->inner);
}

static void close_both(struct store *store)
{
    store_close(((struct again *)store)->inner);
    free(store);
}

struct store *__wrap_store_open(const char *uri, struct store_options options, char *why,
                                size_t why_size)
{
    struct store *inner = __real_store_open(uri, options, why, why_size);

    if (inner == NULL)
        return NULL;
    struct again *again = mem_zalloc(sizeof *again);
    *again = (struct again){.impl = {.submit = submit,
                                     .flush = flush,
                                     .collect = collect,
                                     .listen = store_hears(inner) ? listen_to : NULL,
                                     .holds_up = holds_up,
                                     .lost = lost,
                                     .opening = opening,
                                     .stats = stats,
                                     .close = close_both},
                            .inner = inner,
                            .seed = 1};
    again->store.impl = &again->impl;
    return &again->store;
}
