/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/operation.h"

#include "fence/base/check.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/rows.h"
#include "store/sqlite/sql.h"

static int64_t now_ms(struct store_txn *base)
{
    return transaction_of(base)->now_ms;
}

/* Set one: in SQLite, and in the cache's journal. */
static enum stk_error savepoint(struct store_txn *base)
{
    struct transaction *txn = transaction_of(base);

    check(!txn->in_savepoint);
    if (transaction_run(txn, STATEMENT_SAVEPOINT) != STK_OK)
        return STK_STORE;
    txn->in_savepoint = true;
    txn->put_savepoint = txn->put;
    if (txn->cache != NULL)
        txn->cache_savepoint = cache_savepoint(txn->cache);
    return STK_OK;
}

static enum stk_error savepoint_keep(struct store_txn *base)
{
    struct transaction *txn = transaction_of(base);

    check(txn->in_savepoint);
    txn->in_savepoint = false;
    if (transaction_is_gone(txn))
        return STK_ERR;
    return transaction_run(txn, STATEMENT_SAVEPOINT_KEEP);
}

static enum stk_error savepoint_undo(struct store_txn *base)
{
    struct transaction *txn = transaction_of(base);

    check(txn->in_savepoint);
    txn->floor_known = false;
    txn->put = txn->put_savepoint;
    if (txn->cache != NULL)
        cache_undo(txn->cache, txn->cache_savepoint);
    if (txn->touched)
        guards_invalidate(txn->guards);
    if (!transaction_is_gone(txn) && transaction_run(txn, STATEMENT_SAVEPOINT_UNDO) != STK_OK)
        return STK_STORE;
    return savepoint_keep(base);
}

/* Remove the values and end the live tokens of the resources between two ids. */
static enum stk_error flush_between(struct transaction *txn, int64_t after, int64_t until)
{
    static const enum statement removals[] = {STATEMENT_FLUSH_STRINGS, STATEMENT_FLUSH_HASHES};

    if (receipts_retire_all(txn, after, until) != STK_OK)
        return STK_STORE;
    for (size_t i = 0; i < sizeof removals / sizeof *removals; i++)
        if (transaction_change(txn, transaction_statement_pair(txn, removals[i], after, until)) !=
            STK_OK)
            return STK_STORE;
    return transaction_change(
        txn, transaction_statement_dated(txn, STATEMENT_FLUSH_RESOURCES, after, until));
}

static enum stk_error flush(struct store_txn *base, size_t max, struct flush_walk *walk)
{
    struct transaction *txn = transaction_of(base);
    int64_t end = 0;

    check(txn->cache != NULL);
    cache_clear(txn->cache);
    if (walk->until == 0 &&
        transaction_number(txn, transaction_statement(txn, STATEMENT_FLUSH_UNTIL), &walk->until) !=
            STK_OK)
        return STK_STORE;
    if (transaction_number(
            txn, transaction_statement_pair(txn, STATEMENT_FLUSH_END, walk->after, (int64_t)max),
            &end) != STK_OK)
        return STK_STORE;
    if (end == 0 || end > walk->until)
        end = walk->until;
    if (flush_between(txn, walk->after, end) != STK_OK)
        return STK_STORE;
    walk->after = end;
    walk->more = end < walk->until;
    return STK_OK;
}

static void present(struct store_txn *base, const struct claim *claims, size_t count)
{
    struct transaction *txn = transaction_of(base);

    txn->claims = claims;
    txn->claims_count = count;
}

static const struct store_txn_impl operation_impl = {
    .now_ms = now_ms,
    .savepoint = savepoint,
    .savepoint_keep = savepoint_keep,
    .savepoint_undo = savepoint_undo,
    .resource = resources_find,
    .resource_make = resources_make,
    .fence_put = resources_fence_put,
    .fence_make = resources_fence_make,
    .lease = resources_lease,
    .each_live = resources_each_live,
    .each_key = resources_each_key,
    .count_keys = resources_count_keys,
    .count_live = resources_count_live,
    .string = values_string,
    .string_of = values_string_of,
    .string_put = values_string_put,
    .field = values_field,
    .field_put = values_field_put,
    .field_remove = values_field_remove,
    .each_field_from = values_each_field,
    .count_fields = values_count_fields,
    .value_clear = values_clear,
    .receipt = receipts_find,
    .receipt_put = receipts_put,
    .receipt_remove = receipts_remove,
    .each_receipt = receipts_each,
    .sweep_receipts = receipts_sweep,
    .sweep_resources = resources_sweep,
    .receipts_due = receipts_due,
    .resources_due = resources_due,
    .flush = flush,
    .audit_head = heads_keep,
    .sql = sql_run,
    .present = present,
    .guard_create = guards_create,
    .guard_drop = guards_drop,
    .guards = guards_each,
};

bool operations_init(struct transaction *txn, sqlite3 *db, struct cache *cache,
                     struct store_clock *clock)
{
    *txn = (struct transaction){
        .base.impl = &operation_impl, .db = db, .cache = cache, .clock = clock};
    txn->sql = sql_new(txn);
    return txn->sql != NULL;
}

void operations_free(struct transaction *txn)
{
    transaction_free(txn);
    sql_free(txn->sql);
    guards_free(txn->guards);
}

void operation_run(struct transaction *txn, struct store_op *op)
{
    op->error = op->run(op, &txn->base);
    if (txn->in_savepoint && !txn->failed)
        (void)savepoint_keep(&txn->base);
    txn->in_savepoint = false;
    txn->claims = NULL;
    txn->claims_count = 0;
    txn->last_rowid = 0;
    txn->sql_ms = 0;
}
