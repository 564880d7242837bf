/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts: what remains of a write that carried an ID, keyed by resource and ID.
 *
 * They are needed as long as their token lives and a while longer. So that old ones are found
 * without looking for them, the end of a token that has receipts is logged, once, in the order in
 * which tokens end; sweep.c works the log off. */
#include "fence/base/check.h"
#include "store/sqlite/transaction.h"

static struct transaction *of(struct store_txn *txn)
{
    return (struct transaction *)txn;
}

enum stk_error receipts_find(struct store_txn *base, const struct resource *resource,
                             struct bytes id, bool *found, struct receipt *receipt)
{
    struct transaction *txn = of(base);
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RECEIPT);
    enum stk_error error = STK_OK;

    *found = false;
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, resource->id);
    transaction_bind(stmt, 2, id);
    *found = transaction_row(txn, stmt, &error);
    if (!*found)
        return error;
    receipt->token = sqlite3_column_int64(stmt, 0);
    receipt->fingerprint = (uint64_t)sqlite3_column_int64(stmt, 1);
    receipt->resp3 = sqlite3_column_int64(stmt, 2) != 0;
    receipt->reply = transaction_column(stmt, 3);
    txn->open = stmt;
    return STK_OK;
}

enum stk_error receipts_put(struct store_txn *base, const struct resource *resource,
                            struct bytes id, const struct receipt *receipt)
{
    struct transaction *txn = of(base);
    const struct fence *fence = &resource->fence;

    check(txn->cache != NULL && resource->id != 0);
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RECEIPT_PUT);
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, resource->id);
    transaction_bind(stmt, 2, id);
    sqlite3_bind_int64(stmt, 3, receipt->token);
    sqlite3_bind_int64(stmt, 4, (int64_t)receipt->fingerprint);
    sqlite3_bind_int64(stmt, 5, receipt->resp3);
    transaction_bind(stmt, 6, receipt->reply);
    sqlite3_bind_int64(stmt, 7, store_clock_wall_ms(txn->clock->machine)); /* for people */
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    /* Of a token that has ended already, nobody else would log it. */
    if (receipt->token != fence->token || fence->state != FENCE_LIVE)
        return receipts_log(txn, resource->id, receipt->token);
    return STK_OK;
}

enum stk_error receipts_remove(struct store_txn *base, const struct resource *resource,
                               struct bytes id)
{
    struct transaction *txn = of(base);
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RECEIPT_REMOVE);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, resource->id);
    transaction_bind(stmt, 2, id);
    return transaction_change(txn, stmt);
}

enum stk_error receipts_log(struct transaction *txn, int64_t id, int64_t token)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RETIRED_ADD);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, id);
    sqlite3_bind_int64(stmt, 2, token);
    sqlite3_bind_int64(stmt, 3, txn->now_ms);
    return transaction_change(txn, stmt);
}

/* The fence as it stands in the row. */
static enum stk_error fence_of(struct transaction *txn, int64_t id, struct fence *fence)
{
    struct resource resource;
    enum stk_error error = STK_OK;

    if (cache_find_id(txn->cache, id, &resource)) {
        *fence = resource.fence;
        return STK_OK;
    }
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_FENCE_OF);
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, id);
    if (!transaction_row(txn, stmt, &error))
        return error;
    fence->token = sqlite3_column_int64(stmt, 0);
    fence->state = (enum fence_state)sqlite3_column_int64(stmt, 1);
    sqlite3_reset(stmt);
    return STK_OK;
}

enum stk_error receipts_retire(struct transaction *txn, int64_t id, const struct fence *fence)
{
    struct fence old = {.state = FENCE_NONE};
    int64_t any = 0;

    if (fence_of(txn, id, &old) != STK_OK)
        return STK_STORE;
    if (old.state != FENCE_LIVE || (fence->token == old.token && fence->state == FENCE_LIVE))
        return STK_OK;
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RECEIPTS_ANY);
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, id);
    sqlite3_bind_int64(stmt, 2, old.token);
    if (transaction_number(txn, stmt, &any) != STK_OK)
        return STK_STORE;
    return any != 0 ? receipts_log(txn, id, old.token) : STK_OK;
}

enum stk_error receipts_retire_all(struct transaction *txn)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RETIRE_ALL);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, txn->now_ms);
    return transaction_change(txn, stmt);
}
