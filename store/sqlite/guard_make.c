/* SPDX-License-Identifier: Apache-2.0 */
/* Making and removing guards: whole or not at all, inside the writer's transaction. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/sqlite/db.h"
#include "store/sqlite/guards.h"

enum { NAME_MAX_BYTES = 512 };

/* A guard to make or remove, and where to say why not. */
struct task {
    struct transaction *txn;
    struct guard guard; /* its strings are owned */
    bool registered;
    char *why; /* SQL_WHY_MAX bytes */
};

__attribute__((format(printf, 2, 3))) static enum stk_error refuse(struct task *task,
                                                                   const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(task->why, SQL_WHY_MAX, format, args);
    va_end(args);
    return STK_ERR;
}

/* After a statement that failed: by what was asked for, or by the store? */
static enum stk_error failed(struct task *task)
{
    sqlite3 *db = task->txn->db;

    switch (sqlite3_errcode(db)) {
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT: return refuse(task, "%s", sqlite3_errmsg(db));
    default: return transaction_fail(task->txn);
    }
}

/* Runs a statement made by sqlite3_mprintf, and frees it. */
static enum stk_error run(struct task *task, char *sql)
{
    if (sql == NULL)
        return transaction_no_memory(task->txn);
    int code = db_exec(task->txn->db, sql);
    sqlite3_free(sql);
    return code == SQLITE_OK ? STK_OK : failed(task);
}

static char *name_new(struct bytes name)
{
    char *text = mem_zalloc(name.len + 1);
    if (name.len > 0)
        memcpy(text, name.data, name.len);
    return text;
}

/* Where the statement has a row for `name`, its columns take the place of `name` and `second`. */
static enum stk_error look_up(struct task *task, const char *sql, const char *table, char **name,
                              char **second)
{
    sqlite3_stmt *stmt;

    *second = NULL;
    if (sqlite3_prepare_v2(task->txn->db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return failed(task);
    sqlite3_bind_text(stmt, 1, *name, -1, SQLITE_STATIC);
    if (table != NULL)
        sqlite3_bind_text(stmt, 2, table, -1, SQLITE_STATIC);
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *found = (const char *)sqlite3_column_text(stmt, 0);
        const char *other = (const char *)sqlite3_column_text(stmt, 1);
        /* NULL for lack of memory, which is what finalizing then says. */
        if (found != NULL && other != NULL) {
            free(*name);
            *name = mem_strdup(found);
            *second = mem_strdup(other);
        }
    }
    if (sqlite3_finalize(stmt) == SQLITE_OK)
        return STK_OK;
    free(*second);
    *second = NULL;
    return failed(task);
}

static bool begins_with(const char *name, const char *word)
{
    return sqlite3_strnicmp(name, word, (int)strlen(word)) == 0;
}

/* Only what SQL statements change row by row, and only the users' own. */
static enum stk_error judge_table(struct task *task)
{
    struct guard *guard = &task->guard;
    char *type, *hidden;
    enum stk_error error = look_up(task,
                                   "SELECT name, type FROM pragma_table_list"
                                   " WHERE schema = 'main' AND name = ?1 COLLATE NOCASE",
                                   NULL, &guard->table, &type);
    if (error != STK_OK)
        return error;
    if (type == NULL)
        return refuse(task, "there is no table %.100s", guard->table);
    bool ordinary = strcmp(type, "table") == 0;
    error = ordinary ? STK_OK : refuse(task, "%.100s is a %s, not a table", guard->table, type);
    free(type);
    if (error != STK_OK)
        return error;
    if (begins_with(guard->table, "sqlite_") || begins_with(guard->table, "stockade_"))
        return refuse(task, "%.100s is not one of your own tables", guard->table);
    error = look_up(task,
                    "SELECT name, hidden FROM pragma_table_xinfo(?2, 'main')"
                    " WHERE name = ?1 COLLATE NOCASE",
                    guard->table, &guard->column, &hidden);
    if (error != STK_OK)
        return error;
    if (hidden == NULL)
        return refuse(task, "table %.100s has no column %.100s", guard->table, guard->column);
    guard->generated = hidden[0] > '1';
    free(hidden);
    return STK_OK;
}

/* Is the table registered, and with what? The same again restores a broken guard. */
static enum stk_error judge_registry(struct task *task)
{
    const struct guard *guard = &task->guard;
    sqlite3_stmt *stmt;
    enum stk_error error = STK_OK;

    if (sqlite3_prepare_v2(task->txn->db,
                           "SELECT key, prefix, key = ?2 COLLATE NOCASE AND prefix = ?3"
                           " FROM main.stockade_guard WHERE name = ?1",
                           -1, &stmt, NULL) != SQLITE_OK)
        return failed(task);
    sqlite3_bind_text(stmt, 1, guard->table, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, guard->column, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 3, guard->prefix, -1, SQLITE_STATIC);
    task->registered = sqlite3_step(stmt) == SQLITE_ROW;
    if (task->registered) {
        bool same = sqlite3_column_int(stmt, 2) != 0;
        if (!same || !guards_broken(task->txn->guards, guard->table))
            error = refuse(task,
                           "table %.80s is guarded already, by column %.60s and prefix %.60s; "
                           "GUARD DROP it first",
                           guard->table, (const char *)sqlite3_column_text(stmt, 0),
                           (const char *)sqlite3_column_text(stmt, 1));
    }
    if (sqlite3_finalize(stmt) != SQLITE_OK)
        return failed(task);
    return error;
}

/* A row whose key names no resource could never be changed again. */
static enum stk_error judge_rows(struct task *task)
{
    const struct guard *guard = &task->guard;
    int64_t count = 0;
    char *sql = sqlite3_mprintf(
        "SELECT count(*) FROM main.\"%w\" WHERE typeof(\"%w\") NOT IN ('integer', 'text')"
        " OR length(CAST(%Q || \"%w\" AS BLOB)) NOT BETWEEN 1 AND %d",
        guard->table, guard->column, guard->prefix, guard->column, RESOURCE_NAME_MAX);

    if (sql == NULL)
        return transaction_no_memory(task->txn);
    int code = db_int64(task->txn->db, sql, &count);
    sqlite3_free(sql);
    if (code != SQLITE_OK)
        return failed(task);
    if (count == 0)
        return STK_OK;
    return refuse(task,
                  "%lld rows of %.100s have a %.60s that names no resource: it must be an integer "
                  "or text, with the prefix 1 to %d bytes long",
                  (long long)count, guard->table, guard->column, RESOURCE_NAME_MAX);
}

/* Removes the parts that there are, or makes them all. */
static enum stk_error each_part(struct task *task, bool make)
{
    enum stk_error error = STK_OK;
    struct guard guard = task->guard;

    if (!make)
        guard.generated = false; /* all that there may ever have been */
    for (size_t which = 0; which < GUARD_PARTS && error == STK_OK; which++) {
        struct guard_part part;
        if (!guard_part_make(&guard, which, &part))
            continue;
        if (part.sql == NULL)
            error = transaction_no_memory(task->txn);
        else
            error = run(task, make ? sqlite3_mprintf("%s", part.sql)
                                   : sqlite3_mprintf("DROP %s IF EXISTS main.\"%w\"", part.type,
                                                     part.name));
        guard_part_free(&part);
    }
    return error;
}

static enum stk_error create(struct task *task)
{
    const struct guard *guard = &task->guard;
    enum stk_error error = judge_table(task);

    if (error == STK_OK)
        error = judge_registry(task);
    if (error == STK_OK)
        error = judge_rows(task);
    if (error == STK_OK && task->registered)
        error = each_part(task, false);
    if (error == STK_OK)
        error = run(task, sqlite3_mprintf("REPLACE INTO main.stockade_guard VALUES(%Q, %Q, %Q)",
                                          guard->table, guard->column, guard->prefix));
    return error == STK_OK ? each_part(task, true) : error;
}

static enum stk_error drop(struct task *task)
{
    struct guard *guard = &task->guard;
    char *key;
    enum stk_error error =
        look_up(task, "SELECT name, key FROM main.stockade_guard WHERE name = ?1", NULL,
                &guard->table, &key);
    if (error != STK_OK)
        return error;
    if (key == NULL)
        return refuse(task, "table %.100s is not guarded", guard->table);
    free(key);
    error = each_part(task, false);
    if (error != STK_OK)
        return error;
    return run(task,
               sqlite3_mprintf("DELETE FROM main.stockade_guard WHERE name = %Q", guard->table));
}

/* As a whole or not at all, also where the operation goes on after a refusal. */
static enum stk_error as_a_whole(struct task *task, enum stk_error (*change)(struct task *))
{
    struct transaction *txn = task->txn;

    check(txn->cache != NULL && txn->guards != NULL);
    transaction_settle(txn);
    txn->touched = true;
    if (db_exec(txn->db, "SAVEPOINT stockade_guard") != SQLITE_OK)
        return transaction_fail(txn);
    enum stk_error error = change(task);
    if (error == STK_STORE)
        return error;
    if (db_exec(txn->db, error == STK_OK
                             ? "RELEASE stockade_guard"
                             : "ROLLBACK TO stockade_guard; RELEASE stockade_guard") != SQLITE_OK)
        return transaction_fail(txn);
    return error == STK_OK ? guards_look(txn, GUARDS_OWN) : error;
}

static bool is_text(struct bytes text)
{
    return text.len <= NAME_MAX_BYTES &&
           (text.len == 0 || memchr(text.data, '\0', text.len) == NULL);
}

static enum stk_error perform(struct store_txn *base, struct bytes table, struct bytes column,
                              struct bytes prefix, char why[SQL_WHY_MAX],
                              enum stk_error (*change)(struct task *))
{
    struct task task = {.txn = (struct transaction *)base, .why = why};

    if (!is_text(table) || !is_text(column) || !is_text(prefix))
        return refuse(&task, "names and prefixes have at most %d bytes and no zero bytes",
                      NAME_MAX_BYTES);
    task.guard.table = name_new(table);
    task.guard.column = name_new(column);
    task.guard.prefix = name_new(prefix);
    enum stk_error error = as_a_whole(&task, change);
    free(task.guard.table);
    free(task.guard.column);
    free(task.guard.prefix);
    return error;
}

enum stk_error guards_create(struct store_txn *txn, struct bytes table, struct bytes column,
                             struct bytes prefix, char why[SQL_WHY_MAX])
{
    return perform(txn, table, column, prefix, why, create);
}

enum stk_error guards_drop(struct store_txn *txn, struct bytes table, char why[SQL_WHY_MAX])
{
    return perform(txn, table, BYTES_LITERAL(""), BYTES_LITERAL(""), why, drop);
}
