/* SPDX-License-Identifier: Apache-2.0 */
/* The virtual table `stockade_presented`: what was presented in this transaction, one row each.
 * stockade_present writes it; programs may read it. It is there without being created, in no file,
 * and triggers and views cannot use it. */
#include "store/extension/presented.h"

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
