/* SPDX-License-Identifier: Apache-2.0 */
/* Clean-up, a little at a time: receipts whose token ended long ago, and resources that nobody has
 * used for long.
 *
 * - Before the first receipt of a token goes, its resource says so (receipts_gone): an ID without a
 *   receipt never passes for "not applied" where there may have been one.
 * - Ages go by the store's time (store/clock.h), which no jump of a clock makes larger.
 * - Before a resource goes, the store-wide floor rises to its token: its next token is larger (P2).
 *   An entry of the log that still names it finds no receipts. */
#include "fence/base/check.h"
#include "store/sqlite/transaction.h"

static struct transaction *of(struct store_txn *txn)
{
    return (struct transaction *)txn;
}

/* An entry of the log; number 0: there is none. */
struct entry {
    int64_t number, resource, token, retired_ms;
};

static enum stk_error first_entry(struct transaction *txn, struct entry *entry)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RETIRED_FIRST);
    enum stk_error error = STK_OK;

    *entry = (struct entry){0};
    if (stmt == NULL)
        return STK_STORE;
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

enum stk_error sweep_receipts_due(struct store_txn *base, int64_t before_ms, bool *due)
{
    struct transaction *txn = of(base);
    struct entry entry;
    enum stk_error error = first_entry(txn, &entry);

    *due = is_old(&entry, store_clock_before_ms(txn->clock, before_ms));
    return error;
}

/* Removes up to `max` of the entry's receipts, and the entry where these were the last. */
static enum stk_error remove_receipts(struct transaction *txn, const struct entry *entry,
                                      size_t max, size_t *removed)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RECEIPTS_GONE);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, entry->resource);
    sqlite3_bind_int64(stmt, 2, entry->token);
    if (transaction_change(txn, stmt) != STK_OK ||
        (stmt = transaction_statement(txn, STATEMENT_RECEIPTS_REMOVE)) == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, entry->resource);
    sqlite3_bind_int64(stmt, 2, entry->token);
    sqlite3_bind_int64(stmt, 3, (int64_t)max);
    if (transaction_change(txn, stmt) != STK_OK)
        return STK_STORE;
    *removed = (size_t)sqlite3_changes64(txn->db);
    if (*removed == max)
        return STK_OK;
    if ((stmt = transaction_statement(txn, STATEMENT_RETIRED_REMOVE)) == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, entry->number);
    return transaction_change(txn, stmt);
}

enum stk_error sweep_receipts(struct store_txn *base, int64_t before_ms, size_t max,
                              size_t *removed, bool *more)
{
    struct transaction *txn = of(base);
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

/* The tokens of abandoned resources that have receipts end now; their receipts, and then their
 * rows, go in due time. */
static enum stk_error retire_abandoned(struct transaction *txn, int64_t after, int64_t end,
                                       int64_t before_ms)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_SWEEP_RETIRE);
    enum stk_error error = STK_OK;

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, after);
    sqlite3_bind_int64(stmt, 2, end);
    sqlite3_bind_int64(stmt, 3, before_ms);
    sqlite3_bind_int64(stmt, 4, txn->now_ms);
    while (error == STK_OK && transaction_row(txn, stmt, &error)) {
        cache_forget(txn->cache, sqlite3_column_int64(stmt, 0));
        error = receipts_log(txn, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
    }
    sqlite3_reset(stmt);
    return error;
}

static enum stk_error remove_resources(struct transaction *txn, int64_t after, int64_t end,
                                       int64_t before_ms, int64_t live_before_ms, size_t *removed)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_SWEEP_REMOVE);
    enum stk_error error = STK_OK;
    int64_t floor = 0;

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, after);
    sqlite3_bind_int64(stmt, 2, end);
    sqlite3_bind_int64(stmt, 3, live_before_ms);
    sqlite3_bind_int64(stmt, 4, before_ms);
    while (transaction_row(txn, stmt, &error)) {
        int64_t token = sqlite3_column_int64(stmt, 1);
        cache_forget(txn->cache, sqlite3_column_int64(stmt, 0));
        if (token > floor)
            floor = token;
        ++*removed;
    }
    if (error != STK_OK || floor == 0)
        return error;
    if (floor > TOKEN_MAX)
        return transaction_implausible(txn);
    txn->floor_known = false;
    if ((stmt = transaction_statement(txn, STATEMENT_FLOOR_RAISE)) == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, floor);
    return transaction_change(txn, stmt);
}

/* The last of up to `max` rows behind `after`; 0: there are none. */
static enum stk_error find_end(struct transaction *txn, int64_t after, size_t max, int64_t *end)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_SWEEP_END);

    *end = 0;
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, after);
    sqlite3_bind_int64(stmt, 2, (int64_t)max);
    return transaction_number(txn, stmt, end);
}

enum stk_error sweep_resources(struct store_txn *base, int64_t before_ms, int64_t live_before_ms,
                               size_t max, int64_t *after, size_t *removed, bool *more)
{
    struct transaction *txn = of(base);
    int64_t end;

    check(txn->cache != NULL && max > 0);
    before_ms = store_clock_before_ms(txn->clock, before_ms);
    live_before_ms = store_clock_before_ms(txn->clock, live_before_ms);
    *removed = 0;
    *more = false;
    if (find_end(txn, *after, max, &end) != STK_OK)
        return STK_STORE;
    if (end != 0 &&
        (retire_abandoned(txn, *after, end, live_before_ms) != STK_OK ||
         remove_resources(txn, *after, end, before_ms, live_before_ms, removed) != STK_OK))
        return STK_STORE;
    *after = end;
    *more = end != 0;
    return STK_OK;
}

enum stk_error sweep_resources_due(struct store_txn *base, int64_t before_ms,
                                   int64_t live_before_ms, size_t max, int64_t *after, bool *due,
                                   bool *more)
{
    struct transaction *txn = of(base);
    int64_t end, any = 0;

    check(max > 0);
    *due = *more = false;
    if (find_end(txn, *after, max, &end) != STK_OK)
        return STK_STORE;
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_SWEEP_DUE);
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, *after);
    sqlite3_bind_int64(stmt, 2, end);
    sqlite3_bind_int64(stmt, 3, store_clock_before_ms(txn->clock, live_before_ms));
    sqlite3_bind_int64(stmt, 4, store_clock_before_ms(txn->clock, before_ms));
    if (transaction_number(txn, stmt, &any) != STK_OK)
        return STK_STORE;
    *due = any != 0;
    *more = end != 0;
    if (!*due)
        *after = end;
    return STK_OK;
}
