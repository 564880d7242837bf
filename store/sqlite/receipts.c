/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts, from the write that leaves one to its removal: what remains of a write that carried an
 * ID, keyed by resource and ID.
 *
 * A receipt is needed as long as its token lives, and a while longer. When a token that has
 * receipts ends, that is logged, once, in the order in which tokens end (stockade_retired): so old
 * receipts are found without a search. receipts_sweep works the log off, a little at a time. Before
 * the first receipt of a token goes, its resource says so (receipts_gone), so that an ID without a
 * receipt never passes for "not applied" where there may have been one. Ages go by the store's time
 * (store/clock.h), which no jump of a clock makes larger. */
#include "fence/base/check.h"
#include "store/sqlite/rows.h"

static struct receipt receipt_in(sqlite3_stmt *stmt)
{
    return (struct receipt){.token = sqlite3_column_int64(stmt, 0),
                            .fingerprint = (uint64_t)sqlite3_column_int64(stmt, 1),
                            .resp3 = sqlite3_column_int64(stmt, 2) != 0,
                            .reply = transaction_column(stmt, 3),
                            .written_ms = sqlite3_column_int64(stmt, 4)};
}

enum stk_error receipts_find(struct store_txn *base, const struct resource *resource,
                             struct bytes id, bool *found, struct receipt *receipt)
{
    struct transaction *txn = transaction_of(base);
    sqlite3_stmt *stmt = transaction_statement_key(txn, STATEMENT_RECEIPT, resource->id, id);
    enum stk_error error;

    *found = transaction_row(txn, stmt, &error);
    if (!*found)
        return error;
    *receipt = receipt_in(stmt);
    txn->open = stmt;
    return STK_OK;
}

enum stk_error receipts_each(struct store_txn *base, const struct resource *resource,
                             txn_each_receipt each, void *context)
{
    struct transaction *txn = transaction_of(base);
    sqlite3_stmt *stmt = transaction_statement_for(txn, STATEMENT_EACH_RECEIPT, resource->id);
    enum stk_error error;

    txn->iterating = true;
    while (transaction_row(txn, stmt, &error)) {
        const struct receipt receipt = receipt_in(stmt);
        if (!each(context, transaction_column(stmt, 5), &receipt))
            break;
    }
    txn->iterating = false;
    sqlite3_reset(stmt);
    return error;
}

enum stk_error receipts_put(struct store_txn *base, const struct resource *resource,
                            struct bytes id, const struct receipt *receipt)
{
    struct transaction *txn = transaction_of(base);
    const struct fence *fence = &resource->fence;

    check(txn->cache != NULL && resource->id != 0);
    sqlite3_stmt *stmt = transaction_statement_key(txn, STATEMENT_RECEIPT_PUT, resource->id, id);
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 3, receipt->token);
    sqlite3_bind_int64(stmt, 4, (int64_t)receipt->fingerprint);
    sqlite3_bind_int64(stmt, 5, receipt->resp3);
    transaction_bind(stmt, 6, receipt->reply);
    sqlite3_bind_int64(stmt, 7, store_clock_wall_ms(txn->clock->machine)); /* for people */
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    cache_no_receipts_forget(txn->cache, resource->id);
    /* If the token has ended already, nobody else would log that. */
    if (receipt->token != fence->token || fence->state != FENCE_LIVE)
        return receipts_log(txn, resource->id, receipt->token);
    return STK_OK;
}

enum stk_error receipts_remove(struct store_txn *base, const struct resource *resource,
                               struct bytes id)
{
    struct transaction *txn = transaction_of(base);
    sqlite3_stmt *stmt = transaction_statement_key(txn, STATEMENT_RECEIPT_REMOVE, resource->id, id);
    return transaction_change(txn, stmt);
}

enum stk_error receipts_log(struct transaction *txn, int64_t id, int64_t token)
{
    sqlite3_stmt *stmt = transaction_statement_pair(txn, STATEMENT_RETIRED_ADD, id, token);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 3, txn->now_ms);
    return transaction_change(txn, stmt);
}

enum stk_error receipts_retire(struct transaction *txn, int64_t id, const struct fence *old,
                               const struct fence *fence)
{
    int64_t any = 0;

    if (old->state != FENCE_LIVE || (fence->token == old->token && fence->state == FENCE_LIVE) ||
        cache_has_no_receipts(txn->cache, id, old->token))
        return STK_OK;
    sqlite3_stmt *stmt = transaction_statement_pair(txn, STATEMENT_RECEIPTS_ANY, id, old->token);
    if (transaction_number(txn, stmt, &any) != STK_OK)
        return STK_STORE;
    return any != 0 ? receipts_log(txn, id, old->token) : STK_OK;
}

enum stk_error receipts_retire_all(struct transaction *txn, int64_t after, int64_t until)
{
    return transaction_change(txn,
                              transaction_statement_dated(txn, STATEMENT_RETIRE_ALL, after, until));
}

/* Clean-up. */

/* An entry of the log; number 0: there is none. */
struct entry {
    int64_t number, resource, token, retired_ms;
};

static enum stk_error first_entry(struct transaction *txn, struct entry *entry)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RETIRED_FIRST);
    enum stk_error error;

    *entry = (struct entry){0};
    if (!transaction_row(txn, stmt, &error))
        return error;
    entry->number = sqlite3_column_int64(stmt, 0);
    entry->resource = sqlite3_column_int64(stmt, 1);
    entry->token = sqlite3_column_int64(stmt, 2);
    entry->retired_ms = sqlite3_column_int64(stmt, 3);
    sqlite3_reset(stmt);
    return STK_OK;
}

static bool is_old(const struct entry *entry, int64_t before_ms)
{
    return entry->number != 0 && entry->retired_ms < before_ms;
}

enum stk_error receipts_due(struct store_txn *base, int64_t before_ms, bool *due)
{
    struct transaction *txn = transaction_of(base);
    struct entry entry;
    enum stk_error error = first_entry(txn, &entry);

    *due = is_old(&entry, store_clock_before_ms(txn->clock, before_ms));
    return error;
}

/* Remove up to `max` of the entry's receipts, and the entry where these were the last. */
static enum stk_error remove_receipts(struct transaction *txn, const struct entry *entry,
                                      size_t max, size_t *removed)
{
    int64_t id = entry->resource, token = entry->token;
    sqlite3_stmt *stmt = transaction_statement_pair(txn, STATEMENT_RECEIPTS_GONE, id, token);

    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    cache_lease_forget(txn->cache, id);
    stmt = transaction_statement_pair(txn, STATEMENT_RECEIPTS_REMOVE, id, token);
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 3, (int64_t)max);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    *removed = (size_t)sqlite3_changes64(txn->db);
    if (*removed == max)
        return STK_OK;
    stmt = transaction_statement_for(txn, STATEMENT_RETIRED_REMOVE, entry->number);
    return transaction_change(txn, stmt);
}

enum stk_error receipts_sweep(struct store_txn *base, int64_t before_ms, size_t max,
                              size_t *removed, bool *more)
{
    struct transaction *txn = transaction_of(base);
    struct entry entry;

    check(txn->cache != NULL && max > 0);
    before_ms = store_clock_before_ms(txn->clock, before_ms);
    *removed = 0;
    *more = false;
    for (size_t left = max, gone;; left -= gone < left ? gone + 1 : gone) {
        if (first_entry(txn, &entry) != STK_OK)
            return STK_STORE;
        if (!is_old(&entry, before_ms))
            return STK_OK;
        *more = left == 0;
        if (*more)
            return STK_OK;
        if (remove_receipts(txn, &entry, left, &gone) != STK_OK)
            return STK_STORE;
        *removed += gone;
    }
}
