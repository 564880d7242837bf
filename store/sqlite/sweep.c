/* SPDX-License-Identifier: Apache-2.0 */
/* Clean-up, a little at a time: receipts whose token ended long ago, and resources that nobody has
 * used for long.
 *
 * - Before the first receipt of a token goes, its resource says so (receipts_gone): an ID without a
 *   receipt never passes for "not applied" where there may have been one.
 * - A token's end is dated by the wall clock, which may jump. An entry of the log that seems to lie
 *   in the future is as old as the moment in which that was noticed, and so is all that stood in
 * the log then: the cap. Entries behind the cap are dated as they say.
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

struct cap {
    int64_t number; /* of the last entry it holds for; 0: there is no cap */
    int64_t at_ms;
};

static const char cap_number[] = "retired_cap", cap_at_ms[] = "retired_cap_ms";

static enum stk_error meta(struct transaction *txn, const char *key, int64_t *value)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_META);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
    return transaction_number(txn, stmt, value);
}

static enum stk_error meta_put(struct transaction *txn, const char *key, int64_t value)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_META_PUT);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_text(stmt, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, value);
    return transaction_change(txn, stmt);
}

static enum stk_error cap_read(struct transaction *txn, struct cap *cap)
{
    *cap = (struct cap){0};
    enum stk_error error = meta(txn, cap_number, &cap->number);
    return error != STK_OK ? error : meta(txn, cap_at_ms, &cap->at_ms);
}

static enum stk_error cap_set(struct transaction *txn, struct cap *cap, int64_t number,
                              int64_t at_ms)
{
    *cap = (struct cap){number, at_ms};
    enum stk_error error = meta_put(txn, cap_number, number);
    return error != STK_OK ? error : meta_put(txn, cap_at_ms, at_ms);
}

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

/* Brings the cap up to date with the first entry, and the entry's date with the cap. */
static enum stk_error date_entry(struct transaction *txn, struct cap *cap, struct entry *entry)
{
    enum stk_error error = STK_OK;
    int64_t last = 0;

    /* Numbers begin anew in an empty log, so a cap must not outlive its entries. */
    if (cap->number != 0 && (entry->number == 0 || entry->number > cap->number))
        error = cap_set(txn, cap, 0, 0);
    if (entry->number <= cap->number && entry->retired_ms > cap->at_ms)
        entry->retired_ms = cap->at_ms;
    if (error != STK_OK || entry->retired_ms <= txn->now_ms)
        return error;
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_RETIRED_LAST);
    if (stmt == NULL || transaction_number(txn, stmt, &last) != STK_OK)
        return STK_STORE;
    entry->retired_ms = txn->now_ms;
    return cap_set(txn, cap, last, txn->now_ms);
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
    struct cap cap;
    struct entry entry;

    check(txn->cache != NULL && max > 0);
    *removed = 0;
    *more = false;
    if (cap_read(txn, &cap) != STK_OK)
        return STK_STORE;
    for (size_t left = max, gone;; left -= gone < left ? gone + 1 : gone) {
        if (first_entry(txn, &entry) != STK_OK || date_entry(txn, &cap, &entry) != STK_OK)
            return STK_STORE;
        if (entry.number == 0 || entry.retired_ms >= before_ms)
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

enum stk_error sweep_resources(struct store_txn *base, int64_t before_ms, int64_t live_before_ms,
                               size_t max, int64_t *after, size_t *removed, bool *more)
{
    struct transaction *txn = of(base);
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_SWEEP_END);
    int64_t end = 0;

    check(txn->cache != NULL && max > 0);
    *removed = 0;
    *more = false;
    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_int64(stmt, 1, *after);
    sqlite3_bind_int64(stmt, 2, (int64_t)max);
    if (transaction_number(txn, stmt, &end) != STK_OK)
        return STK_STORE;
    if (end != 0 &&
        (retire_abandoned(txn, *after, end, live_before_ms) != STK_OK ||
         remove_resources(txn, *after, end, before_ms, live_before_ms, removed) != STK_OK))
        return STK_STORE;
    *after = end;
    *more = end != 0;
    return STK_OK;
}
