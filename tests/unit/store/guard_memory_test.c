/* SPDX-License-Identifier: Apache-2.0 */
/* The extension lives in other people's programs: where SQLite has no memory for it, a call fails,
 * nothing else happens, and the next call goes well. Every allocation fails once. */
#include "tests/unit/store/plain.h"
#include "tests/unit/test.h"

int sqlite3_stockadeguard_init(sqlite3 *db, char **error, const sqlite3_api_routines *api);

static sqlite3_mem_methods real;
static int64_t countdown; /* allocations until one fails; negative: none does */
static int64_t failures;

static bool fails(void)
{
    bool now = countdown >= 0 && countdown-- == 0;

    failures += now;
    return now;
}

static void *failing_malloc(int size)
{
    return fails() ? NULL : real.xMalloc(size);
}

static void *failing_realloc(void *old, int size)
{
    return fails() ? NULL : real.xRealloc(old, size);
}

static int use_failing_memory(void **state)
{
    (void)state;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_GETMALLOC, &real), SQLITE_OK);
    sqlite3_mem_methods failing = real;
    failing.xMalloc = failing_malloc;
    failing.xRealloc = failing_realloc;
    assert_int_equal(sqlite3_config(SQLITE_CONFIG_MALLOC, &failing), SQLITE_OK);
    countdown = -1;
    return 0;
}

static const char schema[] =
    "CREATE TABLE stockade_meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "INSERT INTO stockade_meta VALUES('file', 'mark');"
    "CREATE TABLE stockade_resource(id INTEGER PRIMARY KEY, name BLOB UNIQUE, token, state);"
    "INSERT INTO stockade_resource(name, token, state) VALUES(CAST('r:1' AS BLOB), 34, 1);"
    "CREATE TABLE t(k, v); INSERT INTO t VALUES(1, 'kept');"
    "CREATE TRIGGER guard AFTER UPDATE ON t BEGIN SELECT stockade_guard('r:', NEW.k,"
    "  (SELECT token FROM stockade_resource WHERE name = CAST('r:' || NEW.k AS BLOB)"
    "   AND state = 1), (SELECT value FROM stockade_meta WHERE key = 'file')); END;";

/* What a program does with it; the savepoints make the set keep marks. */
static const char work[] =
    "BEGIN; SAVEPOINT a; SELECT stockade_present('r:1', 34); SAVEPOINT b;"
    "SELECT stockade_present('r:1', 34, 'main'); UPDATE t SET v = 'new';"
    "SELECT count(*) FROM stockade_presented; ROLLBACK TO b; UPDATE t SET v = 'newer'; COMMIT";

static sqlite3 *open_db(void)
{
    sqlite3 *db = plain_open(":memory:");

    plain_run(db, schema);
    return db;
}

static void expect_v(sqlite3 *db, const char *value)
{
    char *rows = plain_rows(db, "SELECT v FROM t");

    assert_string_equal(rows, value);
    free(rows);
}

/* Nothing failed in the end: the last n reached the last allocation. */
TEST(every_allocation_of_loading_may_fail)
{
    char *error = NULL;
    int code;
    int64_t n = 0;

    do {
        sqlite3 *db = open_db();
        countdown = n++;
        failures = 0;
        code = sqlite3_stockadeguard_init(db, &error, NULL);
        countdown = -1;
        assert_true(code == SQLITE_OK || failures > 0);
        assert_int_equal(sqlite3_stockadeguard_init(db, &error, NULL), SQLITE_OK);
        plain_run(db, work);
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    } while (failures > 0);
    assert_true(n > 5);
}

TEST(every_allocation_of_its_use_may_fail)
{
    char *error = NULL;
    int64_t n = 0;

    do {
        sqlite3 *db = open_db();
        assert_int_equal(sqlite3_stockadeguard_init(db, &error, NULL), SQLITE_OK);
        countdown = n++;
        failures = 0;
        int code = sqlite3_exec(db, work, NULL, NULL, NULL);
        countdown = -1;
        assert_true(code == SQLITE_OK || failures > 0);
        if (sqlite3_get_autocommit(db) == 0)
            plain_run(db, "ROLLBACK");
        if (code != SQLITE_OK)
            expect_v(db, "kept");
        /* Whatever was presented is gone, and all works again. */
        assert_int_not_equal(sqlite3_exec(db, "UPDATE t SET v = 'sly'", NULL, NULL, NULL),
                             SQLITE_OK);
        plain_run(db, work);
        expect_v(db, "newer");
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
    } while (failures > 0);
    assert_true(n > 50);
}

AROUND_ALL_TESTS(use_failing_memory, NULL);
