/* SPDX-License-Identifier: Apache-2.0 */
/* Statements: prepared once, bound, stepped, reset; and failures, written down where they happen.
 */
#include "store/sqlite/transaction.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/sql.h"

static const char *const sql_of[STATEMENTS] = {
#define X(name, sql) [STATEMENT_##name] = (sql),
    STATEMENT_MAP(X)
#undef X
};

static struct transaction *of(struct store_txn *txn)
{
    return (struct transaction *)txn;
}

static int64_t now_ms(struct store_txn *txn)
{
    return of(txn)->now_ms;
}

/* Marks: a savepoint, and a place in the cache's journal. */

static enum stk_error mark(struct store_txn *base)
{
    struct transaction *txn = of(base);

    check(!txn->marked);
    if (transaction_run(txn, STATEMENT_MARK) != STK_OK)
        return STK_STORE;
    txn->marked = true;
    if (txn->cache != NULL)
        txn->cache_mark = cache_mark(txn->cache);
    return STK_OK;
}

static enum stk_error mark_keep(struct store_txn *base)
{
    struct transaction *txn = of(base);

    check(txn->marked);
    txn->marked = false;
    if (transaction_is_gone(txn))
        return STK_ERR;
    return transaction_run(txn, STATEMENT_MARK_KEEP);
}

static enum stk_error mark_undo(struct store_txn *base)
{
    struct transaction *txn = of(base);

    check(txn->marked);
    txn->floor_known = false;
    if (txn->cache != NULL)
        cache_undo(txn->cache, txn->cache_mark);
    if (txn->touched)
        guards_doubt(txn->guards);
    if (!transaction_is_gone(txn) && transaction_run(txn, STATEMENT_MARK_UNDO) != STK_OK)
        return STK_STORE;
    return mark_keep(base);
}

static void present(struct store_txn *base, const struct claim *claims, size_t count)
{
    of(base)->claims = claims;
    of(base)->claims_count = count;
}

static const struct store_txn_impl transaction_impl = {
    .now_ms = now_ms,
    .mark = mark,
    .mark_keep = mark_keep,
    .mark_undo = mark_undo,
    .resource = resources_find,
    .resource_make = resources_make,
    .fence_put = resources_fence_put,
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
    .sweep_receipts = sweep_receipts,
    .sweep_resources = sweep_resources,
    .receipts_due = sweep_receipts_due,
    .resources_due = sweep_resources_due,
    .flush = values_flush,
    .sql = sql_run,
    .present = present,
    .guard_create = guards_create,
    .guard_drop = guards_drop,
    .guards = guards_each,
};

bool transaction_init(struct transaction *txn, sqlite3 *db, struct cache *cache,
                      struct store_clock *clock)
{
    *txn = (struct transaction){
        .base.impl = &transaction_impl, .db = db, .cache = cache, .clock = clock};
    txn->sql = sql_new(txn);
    return txn->sql != NULL;
}

void transaction_free(struct transaction *txn)
{
    transaction_settle(txn);
    for (size_t i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(txn->statements[i]);
    sql_free(txn->sql);
    guards_free(txn->guards);
    buf_free(&txn->owner);
}

bool transaction_begin(struct transaction *txn, enum statement how)
{
    txn->failed = false;
    txn->touched = false;
    txn->put_before = false;
    txn->now_ms = store_clock_now_ms(txn->clock);
    txn->begun = transaction_run(txn, how) == STK_OK;
    return txn->begun;
}

bool transaction_is_gone(const struct transaction *txn)
{
    return txn->begun && sqlite3_get_autocommit(txn->db) != 0;
}

void transaction_leave(struct transaction *txn)
{
    if (txn->marked && !txn->failed)
        (void)mark_keep(&txn->base);
    txn->marked = false;
    txn->claims = NULL;
    txn->claims_count = 0;
    txn->last_rowid = 0;
    txn->sql_ms = 0;
}

void transaction_ended(struct transaction *txn)
{
    txn->begun = false;
}

enum stk_error transaction_fail(struct transaction *txn)
{
    int system = sqlite3_system_errno(txn->db);

    txn->failed = true;
    txn->code = sqlite3_errcode(txn->db);
    snprintf(txn->reason, sizeof txn->reason, "%s%s%s", sqlite3_errmsg(txn->db),
             system != 0 ? ": " : "", system != 0 ? strerrordesc_np(system) : "");
    return STK_STORE;
}

enum stk_error transaction_implausible(struct transaction *txn)
{
    txn->failed = true;
    txn->code = SQLITE_CORRUPT;
    snprintf(txn->reason, sizeof txn->reason, "a row of Stockade's tables holds impossible values");
    return STK_STORE;
}

enum stk_error transaction_no_memory(struct transaction *txn)
{
    txn->failed = true;
    txn->code = SQLITE_NOMEM;
    snprintf(txn->reason, sizeof txn->reason, "out of memory");
    return STK_STORE;
}

void transaction_release(struct transaction *txn)
{
    if (txn->open != NULL)
        sqlite3_reset(txn->open);
    txn->open = NULL;
}

void transaction_settle(struct transaction *txn)
{
    transaction_release(txn);
    sqlite3_blob_close(txn->over);
    txn->over = NULL;
}

sqlite3_stmt *transaction_statement(struct transaction *txn, enum statement which)
{
    sqlite3_stmt **stmt = &txn->statements[which];

    check(!txn->iterating);
    transaction_release(txn);
    if (transaction_is_gone(txn)) /* what runs now would commit by itself */
        return NULL;
    if (*stmt == NULL && sqlite3_prepare_v3(txn->db, sql_of[which], -1, SQLITE_PREPARE_PERSISTENT,
                                            stmt, NULL) != SQLITE_OK)
        transaction_fail(txn);
    return *stmt;
}

enum stk_error transaction_change(struct transaction *txn, sqlite3_stmt *stmt)
{
    int stepped = sqlite3_step(stmt);
    enum stk_error error = stepped == SQLITE_DONE ? STK_OK : transaction_fail(txn);

    sqlite3_reset(stmt);
    return error;
}

/* Opening takes as long as a statement saves twice over: not for a first string, which may be the
 * only one. A row that another program has put there may hold what is no string, or another one. */
enum stk_error transaction_overwrite(struct transaction *txn, int64_t id, struct bytes value,
                                     bool *done)
{
    int code;

    check(!txn->iterating);
    transaction_release(txn);
    *done = false;
    if (!txn->put_before || transaction_is_gone(txn))
        return STK_OK;
    if (txn->over != NULL)
        code = sqlite3_blob_reopen(txn->over, id);
    else
        code = sqlite3_blob_open(txn->db, "main", "stockade_string", "value", id, true, &txn->over);
    bool fits = code == SQLITE_OK && (size_t)sqlite3_blob_bytes(txn->over) == value.len;
    if (fits)
        code = sqlite3_blob_write(txn->over, value.data, (int)value.len, 0);
    if (code != SQLITE_OK && (fits || code != SQLITE_ERROR))
        return transaction_fail(txn);
    if (code != SQLITE_OK) /* it is no use any more */
        transaction_settle(txn);
    txn->overwrites += fits;
    *done = fits;
    return STK_OK;
}

int64_t transaction_changes(const struct transaction *txn)
{
    return sqlite3_total_changes64(txn->db) + txn->overwrites;
}

enum stk_error transaction_run(struct transaction *txn, enum statement which)
{
    transaction_settle(txn);
    sqlite3_stmt *stmt = transaction_statement(txn, which);
    return stmt == NULL ? STK_STORE : transaction_change(txn, stmt);
}

bool transaction_row(struct transaction *txn, sqlite3_stmt *stmt, enum stk_error *error)
{
    int stepped = sqlite3_step(stmt);

    if (stepped == SQLITE_ROW)
        return true;
    *error = stepped == SQLITE_DONE ? STK_OK : transaction_fail(txn);
    sqlite3_reset(stmt);
    return false;
}

enum stk_error transaction_number(struct transaction *txn, sqlite3_stmt *stmt, int64_t *number)
{
    enum stk_error error;

    if (!transaction_row(txn, stmt, &error))
        return error;
    *number = sqlite3_column_int64(stmt, 0);
    sqlite3_reset(stmt);
    return STK_OK;
}

/* Not copied: the caller's bytes outlive the step, and nothing looks at them after it. An empty
 * string must not become NULL. */
void transaction_bind(sqlite3_stmt *stmt, int at, struct bytes bytes)
{
    sqlite3_bind_blob64(stmt, at, bytes.len != 0 ? bytes.data : "", bytes.len, SQLITE_STATIC);
}

struct bytes transaction_column(sqlite3_stmt *stmt, int at)
{
    const void *data = sqlite3_column_blob(stmt, at);
    return (struct bytes){data, data != NULL ? (size_t)sqlite3_column_bytes(stmt, at) : 0};
}
