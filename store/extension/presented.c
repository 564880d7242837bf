/* SPDX-License-Identifier: Apache-2.0 */
/* A list that only grows within a transaction, so a savepoint is a length; and the virtual table
 * that is made of it. */
#include "store/extension/presented.h"

#include <stdbool.h>
#include <string.h>

struct presented_item {
    int64_t token;
    struct bytes file, resource; /* in the same allocation */
};

/* A savepoint, and how much was presented when it was made. */
struct presented_mark {
    int savepoint;
    size_t count;
};

struct presented {
    size_t owners; /* see presented_new() */
    struct guard_witness witness;
    sqlite3 *db;
    struct presented_item **items;
    size_t count, room;
    struct presented_mark *marks; /* in the order of their savepoints */
    size_t marks_count, marks_room;
};

/* The list. */

static int presented_add(struct presented *presented, struct bytes file, struct bytes resource,
                         int64_t token)
{
    if (presented->count == presented->room) {
        size_t room = presented->room * 2 + 8;
        void *items = sqlite3_realloc64(presented->items, room * sizeof *presented->items);
        if (items == NULL)
            return SQLITE_NOMEM;
        presented->items = items;
        presented->room = room;
    }
    struct presented_item *item = sqlite3_malloc64(sizeof *item + file.len + resource.len);
    if (item == NULL)
        return SQLITE_NOMEM;
    char *at = (char *)(item + 1);
    if (file.len > 0)
        memcpy(at, file.data, file.len);
    if (resource.len > 0)
        memcpy(at + file.len, resource.data, resource.len);
    *item = (struct presented_item){token, {at, file.len}, {at + file.len, resource.len}};
    presented->items[presented->count++] = item;
    return SQLITE_OK;
}

static bool same(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static bool presented_has(const struct presented *presented, struct bytes file,
                          struct bytes resource, int64_t token)
{
    /* The last one first: rows often change right after their token was presented. */
    for (size_t i = presented->count; i > 0; i--) {
        const struct presented_item *item = presented->items[i - 1];
        if (item->token == token && same(item->resource, resource) && same(item->file, file))
            return true;
    }
    return false;
}

static void shorten(struct presented *presented, size_t count)
{
    while (presented->count > count)
        sqlite3_free(presented->items[--presented->count]);
}

static void presented_clear(struct presented *presented)
{
    shorten(presented, 0);
    presented->marks_count = 0;
}

/* A released savepoint takes those inside it along. */
static void presented_release_to(struct presented *presented, int savepoint)
{
    while (presented->marks_count > 0 &&
           presented->marks[presented->marks_count - 1].savepoint >= savepoint)
        presented->marks_count--;
}

static int presented_savepoint(struct presented *presented, int savepoint)
{
    presented_release_to(presented, savepoint); /* its number is used again */
    if (presented->marks_count == presented->marks_room) {
        size_t room = presented->marks_room * 2 + 8;
        void *marks = sqlite3_realloc64(presented->marks, room * sizeof *presented->marks);
        if (marks == NULL)
            return SQLITE_NOMEM;
        presented->marks = marks;
        presented->marks_room = room;
    }
    presented->marks[presented->marks_count++] =
        (struct presented_mark){savepoint, presented->count};
    return SQLITE_OK;
}

static void presented_rollback_to(struct presented *presented, int savepoint)
{
    presented_release_to(presented, savepoint + 1);
    /* A savepoint that the table was not told of is older than all that was presented. */
    size_t marks = presented->marks_count;
    bool known = marks > 0 && presented->marks[marks - 1].savepoint == savepoint;
    shorten(presented, known ? presented->marks[marks - 1].count : 0);
}

/* Its owners. */

static bool witness_presented(void *context, struct bytes file, struct bytes resource,
                              int64_t token)
{
    return presented_has(context, file, resource, token);
}

/* Asked anew each time: the program may turn it off between two statements. SQLite compiles a
 * PRAGMA each time that it runs, so there is nothing to gain by keeping the statement. */
static bool witness_recursive(void *context)
{
    const struct presented *presented = context;
    sqlite3_stmt *stmt;
    bool on = false;

    if (sqlite3_prepare_v2(presented->db, "PRAGMA recursive_triggers", -1, &stmt, NULL) !=
        SQLITE_OK)
        return false;
    if (sqlite3_step(stmt) == SQLITE_ROW)
        on = sqlite3_column_int(stmt, 0) != 0;
    sqlite3_finalize(stmt);
    return on;
}

struct presented *presented_new(sqlite3 *db)
{
    struct presented *presented = sqlite3_malloc64(sizeof *presented);

    if (presented == NULL)
        return NULL;
    *presented = (struct presented){.owners = 1, .db = db};
    presented->witness = (struct guard_witness){
        .presented = witness_presented,
        .recursive = witness_recursive,
        .context = presented,
        .how = "BEGIN IMMEDIATE, then SELECT stockade_present(resource, token)",
    };
    return presented;
}

void presented_share(struct presented *presented)
{
    presented->owners++;
}

void presented_release(void *context)
{
    struct presented *presented = context;

    if (--presented->owners > 0)
        return;
    presented_clear(presented);
    sqlite3_free(presented->items);
    sqlite3_free(presented->marks);
    sqlite3_free(presented);
}

/* The virtual table `stockade_presented`: one row for each item. It is there without being created,
 * in no file, and triggers and views cannot use it. */

struct table {
    sqlite3_vtab base;
    struct presented *presented;
};

struct cursor {
    sqlite3_vtab_cursor base;
    size_t at;
};

enum { COLUMN_RESOURCE, COLUMN_TOKEN, COLUMN_FILE };

static struct presented *presented_of(sqlite3_vtab *table)
{
    return ((struct table *)table)->presented;
}

static int connect_table(sqlite3 *db, void *context, int argc, const char *const *argv,
                         sqlite3_vtab **result, char **error)
{
    struct presented *presented = context;

    (void)argc, (void)argv, (void)error;
    int code = sqlite3_declare_vtab(db, "CREATE TABLE x(resource, token, file HIDDEN)");
    if (code != SQLITE_OK)
        return code;
    (void)sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
    struct table *table = sqlite3_malloc64(sizeof *table);
    if (table == NULL)
        return SQLITE_NOMEM;
    *table = (struct table){.presented = presented};
    presented_share(presented);
    *result = &table->base;
    return SQLITE_OK;
}

static int disconnect_table(sqlite3_vtab *table)
{
    presented_release(presented_of(table));
    sqlite3_free(table);
    return SQLITE_OK;
}

static int best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    info->estimatedCost = (double)presented_of(table)->count;
    return SQLITE_OK;
}

static int open_cursor(sqlite3_vtab *table, sqlite3_vtab_cursor **result)
{
    struct cursor *cursor = sqlite3_malloc64(sizeof *cursor);

    (void)table;
    if (cursor == NULL)
        return SQLITE_NOMEM;
    *cursor = (struct cursor){.at = 0};
    *result = &cursor->base;
    return SQLITE_OK;
}

static int close_cursor(sqlite3_vtab_cursor *cursor)
{
    sqlite3_free(cursor);
    return SQLITE_OK;
}

static int filter(sqlite3_vtab_cursor *cursor, int index, const char *index_text, int argc,
                  sqlite3_value **argv)
{
    (void)index, (void)index_text, (void)argc, (void)argv;
    ((struct cursor *)cursor)->at = 0;
    return SQLITE_OK;
}

static int next(sqlite3_vtab_cursor *cursor)
{
    ((struct cursor *)cursor)->at++;
    return SQLITE_OK;
}

static int at_end(sqlite3_vtab_cursor *cursor)
{
    return ((struct cursor *)cursor)->at >= presented_of(cursor->pVtab)->count;
}

static int column(sqlite3_vtab_cursor *cursor, sqlite3_context *call, int which)
{
    const struct presented *presented = presented_of(cursor->pVtab);
    const struct presented_item *item = presented->items[((struct cursor *)cursor)->at];

    switch (which) {
    case COLUMN_RESOURCE:
        sqlite3_result_text64(call, item->resource.data, item->resource.len, SQLITE_TRANSIENT,
                              SQLITE_UTF8);
        break;
    case COLUMN_TOKEN: sqlite3_result_int64(call, item->token); break;
    default: sqlite3_result_blob64(call, item->file.data, item->file.len, SQLITE_TRANSIENT);
    }
    return SQLITE_OK;
}

static int rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *result)
{
    *result = (sqlite3_int64)((struct cursor *)cursor)->at + 1;
    return SQLITE_OK;
}

static struct bytes blob(sqlite3_value *value)
{
    const void *data = sqlite3_value_blob(value);
    return (struct bytes){data, data != NULL ? (size_t)sqlite3_value_bytes(value) : 0};
}

static int update(sqlite3_vtab *table, int argc, sqlite3_value **argv, sqlite3_int64 *new_rowid)
{
    enum { OLD_ROWID, NEW_ROWID, FIRST_COLUMN };
    struct presented *presented = presented_of(table);

    if (argc == 1 || sqlite3_value_type(argv[OLD_ROWID]) != SQLITE_NULL) {
        table->zErrMsg = sqlite3_mprintf("what was presented stays so until the transaction ends");
        return SQLITE_READONLY;
    }
    /* A row made past stockade_present opens nothing that is not open: guards ask for the newest
     * token, whoever presents it. */
    int code = presented_add(presented, blob(argv[FIRST_COLUMN + COLUMN_FILE]),
                             blob(argv[FIRST_COLUMN + COLUMN_RESOURCE]),
                             sqlite3_value_int64(argv[FIRST_COLUMN + COLUMN_TOKEN]));
    *new_rowid = (sqlite3_int64)presented->count;
    return code;
}

static int transaction_ends(sqlite3_vtab *table)
{
    presented_clear(presented_of(table));
    return SQLITE_OK;
}

static int savepoint(sqlite3_vtab *table, int number)
{
    return presented_savepoint(presented_of(table), number);
}

static int release(sqlite3_vtab *table, int number)
{
    presented_release_to(presented_of(table), number);
    return SQLITE_OK;
}

static int rollback_to(sqlite3_vtab *table, int number)
{
    presented_rollback_to(presented_of(table), number);
    return SQLITE_OK;
}

/* Without xCreate the table is there by itself, and only so. */
static const sqlite3_module module = {
    .iVersion = 2,
    .xConnect = connect_table,
    .xDisconnect = disconnect_table,
    .xBestIndex = best_index,
    .xOpen = open_cursor,
    .xClose = close_cursor,
    .xFilter = filter,
    .xNext = next,
    .xEof = at_end,
    .xColumn = column,
    .xRowid = rowid,
    .xUpdate = update,
    .xBegin = transaction_ends, /* nothing is left of the one before */
    .xCommit = transaction_ends,
    .xRollback = transaction_ends,
    .xSavepoint = savepoint,
    .xRelease = release,
    .xRollbackTo = rollback_to,
};

int presented_table_add(struct presented *presented)
{
    presented_share(presented);
    return sqlite3_create_module_v2(presented->db, "stockade_presented", &module, presented,
                                    presented_release);
}

sqlite3 *presented_db(const struct presented *presented)
{
    return presented->db;
}

struct guard_witness *presented_witness(struct presented *presented)
{
    return &presented->witness;
}
