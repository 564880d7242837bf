/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite extension stockade_guard: for programs that open a Stockade file with their own SQLite
 * and want to write guarded rows. It gives a connection
 *
 *   stockade_present(resource, token [, schema])   within a transaction: this is my token
 *   stockade_guard(...), stockade_assigned(...)    what the triggers of guarded tables call
 *   stockade_presented                             a table of what was presented
 *
 * A token counts until the transaction ends. Nothing of it is trusted beyond that: the triggers
 * look the newest token up where the row is, in the same transaction, and compare.
 *
 * Where memory runs out or SQLite fails, the call fails; nothing here ends the program. */
#include <string.h>

#include "fence/token.h"
#include "store/extension/presented.h"
#include "store/sqlite/names.h"
#include "store/txn.h"

#ifdef STOCKADE_EXTENSION
SQLITE_EXTENSION_INIT1
#endif

/* It has INNOCUOUS and DIRECTONLY, which keep triggers out of stockade_present. */
#define SQLITE_VERSION_MIN 3031000

static void fail(sqlite3_context *call, sqlite3 *db, int code)
{
    sqlite3_result_error(call, sqlite3_errmsg(db), -1);
    sqlite3_result_error_code(call, code);
}

/* Run a statement that changes no row, but takes a write lock. False: it failed, as reported. */
static bool lock(sqlite3_context *call, sqlite3 *db, const char *sql)
{
    int code = sqlite3_exec(db, sql, NULL, NULL, NULL);

    if (code != SQLITE_OK)
        fail(call, db, code);
    return code == SQLITE_OK;
}

/* Take the write lock of the main file. SQLite also learns by this that the table
 * `stockade_presented` has a part in the transaction. */
static bool lock_main(sqlite3_context *call, sqlite3 *db)
{
    return lock(call, db, "INSERT INTO stockade_presented(token) SELECT 1 WHERE 0");
}

/* Take that of an attached file, which is a Stockade file. */
static bool lock_attached(sqlite3_context *call, sqlite3 *db, const char *schema)
{
    char *sql;

    if (sqlite3_stricmp(schema, "main") == 0)
        return true;
    sql = sqlite3_mprintf("UPDATE \"%w\".stockade_meta SET value = value WHERE 0", schema);
    if (sql == NULL)
        sqlite3_result_error_nomem(call);
    bool locked = sql != NULL && lock(call, db, sql);
    sqlite3_free(sql);
    return locked;
}

/* Has a daemon, or another program with the library, served this very file? In a copy that none has
 * opened yet, leases may be live that have ended elsewhere. `note` is what place.h keeps; NULL: an
 * earlier version keeps none. */
static bool was_served(const char *path, const char *note, char *why, size_t why_size)
{
    struct names_file noted, now;

    if (note == NULL || path == NULL || !names_identify(path, &now))
        return true;
    if (names_get(note, &noted) > 0 ? names_are_one(&noted, &now) : strcmp(note, NAMES_COPY) != 0)
        return true;
    sqlite3_snprintf((int)why_size, why,
                     "%s is a copy that no stockaded has opened: let one open it, which ends "
                     "the leases that are in it",
                     text_end(path, 160));
    return false;
}

/* Read what the file says of a resource, with its write lock taken first: a transaction that reads
 * first and writes later fails where another program has committed in between. False: SQLite
 * failed, or the file is a copy, which was reported. */
static bool look_up(sqlite3_context *call, sqlite3 *db, const char *schema, struct bytes resource,
                    struct fence *fence, char file[64], size_t *file_len)
{
    sqlite3_stmt *stmt = NULL;
    char *sql = sqlite3_mprintf(
        "SELECT (SELECT value FROM \"%w\".stockade_meta WHERE key = 'file'), token, state,"
        " (SELECT value FROM \"%w\".stockade_meta WHERE key = 'log')"
        " FROM (SELECT 1) LEFT JOIN \"%w\".stockade_resource ON name = ?1",
        schema, schema, schema);
    char why[256] = "";

    *fence = (struct fence){.token = 0};
    *file_len = 0;
    if (sql == NULL || sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) {
        char *text = sqlite3_mprintf("stockade_present: %s is not a Stockade file, or older: %s",
                                     schema, sqlite3_errmsg(db));
        sqlite3_result_error(call, text != NULL ? text : "out of memory", -1);
        sqlite3_free(text);
        sqlite3_free(sql);
        return false;
    }
    sqlite3_free(sql);
    if (!lock_attached(call, db, schema)) {
        sqlite3_finalize(stmt);
        return false;
    }
    sqlite3_bind_blob64(stmt, 1, resource.data, resource.len, SQLITE_STATIC);
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        const void *mark = sqlite3_column_blob(stmt, 0);
        size_t len = mark != NULL ? (size_t)sqlite3_column_bytes(stmt, 0) : 0;
        *file_len = len <= 64 ? len : 64;
        if (*file_len > 0)
            memcpy(file, mark, *file_len);
        fence->token = sqlite3_column_int64(stmt, 1);
        fence->state = sqlite3_column_int(stmt, 2) == FENCE_LIVE ? FENCE_LIVE : FENCE_RELEASED;
        if (sqlite3_column_type(stmt, 1) == SQLITE_NULL || fence->token == 0)
            fence->state = FENCE_NONE;
        (void)was_served(sqlite3_db_filename(db, schema),
                         (const char *)sqlite3_column_text(stmt, 3), why, sizeof why);
    }
    int code = sqlite3_finalize(stmt);
    if (code != SQLITE_OK)
        fail(call, db, code);
    else if (why[0] != '\0')
        sqlite3_result_error(call, why, -1);
    return code == SQLITE_OK && why[0] == '\0';
}

/* Has the file one name? By another one, this connection has another log than the daemon. */
static bool has_one_name(const char *path, char *why, size_t why_size)
{
    struct stat status;

    if (path == NULL || stat(path, &status) != 0 || !names_are_several(&status))
        return true;
    names_explain(path, &status, why, why_size);
    return false;
}

/* Through SQL, so that SQLite knows of it in this transaction. */
static void remember(sqlite3_context *call, sqlite3 *db, struct bytes file, struct bytes resource,
                     int64_t token)
{
    sqlite3_stmt *stmt;
    int code = sqlite3_prepare_v2(
        db, "INSERT INTO stockade_presented(resource, token, file) VALUES(?1, ?2, ?3)", -1, &stmt,
        NULL);

    if (code == SQLITE_OK) {
        sqlite3_bind_blob64(stmt, 1, resource.data, resource.len, SQLITE_STATIC);
        sqlite3_bind_int64(stmt, 2, token);
        sqlite3_bind_blob64(stmt, 3, file.data, file.len, SQLITE_STATIC);
        sqlite3_step(stmt);
        code = sqlite3_finalize(stmt);
    }
    if (code == SQLITE_OK)
        sqlite3_result_int64(call, token);
    else
        fail(call, db, code);
}

static void refuse(sqlite3_context *call, enum stk_error error, struct bytes resource,
                   int64_t token)
{
    char shown[GUARD_PRINTABLE_MAX];
    char *text = sqlite3_mprintf("%s token %lld of '%s': %s", stk_error_code(error), token,
                                 guard_printable(resource, shown), stk_error_text(error));

    sqlite3_result_error(call, text != NULL ? text : stk_error_code(error), -1);
    sqlite3_free(text);
}

static void present(sqlite3_context *call, int argc, sqlite3_value **argv)
{
    sqlite3 *db = sqlite3_context_db_handle(call);
    const char *schema = argc > 2 ? (const char *)sqlite3_value_text(argv[2]) : "main";
    int type = sqlite3_value_type(argv[0]);
    struct fence fence;
    char file[64], why[256];
    size_t file_len;

    if (sqlite3_get_autocommit(db)) {
        sqlite3_result_error(call,
                             "stockade_present: there is no transaction. BEGIN IMMEDIATE "
                             "first: a token counts until the transaction ends",
                             -1);
        return;
    }
    if ((type != SQLITE_TEXT && type != SQLITE_BLOB) || schema == NULL ||
        sqlite3_value_type(argv[1]) != SQLITE_INTEGER) {
        sqlite3_result_error(call,
                             "usage: stockade_present(resource, token [, schema]), the token "
                             "an integer",
                             -1);
        return;
    }
    const void *name = type == SQLITE_TEXT ? (const void *)sqlite3_value_text(argv[0])
                                           : sqlite3_value_blob(argv[0]);
    struct bytes resource = {name, name != NULL ? (size_t)sqlite3_value_bytes(argv[0]) : 0};
    if (resource.len < 1 || resource.len > RESOURCE_NAME_MAX) {
        sqlite3_result_error(call, "stockade_present: a resource has 1 to 512 bytes", -1);
        return;
    }
    if (!has_one_name(sqlite3_db_filename(db, schema), why, sizeof why)) {
        sqlite3_result_error(call, why, -1);
        return;
    }
    if (!lock_main(call, db) || !look_up(call, db, schema, resource, &fence, file, &file_len))
        return;
    int64_t token = sqlite3_value_int64(argv[1]);
    enum stk_error error = fence_judge(&fence, token);
    if (error != STK_OK)
        refuse(call, error, resource, token);
    else
        remember(call, db, (struct bytes){file, file_len}, resource, token);
}

/* The same two questions for the triggers of guards by column, which know their file by its mark
 * alone. A copy has the same one: so all files count that have it. */
static bool is_served(sqlite3 *db, const char *schema, const char *path, struct bytes file,
                      char *why, size_t why_size)
{
    sqlite3_stmt *stmt = NULL;
    bool served = true;
    char *sql = sqlite3_mprintf(
        "SELECT value = ?1, (SELECT value FROM \"%w\".stockade_meta WHERE key = 'log')"
        " FROM \"%w\".stockade_meta WHERE key = 'file'",
        schema, schema);

    if (sql == NULL) {
        sqlite3_snprintf((int)why_size, why, "out of memory");
        return false;
    }
    int code = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    sqlite3_free(sql);
    if (code == SQLITE_ERROR) /* no such table: it is no Stockade file */
        return true;
    sqlite3_bind_blob64(stmt, 1, file.data, file.len, SQLITE_STATIC);
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_int(stmt, 0) != 0)
        served = has_one_name(path, why, why_size) &&
                 was_served(path, (const char *)sqlite3_column_text(stmt, 1), why, why_size);
    return sqlite3_finalize(stmt) == SQLITE_OK && code == SQLITE_OK && served;
}

static bool are_served(void *context, struct bytes file, char *why, size_t why_size)
{
    sqlite3 *db = presented_db(context);
    sqlite3_stmt *stmt = NULL;
    bool served = true;

    sqlite3_snprintf((int)why_size, why, "it cannot be told which file this is");
    if (sqlite3_prepare_v2(db, "PRAGMA database_list", -1, &stmt, NULL) != SQLITE_OK)
        return false;
    while (served && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *schema = (const char *)sqlite3_column_text(stmt, 1);
        const char *path = (const char *)sqlite3_column_text(stmt, 2);
        if (schema != NULL && path != NULL && *path != '\0')
            served = is_served(db, schema, path, file, why, why_size);
    }
    return sqlite3_finalize(stmt) == SQLITE_OK && served;
}

static void release_witness(void *witness)
{
    presented_release(((struct guard_witness *)witness)->context);
}

static int add_functions(struct presented *presented)
{
    presented_share(presented);
    presented_witness(presented)->served = are_served;
    int code =
        guard_function_add(presented_db(presented), presented_witness(presented), release_witness);
    for (int argc = 2; code == SQLITE_OK && argc <= 3; argc++)
        code = sqlite3_create_function_v2(presented_db(presented), "stockade_present", argc,
                                          SQLITE_UTF8 | SQLITE_DIRECTONLY, NULL, present, NULL,
                                          NULL, NULL);
    return code;
}

int sqlite3_stockadeguard_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

/* SQLite calls it by this name where it loads stockade_guard.so. */
__attribute__((visibility("default"))) int sqlite3_stockadeguard_init(
    sqlite3 *db, char **error, const sqlite3_api_routines *api)
{
#ifdef STOCKADE_EXTENSION
    SQLITE_EXTENSION_INIT2(api);
#else
    (void)api;
#endif
    if (sqlite3_libversion_number() < SQLITE_VERSION_MIN) {
        *error = sqlite3_mprintf("stockade_guard needs SQLite 3.31 or newer, not %s",
                                 sqlite3_libversion());
        return SQLITE_ERROR;
    }
    struct presented *presented = presented_new(db);
    if (presented == NULL)
        return SQLITE_NOMEM;
    int code = presented_table_add(presented);
    if (code == SQLITE_OK)
        code = add_functions(presented);
    if (code == SQLITE_OK)
        code = sqlite3_exec(db, "PRAGMA recursive_triggers = ON", NULL, NULL, NULL);
    presented_release(presented);
    return code;
}
