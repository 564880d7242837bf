/* SPDX-License-Identifier: Apache-2.0 */
/* The heads of audits: how many lines of a chain are on disk, and the hash of the last one. They
 * tell whether the audit's file was cut, so nothing that is asked of the store touches them but the
 * audit itself: SQL must not, and a restore brings no old ones back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "store/maintenance.h"
#include "store/sqlite/copy.h"
#include "store/sqlite/rows.h"
#include "store/sqlite/schema.h"

enum { SINCE_VERSION = 4 };

enum stk_error heads_keep(struct store_txn *base, struct bytes chain, int64_t lines,
                          struct bytes hash, bool *restored)
{
    struct transaction *txn = transaction_of(base);
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_AUDIT);
    enum stk_error error;
    bool same = false;

    *restored = false;
    if (stmt != NULL)
        sqlite3_bind_text(stmt, 1, chain.data, (int)chain.len, SQLITE_STATIC);
    if (transaction_row(txn, stmt, &error)) {
        *restored = sqlite3_column_int(stmt, 2) != 0;
        same = sqlite3_column_int64(stmt, 0) == lines &&
               bytes_equal(transaction_column(stmt, 1), hash);
        sqlite3_reset(stmt);
    } else if (error != STK_OK) {
        return error;
    }
    if (same && !*restored)
        return STK_OK;
    stmt = transaction_statement(txn, STATEMENT_AUDIT_PUT);
    if (stmt != NULL) {
        sqlite3_bind_text(stmt, 1, chain.data, (int)chain.len, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 2, lines);
        sqlite3_bind_text(stmt, 3, hash.data, (int)hash.len, SQLITE_STATIC);
    }
    return transaction_change(txn, stmt);
}

/* Copy the text of a column, cut to fit. */
static void take_text(char *out, size_t size, sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    snprintf(out, size, "%s", text == NULL ? "" : text);
}

/* Read the heads; a store of an older version has none. */
static bool read_heads(sqlite3 *db, struct store_audit_head **heads, size_t *count)
{
    sqlite3_stmt *stmt = NULL;
    int64_t version = 0;

    *heads = NULL;
    *count = 0;
    if (db_int64(db, "PRAGMA user_version", &version) != SQLITE_OK)
        return false;
    if (version < SINCE_VERSION)
        return true;
    if (sqlite3_prepare_v2(db, "SELECT chain, hash, lines FROM stockade_audit ORDER BY chain", -1,
                           &stmt, NULL) != SQLITE_OK)
        return false;
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        *heads = mem_realloc(*heads, (*count + 1) * sizeof **heads);
        struct store_audit_head *head = &(*heads)[(*count)++];
        take_text(head->chain, sizeof head->chain, stmt, 0);
        take_text(head->hash, sizeof head->hash, stmt, 1);
        head->lines = sqlite3_column_int64(stmt, 2);
    }
    return sqlite3_finalize(stmt) == SQLITE_OK;
}

bool store_sqlite_heads(const char *store, struct store_audit_head **heads, size_t *count,
                        char *why, size_t why_size)
{
    sqlite3 *db = copy_source(store, "store", why, why_size);

    *heads = NULL;
    *count = 0;
    if (db == NULL)
        return false;
    bool read = read_heads(db, heads, count) || db_explain(db, store, why, why_size);
    db_close(db);
    if (!read) {
        free(*heads);
        *heads = NULL;
        *count = 0;
    }
    return read;
}

bool heads_carry_over(sqlite3 *db, sqlite3 *store)
{
    struct store_audit_head *heads;
    sqlite3_stmt *stmt = NULL;
    size_t count;

    /* If the store is too damaged to be read, those of the backup stay. */
    if (!read_heads(store, &heads, &count)) {
        free(heads);
        return true;
    }
    /* An empty mark is no file's: by it the audit sees that there was a restore. */
    int code = sqlite3_prepare_v2(db,
                                  "INSERT INTO stockade_audit(chain, lines, hash, file)"
                                  " VALUES(?1, ?2, ?3, x'') ON CONFLICT(chain) DO UPDATE SET"
                                  " lines = excluded.lines, hash = excluded.hash"
                                  " WHERE excluded.lines >= lines",
                                  -1, &stmt, NULL);
    for (size_t i = 0; i < count && code == SQLITE_OK; i++) {
        sqlite3_bind_text(stmt, 1, heads[i].chain, -1, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 2, heads[i].lines);
        sqlite3_bind_text(stmt, 3, heads[i].hash, -1, SQLITE_STATIC);
        code = sqlite3_step(stmt) == SQLITE_DONE ? SQLITE_OK : SQLITE_ERROR;
        sqlite3_reset(stmt);
    }
    sqlite3_finalize(stmt);
    free(heads);
    return code == SQLITE_OK;
}
