/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/transaction.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/plain.h"
#include "store/sqlite/db.h"

static const char *const sql_of[STATEMENTS] = {
#define X(name, sql) [STATEMENT_##name] = (sql),
    STATEMENT_MAP(X)
#undef X
};

bool transaction_begin(struct transaction *txn, enum statement how, int64_t *version)
{
    txn->failed = false;
    txn->touched = false;
    txn->string_put = false;
    txn->put.id = 0;
    txn->begun = transaction_run(txn, how) == STK_OK;
    if (txn->begun && version != NULL) {
        sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_DATA_VERSION);
        if (transaction_number(txn, stmt, version) != STK_OK)
            return false;
    }
    txn->now_ms = store_clock_now_ms(txn->clock);
    return txn->begun;
}

enum stk_error transaction_commit(struct transaction *txn)
{
    if (transaction_run(txn, STATEMENT_COMMIT) != STK_OK)
        return STK_STORE;
    txn->begun = false;
    if (txn->put.id != 0)
        txn->told = txn->put;
    if (txn->cache != NULL)
        cache_commit(txn->cache);
    if (txn->names != NULL)
        cache_commit(txn->names);
    return STK_OK;
}

bool transaction_is_gone(const struct transaction *txn)
{
    return txn->begun && sqlite3_get_autocommit(txn->db) != 0;
}

void transaction_ended(struct transaction *txn)
{
    txn->begun = false;
}

void transaction_free(struct transaction *txn)
{
    transaction_settle(txn);
    for (size_t i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(txn->statements[i]);
    buf_free(&txn->owner);
}

/* Failures. */

enum stk_error transaction_fail(struct transaction *txn)
{
    int system = sqlite3_system_errno(txn->db);

    txn->failed = true;
    txn->code = sqlite3_errcode(txn->db);
    if (txn->code == SQLITE_FULL)
        db_explain_full(sqlite3_db_filename(txn->db, "main"), txn->reason, sizeof txn->reason);
    else
        snprintf(txn->reason, sizeof txn->reason, "%s%s%s", sqlite3_errmsg(txn->db),
                 system != 0 ? ": " : "", system != 0 ? plain_errno(system) : "");
    return STK_STORE;
}

static enum stk_error fail_with(struct transaction *txn, int code, const char *reason)
{
    txn->failed = true;
    txn->code = code;
    snprintf(txn->reason, sizeof txn->reason, "%s", reason);
    return STK_STORE;
}

enum stk_error transaction_implausible(struct transaction *txn)
{
    return fail_with(txn, SQLITE_CORRUPT, "a row of Stockade's tables holds impossible values");
}

enum stk_error transaction_no_memory(struct transaction *txn)
{
    return fail_with(txn, SQLITE_NOMEM, "out of memory");
}

/* Statements. */

void transaction_release(struct transaction *txn)
{
    if (txn->open != NULL)
        sqlite3_reset(txn->open);
    txn->open = NULL;
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

sqlite3_stmt *transaction_statement_for(struct transaction *txn, enum statement which, int64_t id)
{
    sqlite3_stmt *stmt = transaction_statement(txn, which);

    if (stmt != NULL)
        sqlite3_bind_int64(stmt, 1, id);
    return stmt;
}

sqlite3_stmt *transaction_statement_key(struct transaction *txn, enum statement which, int64_t id,
                                        struct bytes key)
{
    sqlite3_stmt *stmt = transaction_statement_for(txn, which, id);

    if (stmt != NULL)
        transaction_bind(stmt, 2, key);
    return stmt;
}

sqlite3_stmt *transaction_statement_pair(struct transaction *txn, enum statement which, int64_t id,
                                         int64_t number)
{
    sqlite3_stmt *stmt = transaction_statement_for(txn, which, id);

    if (stmt != NULL)
        sqlite3_bind_int64(stmt, 2, number);
    return stmt;
}

sqlite3_stmt *transaction_statement_dated(struct transaction *txn, enum statement which,
                                          int64_t after, int64_t until)
{
    sqlite3_stmt *stmt = transaction_statement_pair(txn, which, after, until);

    if (stmt != NULL)
        sqlite3_bind_int64(stmt, 3, txn->now_ms);
    return stmt;
}

enum stk_error transaction_change(struct transaction *txn, sqlite3_stmt *stmt)
{
    if (stmt == NULL)
        return STK_STORE;
    enum stk_error error = sqlite3_step(stmt) == SQLITE_DONE ? STK_OK : transaction_fail(txn);
    sqlite3_reset(stmt);
    return error;
}

enum stk_error transaction_run(struct transaction *txn, enum statement which)
{
    transaction_settle(txn);
    return transaction_change(txn, transaction_statement(txn, which));
}

bool transaction_row(struct transaction *txn, sqlite3_stmt *stmt, enum stk_error *error)
{
    int stepped = stmt != NULL ? sqlite3_step(stmt) : SQLITE_ERROR;

    *error = STK_OK;
    if (stepped == SQLITE_ROW)
        return true;
    if (stepped != SQLITE_DONE)
        *error = stmt != NULL ? transaction_fail(txn) : STK_STORE;
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

/* Not copied: nothing looks at the caller's bytes after the step. An empty string must not become
 * NULL. */
void transaction_bind(sqlite3_stmt *stmt, int at, struct bytes bytes)
{
    sqlite3_bind_blob64(stmt, at, bytes.len != 0 ? bytes.data : "", bytes.len, SQLITE_STATIC);
}

struct bytes transaction_column(sqlite3_stmt *stmt, int at)
{
    const void *data = sqlite3_column_blob(stmt, at);
    return (struct bytes){data, data != NULL ? (size_t)sqlite3_column_bytes(stmt, at) : 0};
}

/* The open blob. */

void transaction_settle(struct transaction *txn)
{
    transaction_release(txn);
    sqlite3_blob_close(txn->blob);
    txn->blob = NULL;
}

/* Opening a blob costs twice what overwriting saves: not for a first string, which may be the only
 * one. A row that another program has put there may hold no string, or another one. */
enum stk_error transaction_overwrite(struct transaction *txn, int64_t id, struct bytes value,
                                     bool *done)
{
    int code;

    check(!txn->iterating);
    transaction_release(txn);
    *done = false;
    if (!txn->string_put || transaction_is_gone(txn))
        return STK_OK;
    if (txn->blob != NULL)
        code = sqlite3_blob_reopen(txn->blob, id);
    else
        code = sqlite3_blob_open(txn->db, "main", "stockade_string", "value", id, true, &txn->blob);
    bool fits = code == SQLITE_OK && (size_t)sqlite3_blob_bytes(txn->blob) == value.len;
    if (fits)
        code = sqlite3_blob_write(txn->blob, value.data, (int)value.len, 0);
    if (code != SQLITE_OK && (fits || code != SQLITE_ERROR))
        return transaction_fail(txn);
    if (code != SQLITE_OK) /* the blob is of no use any more */
        transaction_settle(txn);
    txn->overwrites += fits;
    *done = fits;
    return STK_OK;
}

int64_t transaction_changes(const struct transaction *txn)
{
    return sqlite3_total_changes64(txn->db) + txn->overwrites;
}

/* What the file says of itself. */

enum stk_error transaction_floor(struct transaction *txn)
{
    if (txn->floor_known)
        return STK_OK;
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_FLOOR);
    txn->floor = 0;
    if (transaction_number(txn, stmt, &txn->floor) != STK_OK)
        return STK_STORE;
    if (txn->floor < 0 || txn->floor > TOKEN_MAX)
        return transaction_implausible(txn);
    txn->floor_known = true;
    return STK_OK;
}

static enum stk_error read_note(struct transaction *txn, struct store_clock_note *note)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_CLOCK);
    enum stk_error error;

    if (!transaction_row(txn, stmt, &error))
        return error != STK_OK ? error : transaction_implausible(txn);
    struct bytes boot = transaction_column(stmt, 0);
    *note = (struct store_clock_note){
        .offset_ms = sqlite3_column_int64(stmt, 1),
        .reached_ms = sqlite3_column_int64(stmt, 2),
        .wall_ms = sqlite3_column_int64(stmt, 3),
        .start_ms = sqlite3_column_int64(stmt, 4),
    };
    if (boot.len > 0 && boot.len < sizeof note->boot)
        memcpy(note->boot, boot.data, boot.len);
    sqlite3_reset(stmt);
    return STK_OK;
}

static enum stk_error write_note(struct transaction *txn, const struct store_clock_note *note)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_CLOCK_PUT);

    if (stmt == NULL)
        return STK_STORE;
    sqlite3_bind_text(stmt, 1, note->boot, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, note->offset_ms);
    sqlite3_bind_int64(stmt, 3, note->reached_ms);
    sqlite3_bind_int64(stmt, 4, note->wall_ms);
    sqlite3_bind_int64(stmt, 5, note->start_ms);
    return transaction_change(txn, stmt);
}

enum stk_error transaction_open_clock(struct transaction *txn, bool *rebooted)
{
    struct store_clock_note kept;
    enum stk_error error = read_note(txn, &kept);

    if (error != STK_OK)
        return error;
    *rebooted = store_clock_is_other_boot(txn->clock, &kept);
    if (store_clock_resume(txn->clock, &kept))
        error = write_note(txn, &txn->clock->note);
    txn->now_ms = store_clock_now_ms(txn->clock);
    return error;
}

enum stk_error transaction_follow_clock(struct transaction *txn)
{
    struct store_clock_note kept;
    enum stk_error error = read_note(txn, &kept);

    if (error == STK_OK && store_clock_follow(txn->clock, &kept))
        error = write_note(txn, &txn->clock->note);
    txn->now_ms = store_clock_now_ms(txn->clock);
    return error;
}

enum stk_error transaction_note_clock(struct transaction *txn, struct store_clock_note *note,
                                      bool *noted)
{
    *noted = store_clock_due(txn->clock, note);
    return *noted ? write_note(txn, note) : STK_OK;
}
