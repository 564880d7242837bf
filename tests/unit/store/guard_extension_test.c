/* SPDX-License-Identifier: Apache-2.0 */
/* The guard function and the loadable extension, linked in instead of loaded: what counts as
 * presented, and for how long. It lives in other people's programs: where SQLite has no memory for
 * it, a call fails, nothing else happens, and the next call goes well. */
#include "store/extension/presented.h"
#include "tests/disk/fault_memory.h"
#include "tests/unit/folder.h"
#include "tests/unit/store/plain.h"
#include "tests/unit/test.h"

int sqlite3_stockadeguard_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

/* What the extension reads in a Stockade file, and a table with one trigger. */
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

/* Return the first column of the last row, or -1 where there is none or a statement failed. */
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
    plain_run(db, sql);
    sqlite3_free(sql);
}

static sqlite3 *open_without(void)
{
    sqlite3 *db = plain_open(":memory:");

    add_file(db, "main");
    return db;
}

static int load(sqlite3 *db)
{
    char *error = NULL;
    return sqlite3_stockadeguard_init(db, &error, NULL);
}

static int open_db(void **state)
{
    sqlite3 *db = open_without();

    assert_int_equal(load(db), SQLITE_OK);
    *state = db;
    return 0;
}

static int close_db(void **state)
{
    assert_int_equal(sqlite3_close(*state), SQLITE_OK); /* not _v2: no statement was forgotten */
    return 0;
}

#define DB_TEST(name) TEST_WITH(open_db, close_db, sqlite3 *db, name)

DB_TEST(a_row_needs_its_token_in_the_same_transaction)
{
    fails(db, "INSERT INTO t VALUES(1, 'x')", "GUARDED the token of 'r:1' was not presented");
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 'x')");
    fails(db, "INSERT INTO t VALUES(2, 'x')", "GUARDED the token of 'r:2' was not presented");
    succeeds(db, "INSERT INTO t VALUES('1', 'y'); COMMIT");
    assert_int_equal(run(db, "SELECT count(*) FROM t"), 2);
    fails(db, "INSERT INTO t VALUES(1, 'x')", "GUARDED");
    succeeds(db, "BEGIN");
    fails(db, "INSERT INTO t VALUES(1, 'x')", "GUARDED");
}

DB_TEST(a_token_is_judged_where_it_is_presented)
{
    fails(db, "SELECT stockade_present('r:1', 34)", "there is no transaction");
    succeeds(db, "BEGIN");
    fails(db, "SELECT stockade_present('r:1', 33)", "STALE token 33 of 'r:1'");
    fails(db, "SELECT stockade_present('r:1', 35)", "UNKNOWN token 35 of 'r:1'");
    fails(db, "SELECT stockade_present('r:3', 9)", "STALE token 9 of 'r:3'");
    fails(db, "SELECT stockade_present('r:4', 5)", "STALE token 5 of 'r:4'");
    fails(db, "SELECT stockade_present('r:nobody', 1)", "UNKNOWN token 1 of 'r:nobody'");
    fails(db, "SELECT stockade_present('r:1', '34')", "usage");
    fails(db, "SELECT stockade_present('r:1', NULL)", "usage");
    fails(db, "SELECT stockade_present(NULL, 34)", "usage");
    fails(db, "SELECT stockade_present(1, 34)", "usage");
    fails(db, "SELECT stockade_present('', 34)", "1 to 512 bytes");
    fails(db, "SELECT stockade_present(printf('%513c', 'x'), 34)", "1 to 512 bytes");
    fails(db, "SELECT stockade_present('r:1', 34, 'nosuch')", "nosuch is not a Stockade file");
    fails(db, "SELECT stockade_present('r:1', 34, NULL)", "usage");
    fails(db, "SELECT stockade_present('r:1')", "wrong number of arguments");
    assert_int_equal(run(db, "SELECT count(*) FROM stockade_presented"), 0);
    assert_int_equal(run(db, "SELECT stockade_present(CAST('r:1' AS BLOB), 34, 'main')"), 34);
    succeeds(db, "INSERT INTO t VALUES(1, 'x')");
}

DB_TEST(a_key_that_names_no_resource_is_refused)
{
    succeeds(db, "BEGIN");
    fails(db, "INSERT INTO t VALUES(NULL, 1)", "text or an integer");
    fails(db, "INSERT INTO t VALUES(1.0, 1)", "not a float");
    fails(db, "INSERT INTO t VALUES(x'31', 1)", "not a blob");
    fails(db, "INSERT INTO t VALUES(printf('%511c', 'x'), 1)", "1 to 512 bytes");
    fails(db, "INSERT INTO t VALUES(printf('%510c', 'x'), 1)", "nobody holds");
    fails(db, "SELECT stockade_guard('', '', 1, '')", "1 to 512 bytes");
    fails(db, "INSERT INTO t VALUES('a' || char(10) || 'b', 1)", "'r:a?b'");
    fails(db, "INSERT INTO t VALUES(3, 1)", "nobody holds 'r:3'");
    fails(db, "SELECT stockade_guard('r:', 1, '34', 'mark of main')", "nobody holds 'r:1'");
}

DB_TEST(what_was_presented_ends_with_the_transaction)
{
    static const char *const ends[] = {"COMMIT", "ROLLBACK"};

    for (size_t i = 0; i < 2; i++) {
        succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34)");
        assert_int_equal(run(db, "SELECT count(*) FROM stockade_presented"), 1);
        succeeds(db, ends[i]);
        assert_int_equal(run(db, "SELECT count(*) FROM stockade_presented"), 0);
        fails(db, "BEGIN; INSERT INTO t VALUES(1, 1)", "GUARDED");
        succeeds(db, "ROLLBACK");
    }
}

DB_TEST(what_was_presented_ends_with_its_savepoint)
{
    succeeds(db, "SAVEPOINT a; SAVEPOINT b; SELECT stockade_present('r:1', 34); SAVEPOINT c;"
                 "SELECT stockade_present('r:2', 7); INSERT INTO t VALUES(1, 1), (2, 1);"
                 "ROLLBACK TO c; INSERT INTO t VALUES(1, 2)");
    fails(db, "INSERT INTO t VALUES(2, 2)", "GUARDED");
    succeeds(db, "SELECT stockade_present('r:2', 7); RELEASE c; INSERT INTO t VALUES(2, 3);"
                 "ROLLBACK TO b");
    fails(db, "INSERT INTO t VALUES(1, 4)", "GUARDED");
    succeeds(db, "SELECT stockade_present('r:1', 34); RELEASE b; ROLLBACK TO a");
    fails(db, "INSERT INTO t VALUES(1, 5)", "GUARDED");
    succeeds(db, "SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 6); RELEASE a");
    assert_int_equal(run(db, "SELECT count(*) FROM stockade_presented"), 0);
    assert_int_equal(run(db, "SELECT group_concat(v) FROM t"), 6);
}

/* Savepoints are numbered from 0 in each transaction. */
DB_TEST(savepoints_of_a_transaction_that_is_over_count_for_nothing)
{
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34), stockade_present('r:2', 7);"
                 "SAVEPOINT a; ROLLBACK");
    succeeds(db, "BEGIN; SAVEPOINT a; SAVEPOINT b; SELECT stockade_present('r:1', 34);"
                 "INSERT INTO t VALUES(1, 1); ROLLBACK TO a");
    fails(db, "INSERT INTO t VALUES(1, 2)", "GUARDED");
}

DB_TEST(savepoints_without_news_cost_nothing)
{
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34); SAVEPOINT a; ROLLBACK TO a;"
                 "INSERT INTO t VALUES(1, 1); SAVEPOINT b; SAVEPOINT c; ROLLBACK TO b;"
                 "INSERT INTO t VALUES(1, 2); RELEASE a; INSERT INTO t VALUES(1, 3); COMMIT");
}

DB_TEST(rows_change_only_while_recursive_triggers_is_on)
{
    assert_int_equal(run(db, "PRAGMA recursive_triggers"), 1);
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1);"
                 "PRAGMA recursive_triggers = OFF");
    fails(db, "INSERT INTO t VALUES(1, 1)", "recursive_triggers");
    succeeds(db, "PRAGMA recursive_triggers = ON; INSERT INTO t VALUES(1, 1)");
}

DB_TEST(a_token_for_one_file_opens_no_other)
{
    succeeds(db, "ATTACH ':memory:' AS other");
    add_file(db, "other");
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO main.t VALUES(1, 1)");
    fails(db, "INSERT INTO other.t VALUES(1, 1)", "GUARDED");
    succeeds(db, "SELECT stockade_present('r:1', 34, 'other');"
                 "INSERT INTO other.t VALUES(1, 1)");
    fails(db, "INSERT INTO other.t VALUES(2, 1)", "GUARDED");
    succeeds(db, "COMMIT");
}

/* Else its token could become an old one before the program writes. */
DB_TEST(a_token_for_an_attached_file_locks_that_file)
{
    char folder[64], path[96];

    folder_make(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/other.db", folder);
    sqlite3 *foreign = plain_open(path);
    plain_run(foreign, "PRAGMA journal_mode = WAL");
    char *attach = sqlite3_mprintf("ATTACH %Q AS other", path);
    succeeds(db, attach);
    add_file(db, "other");
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34, 'other')");
    fails(foreign, "UPDATE stockade_resource SET token = token + 1", "locked");
    succeeds(db, "INSERT INTO other.t VALUES(1, 1); COMMIT");
    succeeds(foreign, "UPDATE stockade_resource SET token = token + 1");
    sqlite3_free(attach);
    sqlite3_close(foreign);
    succeeds(db, "DETACH other");
    folder_remove(folder);
}

DB_TEST(a_temporary_table_shadows_nothing)
{
    succeeds(db, "CREATE TEMP TABLE stockade_resource(name BLOB UNIQUE, token, state);"
                 "CREATE TEMP TABLE stockade_meta(key, value);"
                 "INSERT INTO temp.stockade_resource VALUES(CAST('r:1' AS BLOB), 99, 1);"
                 "INSERT INTO temp.stockade_meta VALUES('file', 'mark of temp');"
                 "BEGIN; SELECT stockade_present('r:1', 99, 'temp')");
    fails(db, "INSERT INTO t VALUES(1, 1)", "GUARDED");
    succeeds(db, "SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1)");
}

DB_TEST(a_row_put_past_stockade_present_opens_nothing)
{
    succeeds(db, "BEGIN; INSERT INTO stockade_presented VALUES('r:1', 33), ('r:1', 34)");
    fails(db, "INSERT INTO t VALUES(1, 1)", "GUARDED"); /* it names no file */
    succeeds(db, "INSERT INTO stockade_presented(resource, token, file)"
                 " VALUES('r:1', 33, 'mark of main')");
    fails(db, "INSERT INTO t VALUES(1, 1)", "GUARDED"); /* it is not the newest */
    fails(db, "DELETE FROM stockade_presented", "until the transaction ends");
    fails(db, "UPDATE stockade_presented SET token = 34", "until the transaction ends");
    assert_int_equal(run(db, "SELECT count(*) FROM stockade_presented WHERE token = 33"), 2);
    assert_int_equal(run(db, "SELECT max(rowid) FROM stockade_presented"), 3);
}

DB_TEST(triggers_and_views_cannot_present)
{
    succeeds(db, "CREATE TABLE u(a); CREATE TRIGGER careless BEFORE INSERT ON u BEGIN"
                 "  SELECT stockade_present('r:1', 34); END;"
                 "CREATE VIEW v AS SELECT * FROM stockade_presented; BEGIN");
    fails(db, "INSERT INTO u VALUES(1)", "unsafe use of stockade_present");
    fails(db, "SELECT * FROM v", "unsafe use of virtual table");
}

DB_TEST(it_can_be_loaded_again)
{
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1)");
    assert_int_equal(load(db), SQLITE_OK);
    fails(db, "INSERT INTO t VALUES(1, 1)", "GUARDED");
    succeeds(db, "SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1); COMMIT");
    fails(db, "INSERT INTO t VALUES(1, 1)", "GUARDED");
}

DB_TEST(a_connection_that_closes_in_mid_transaction_leaves_nothing)
{
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34); INSERT INTO t VALUES(1, 1)");
    /* close_db and the leak checker see the rest. */
}

DB_TEST(the_programs_hooks_stay_its_own)
{
    succeeds(db, "BEGIN; SELECT stockade_present('r:1', 34); COMMIT");
    assert_null(sqlite3_commit_hook(db, NULL, NULL));
    assert_null(sqlite3_rollback_hook(db, NULL, NULL));
    assert_null(sqlite3_update_hook(db, NULL, NULL));
}

/* What a program does with it; the savepoints make the set keep marks. */
static const char work[] =
    "BEGIN; SAVEPOINT a; SELECT stockade_present('r:1', 34); SAVEPOINT b;"
    "SELECT stockade_present('r:1', 34, 'main'); INSERT INTO t VALUES(1, 5);"
    "SELECT count(*) FROM stockade_presented; ROLLBACK TO b; INSERT INTO t VALUES(1, 6); COMMIT";

/* Where nothing failed in the end, the last n reached the last allocation. */
TEST(every_allocation_of_loading_may_fail)
{
    int64_t n = 0;
    bool failed = true;

    while (failed) {
        sqlite3 *db = open_without();
        fault_memory_set(++n, false);
        int code = load(db);
        failed = fault_memory_end();
        assert_true(code == SQLITE_OK || failed);
        assert_int_equal(load(db), SQLITE_OK);
        succeeds(db, work);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
    assert_true(n > 5);
}

TEST(every_allocation_of_its_use_may_fail)
{
    int64_t n = 0;
    bool failed = true;

    while (failed) {
        sqlite3 *db = open_without();
        assert_int_equal(load(db), SQLITE_OK);
        fault_memory_set(++n, false);
        int code = sqlite3_exec(db, work, NULL, NULL, NULL);
        failed = fault_memory_end();
        assert_true(code == SQLITE_OK || failed);
        if (sqlite3_get_autocommit(db) == 0)
            succeeds(db, "ROLLBACK");
        if (code != SQLITE_OK)
            assert_int_equal(run(db, "SELECT count(*) FROM t"), 0);
        /* Whatever was presented is gone, and all works again. */
        fails(db, "INSERT INTO t VALUES(1, 7)", "GUARDED");
        succeeds(db, work);
        assert_int_equal(run(db, "SELECT max(v) = 6 AND min(v) = 6 FROM t"), 1);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    }
    assert_true(n > 50);
}

static int install(void **state)
{
    (void)state;
    fault_memory_install();
    return 0;
}

AROUND_ALL_TESTS(install, NULL);
