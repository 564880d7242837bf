/* SPDX-License-Identifier: Apache-2.0 */
/* The guard function and the loadable extension, linked in instead of loaded: what counts as
 * presented, and for how long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "store/extension/presented.h"

int sqlite3_stockadeguard_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

/* What a Stockade file has that the extension looks at, and a table with one trigger. */
static const char schema[] =
    "CREATE TABLE %s.stockade_meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "INSERT INTO %s.stockade_meta VALUES('file', 'mark of %s');"
    "CREATE TABLE %s.stockade_resource(id INTEGER PRIMARY KEY, name BLOB UNIQUE, token, state);"
    "INSERT INTO %s.stockade_resource(name, token, state) VALUES(CAST('r:1' AS BLOB), 34, 1),"
    "  (CAST('r:2' AS BLOB), 7, 1), (CAST('r:3' AS BLOB), 9, 2), (CAST('r:4' AS BLOB), 5, 3);"
    "CREATE TABLE %s.t(k, v);"
    "CREATE TRIGGER %s.guard AFTER INSERT ON t BEGIN SELECT stockade_guard('r:', NEW.k,"
    "  (SELECT token FROM stockade_resource WHERE name = CAST('r:' || NEW.k AS BLOB)"
    "   AND state = 1), (SELECT value FROM stockade_meta WHERE key = 'file')); END;";

static char said[512]; /* by SQLite, of the last statement that failed; "" where none did */

/* The first column of the last row, or -1 where there is none or it failed. */
static int64_t run(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    int64_t value = -1;

    said[0] = '\0';
    while (*sql != '\0' && said[0] == '\0') {
        if (sqlite3_prepare_v2(db, sql, -1, &stmt, &sql) == SQLITE_OK)
            while (sqlite3_step(stmt) == SQLITE_ROW)
                value = sqlite3_column_int64(stmt, 0);
        if (sqlite3_finalize(stmt) != SQLITE_OK || sqlite3_errcode(db) != SQLITE_OK)
            snprintf(said, sizeof said, "%s", sqlite3_errmsg(db));
    }
    return said[0] == '\0' ? value : -1;
}

static void succeeds(sqlite3 *db, const char *sql)
{
    (void)run(db, sql);
    if (said[0] != '\0')
        fail_msg("%s: %s", sql, said);
}

static void fails(sqlite3 *db, const char *sql, const char *text)
{
    (void)run(db, sql);
    if (strstr(said, text) == NULL)
        fail_msg("%s: '%s', not '%s'", sql, said, text);
}

static void add_file(sqlite3 *db, const char *name)
{
    char *sql = sqlite3_mprintf(schema, name, name, name, name, name, name, name);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(sql);
}

static int open_db(void **state)
{
    sqlite3 *db = NULL;
    char *error = NULL;

    assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
    add_file(db, "main");
    assert_int_equal(sqlite3_stockadeguard_init(db, &error, NULL), SQLITE_OK);
    *state = db;
    return 0;
}

static int close_db(void **state)
{
    assert_int_equal(sqlite3_close(*state), SQLITE_OK); /* not _v2: no statement was forgotten */
    return 0;
}

static void a_row_needs_its_token_in_the_same_transaction(void **state)
{
    fails(*state, "INSERT INTO t VALUES(1, 'x')", "GUARDED the token of 'r:1' was not presented");
    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 'x')");
    fails(*state, "INSERT INTO t VALUES(2, 'x')", "GUARDED the token of 'r:2' was not presented");
    succeeds(*state, "INSERT INTO t VALUES('1', 'y'); COMMIT");
    assert_int_equal(run(*state, "SELECT count(*) FROM t"), 2);
    fails(*state, "INSERT INTO t VALUES(1, 'x')", "GUARDED");
    succeeds(*state, "BEGIN");
    fails(*state, "INSERT INTO t VALUES(1, 'x')", "GUARDED");
}

static void a_token_is_judged_where_it_is_presented(void **state)
{
    fails(*state, "SELECT stockade_present('r:1', 34)", "there is no transaction");
    succeeds(*state, "BEGIN");
    fails(*state, "SELECT stockade_present('r:1', 33)", "STALE token 33 of 'r:1'");
    fails(*state, "SELECT stockade_present('r:1', 35)", "UNKNOWN token 35 of 'r:1'");
    fails(*state, "SELECT stockade_present('r:3', 9)", "STALE token 9 of 'r:3'");
    fails(*state, "SELECT stockade_present('r:4', 5)", "STALE token 5 of 'r:4'");
    fails(*state, "SELECT stockade_present('r:nobody', 1)", "UNKNOWN token 1 of 'r:nobody'");
    fails(*state, "SELECT stockade_present('r:1', '34')", "usage");
    fails(*state, "SELECT stockade_present('r:1', NULL)", "usage");
    fails(*state, "SELECT stockade_present(NULL, 34)", "usage");
    fails(*state, "SELECT stockade_present(1, 34)", "usage");
    fails(*state, "SELECT stockade_present('', 34)", "1 to 512 bytes");
    fails(*state, "SELECT stockade_present(printf('%513c', 'x'), 34)", "1 to 512 bytes");
    fails(*state, "SELECT stockade_present('r:1', 34, 'nosuch')", "nosuch is not a Stockade file");
    fails(*state, "SELECT stockade_present('r:1', 34, NULL)", "usage");
    fails(*state, "SELECT stockade_present('r:1')", "wrong number of arguments");
    assert_int_equal(run(*state, "SELECT count(*) FROM stockade_presented"), 0);
    assert_int_equal(run(*state, "SELECT stockade_present(CAST('r:1' AS BLOB), 34, 'main')"), 34);
    succeeds(*state, "INSERT INTO t VALUES(1, 'x')");
}

static void a_key_that_names_no_resource_is_refused(void **state)
{
    succeeds(*state, "BEGIN");
    fails(*state, "INSERT INTO t VALUES(NULL, 1)", "text or an integer");
    fails(*state, "INSERT INTO t VALUES(1.0, 1)", "not a float");
    fails(*state, "INSERT INTO t VALUES(x'31', 1)", "not a blob");
    fails(*state, "INSERT INTO t VALUES(printf('%511c', 'x'), 1)", "1 to 512 bytes");
    fails(*state, "INSERT INTO t VALUES(printf('%510c', 'x'), 1)", "nobody holds");
    fails(*state, "SELECT stockade_guard('', '', 1, '')", "1 to 512 bytes");
    fails(*state, "INSERT INTO t VALUES('a' || char(10) || 'b', 1)", "'r:a?b'");
    fails(*state, "INSERT INTO t VALUES(3, 1)", "nobody holds 'r:3'");
    fails(*state, "SELECT stockade_guard('r:', 1, '34', 'mark of main')", "nobody holds 'r:1'");
}

static void what_was_presented_ends_with_the_transaction(void **state)
{
    static const char *const ends[] = {"COMMIT", "ROLLBACK"};

    for (size_t i = 0; i < 2; i++) {
        succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34)");
        assert_int_equal(run(*state, "SELECT count(*) FROM stockade_presented"), 1);
        succeeds(*state, ends[i]);
        assert_int_equal(run(*state, "SELECT count(*) FROM stockade_presented"), 0);
        fails(*state, "BEGIN; INSERT INTO t VALUES(1, 1)", "GUARDED");
        succeeds(*state, "ROLLBACK");
    }
}

static void what_was_presented_ends_with_its_savepoint(void **state)
{
    succeeds(*state, "SAVEPOINT a; SAVEPOINT b; SELECT stockade_present('r:1', 34); SAVEPOINT c;"
                     "SELECT stockade_present('r:2', 7); INSERT INTO t VALUES(1, 1), (2, 1);"
                     "ROLLBACK TO c; INSERT INTO t VALUES(1, 2)");
    fails(*state, "INSERT INTO t VALUES(2, 2)", "GUARDED");
    succeeds(*state, "SELECT stockade_present('r:2', 7); RELEASE c; INSERT INTO t VALUES(2, 3);"
                     "ROLLBACK TO b");
    fails(*state, "INSERT INTO t VALUES(1, 4)", "GUARDED");
    succeeds(*state, "SELECT stockade_present('r:1', 34); RELEASE b; ROLLBACK TO a");
    fails(*state, "INSERT INTO t VALUES(1, 5)", "GUARDED");
    succeeds(*state, "SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 6); RELEASE a");
    assert_int_equal(run(*state, "SELECT count(*) FROM stockade_presented"), 0);
    assert_int_equal(run(*state, "SELECT group_concat(v) FROM t"), 6);
}

/* Savepoints are numbered from 0 in each transaction. */
static void savepoints_of_a_transaction_that_is_over_count_for_nothing(void **state)
{
    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34), stockade_present('r:2', 7);"
                     "SAVEPOINT a; ROLLBACK");
    succeeds(*state, "BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT stockade_present('r:1', 34);"
                     "INSERT INTO t VALUES(1, 1); ROLLBACK TO a");
    fails(*state, "INSERT INTO t VALUES(1, 2)", "GUARDED");
}

static void savepoints_without_news_cost_nothing(void **state)
{
    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34); SAVEPOINT a; ROLLBACK TO a;"
                     "INSERT INTO t VALUES(1, 1); SAVEPOINT b; SAVEPOINT c; ROLLBACK TO b;"
                     "INSERT INTO t VALUES(1, 2); RELEASE a; INSERT INTO t VALUES(1, 3); COMMIT");
}

static void rows_change_only_while_recursive_triggers_is_on(void **state)
{
    assert_int_equal(run(*state, "PRAGMA recursive_triggers"), 1);
    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1);"
                     "PRAGMA recursive_triggers = OFF");
    fails(*state, "INSERT INTO t VALUES(1, 1)", "recursive_triggers");
    succeeds(*state, "PRAGMA recursive_triggers = ON; INSERT INTO t VALUES(1, 1)");
}

static void a_token_for_one_file_opens_no_other(void **state)
{
    succeeds(*state, "ATTACH ':memory:' AS other");
    add_file(*state, "other");
    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO main.t VALUES(1, 1)");
    fails(*state, "INSERT INTO other.t VALUES(1, 1)", "GUARDED");
    succeeds(*state, "SELECT stockade_present('r:1', 34, 'other');"
                     "INSERT INTO other.t VALUES(1, 1)");
    fails(*state, "INSERT INTO other.t VALUES(2, 1)", "GUARDED");
    succeeds(*state, "COMMIT");
}

static void a_temporary_table_shadows_nothing(void **state)
{
    succeeds(*state, "CREATE TEMP TABLE stockade_resource(name BLOB UNIQUE, token, state);"
                     "CREATE TEMP TABLE stockade_meta(key, value);"
                     "INSERT INTO temp.stockade_resource VALUES(CAST('r:1' AS BLOB), 99, 1);"
                     "INSERT INTO temp.stockade_meta VALUES('file', 'mark of temp');"
                     "BEGIN; SELECT stockade_present('r:1', 99, 'temp')");
    fails(*state, "INSERT INTO t VALUES(1, 1)", "GUARDED");
    succeeds(*state, "SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1)");
}

static void a_row_put_past_stockade_present_opens_nothing(void **state)
{
    succeeds(*state, "BEGIN; INSERT INTO stockade_presented VALUES('r:1', 33), ('r:1', 34)");
    fails(*state, "INSERT INTO t VALUES(1, 1)", "GUARDED"); /* it names no file */
    succeeds(*state, "INSERT INTO stockade_presented(resource, token, file)"
                     " VALUES('r:1', 33, 'mark of main')");
    fails(*state, "INSERT INTO t VALUES(1, 1)", "GUARDED"); /* it is not the newest */
    fails(*state, "DELETE FROM stockade_presented", "until the transaction ends");
    fails(*state, "UPDATE stockade_presented SET token = 34", "until the transaction ends");
    assert_int_equal(run(*state, "SELECT count(*) FROM stockade_presented WHERE token = 33"), 2);
    assert_int_equal(run(*state, "SELECT max(rowid) FROM stockade_presented"), 3);
}

static void triggers_and_views_cannot_present(void **state)
{
    succeeds(*state, "CREATE TABLE u(a); CREATE TRIGGER careless BEFORE INSERT ON u BEGIN"
                     "  SELECT stockade_present('r:1', 34); END;"
                     "CREATE VIEW v AS SELECT * FROM stockade_presented; BEGIN");
    fails(*state, "INSERT INTO u VALUES(1)", "unsafe use of stockade_present");
    fails(*state, "SELECT * FROM v", "unsafe use of virtual table");
}

static void it_can_be_loaded_again(void **state)
{
    char *error = NULL;

    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1)");
    assert_int_equal(sqlite3_stockadeguard_init(*state, &error, NULL), SQLITE_OK);
    fails(*state, "INSERT INTO t VALUES(1, 1)", "GUARDED");
    succeeds(*state, "SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1); COMMIT");
    fails(*state, "INSERT INTO t VALUES(1, 1)", "GUARDED");
}

static void a_connection_that_closes_in_mid_transaction_leaves_nothing(void **state)
{
    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1)");
    /* close_db and the leak checker see the rest. */
}

static void the_programs_hooks_stay_its_own(void **state)
{
    succeeds(*state, "BEGIN; SELECT stockade_present('r:1', 34); COMMIT");
    assert_null(sqlite3_commit_hook(*state, NULL, NULL));
    assert_null(sqlite3_rollback_hook(*state, NULL, NULL));
    assert_null(sqlite3_update_hook(*state, NULL, NULL));
}

#define test(f) cmocka_unit_test_setup_teardown(f, open_db, close_db)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_row_needs_its_token_in_the_same_transaction),
        test(a_token_is_judged_where_it_is_presented),
        test(a_key_that_names_no_resource_is_refused),
        test(what_was_presented_ends_with_the_transaction),
        test(what_was_presented_ends_with_its_savepoint),
        test(savepoints_of_a_transaction_that_is_over_count_for_nothing),
        test(savepoints_without_news_cost_nothing),
        test(rows_change_only_while_recursive_triggers_is_on),
        test(a_token_for_one_file_opens_no_other),
        test(a_temporary_table_shadows_nothing),
        test(a_row_put_past_stockade_present_opens_nothing),
        test(triggers_and_views_cannot_present),
        test(it_can_be_loaded_again),
        test(a_connection_that_closes_in_mid_transaction_leaves_nothing),
        test(the_programs_hooks_stay_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
