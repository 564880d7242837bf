/* SPDX-License-Identifier: Apache-2.0 */
/* txn_sql: parameters, rows and errors, whose fault a failure is, and what it leaves. */
#include "tests/unit/store/sql_rig.h"

#include <float.h>
#include <math.h>

#include "fence/base/mem.h"

#define assert_text(got, text) assert_string_equal((got), (text))

SQLITE_TEST(rows_come_out_by_storage_class_with_the_names_of_columns)
{
    struct ask ask = ask_of(SQL_MAY_READ, "SELECT 1 AS one, -9223372036854775808, 0.5, 1e308, "
                                          "'text', x'00ff', NULL, '', x'' UNION ALL SELECT "
                                          "2, 3, 4, 5, 6, 7, 8, 9, 10");
    assert_text(sql_do(rig, &ask), "1,-9223372036854775808,0.50000000000000000,"
                                   "1.0000000000000000e+308,'text',x'00ff',NULL,'',x'';"
                                   "2,3,4,5,6,7,8,9,10;");
    assert_int_equal(strncmp(ask.names, "one,-9223372036854775808,0.5,", 20), 0);
    assert_int_equal(ask.call.changes, 0);
    assert_int_equal(ask.call.last_insert_rowid, 0);
}

SQLITE_TEST(columns_are_told_where_there_are_no_rows_and_not_where_there_are_none)
{
    struct ask ask = ask_of(SQL_MAY_READ, "SELECT 1 AS a, 2 AS b WHERE 0");

    assert_text(sql_do(rig, &ask), "");
    assert_int_equal(ask.columns_calls, 1);
    assert_text(ask.names, "a,b");
    ask = ask_of(SQL_MAY_DEFINE, "CREATE TABLE t(a)");
    assert_text(sql_do(rig, &ask), "");
    assert_int_equal(ask.columns_calls, 0);
    ask = ask_of(SQL_MAY_WRITE, "INSERT INTO t VALUES(1), (2) RETURNING a AS b");
    assert_text(sql_do(rig, &ask), "1;2;");
    assert_text(ask.names, "b");
    assert_int_equal(ask.call.changes, 2);
    assert_int_equal(ask.call.last_insert_rowid, 2);
}

SQLITE_TEST(parameters_are_bound_as_what_they_are)
{
    static const struct sql_value params[] = {
        {.type = SQL_NULL},
        {.type = SQL_INTEGER, .integer = INT64_MIN},
        {.type = SQL_FLOAT, .real = 0.1},
        {.type = SQL_TEXT, .bytes = {"a\0b", 3}},
        {.type = SQL_BLOB, .bytes = {"a\0b", 3}},
        {.type = SQL_TEXT, .bytes = {"\xff\xfe", 2}},
        {.type = SQL_TEXT, .bytes = {NULL, 0}},
        {.type = SQL_BLOB, .bytes = {NULL, 0}},
        {.type = SQL_FLOAT, .real = HUGE_VAL},
    };
    struct ask ask = ask_of(SQL_MAY_READ, "SELECT typeof(?1), ?2, ?3, hex(?4), ?5, hex(?6), ?7, "
                                          "typeof(?8), ?9");

    ask.call.params = params;
    ask.call.params_count = COUNT(params);
    assert_text(sql_do(rig, &ask),
                "'null',-9223372036854775808,0.10000000000000001,'610062',x'610062','FFFE','',"
                "'blob',inf;");
}

SQLITE_TEST(the_count_of_parameters_must_match)
{
    static const struct sql_value params[3] = {{.type = SQL_NULL}};
    static const struct {
        const char *statement;
        size_t count;
    } fits[] = {{"SELECT 1", 0}, {"SELECT ?, ?", 2}, {"SELECT ?3", 3}, {"SELECT :a, @b, :a", 2}};

    for (size_t i = 0; i < COUNT(fits); i++)
        for (size_t count = 0; count <= 3; count++) {
            struct ask ask = ask_of(SQL_MAY_READ, fits[i].statement);
            ask.call.params = params;
            ask.call.params_count = count;
            if (count == fits[i].count)
                assert_null(strstr(sql_do(rig, &ask), "ERR"));
            else
                sql_expect(sql_do(rig, &ask), "ERR the statement takes ", " parameters, not ");
        }
}

SQLITE_TEST(one_statement_at_a_time)
{
    assert_text(sql_ask(rig, " \n\t-- a comment\n/* and */ SELECT 1 ; ;; -- one more\n /* open"),
                "1;");
    assert_text(sql_ask(rig, ";; SELECT 1"), "1;");
    assert_text(sql_ask(rig, "select ';', \"a;b\" from (select 1 as \"a;b\")"), "';',1;");
    for (size_t i = 0; i < 6; i++) {
        static const char *const several[] = {"SELECT 1; SELECT 2", "SELECT 1;;;x",
                                              "SELECT 1; --\n;'",   "SELECT 1; /**/ (",
                                              "SELECT 1;1",         "SELECT 1;\"\""};
        sql_expect(sql_ask(rig, several[i]), "ERR ", "one statement at a time");
    }
    for (size_t i = 0; i < 6; i++) {
        static const char *const none[] = {"", " ", "-- SELECT 1", "/* SELECT 1 */", ";", ";;"};
        sql_expect(sql_ask(rig, none[i]), "ERR ", "no statement");
    }
    struct ask ask = ask_of(SQL_MAY_READ, "");
    ask.call.statement = (struct bytes){NULL, 0};
    sql_expect(sql_do(rig, &ask), "ERR ", "no statement");
    ask = ask_of(SQL_MAY_READ, "");
    ask.call.statement = (struct bytes){"SELECT 1\0; SELECT 2", 19};
    sql_expect(sql_do(rig, &ask), "ERR ", "NUL");
    ask.call.statement.len = 9;
    sql_expect(sql_do(rig, &ask), "ERR ", "NUL");
}

SQLITE_TEST(a_write_needs_the_right_to_write)
{
    static const char *const writes[] = {"INSERT INTO t VALUES(1)",
                                         "UPDATE t SET a = 2",
                                         "DELETE FROM t",
                                         "REPLACE INTO t VALUES(1)",
                                         "WITH x(a) AS (VALUES(1)) INSERT INTO t SELECT a FROM x",
                                         "DELETE FROM t WHERE 0",
                                         "INSERT INTO t VALUES(1) RETURNING a"};
    assert_text(sql_define(rig, "CREATE TABLE t(a)"), "");
    for (size_t i = 0; i < COUNT(writes); i++) {
        struct ask ask = ask_of(SQL_MAY_READ, writes[i]);
        sql_expect(sql_do(rig, &ask), "NOTOKEN ", "FENCEDALL");
        /* The same where the writer runs it, and its statement is known from before. */
        for (int round = 0; round < 2; round++) {
            assert_int_equal(rig_write(rig, sql_body, &ask), STK_NOTOKEN);
            assert_null(strstr(sql_change(rig, writes[i]), " "));
        }
    }
    assert_text(sql_ask(rig, "WITH x(a) AS (VALUES(1)) SELECT a FROM x"), "1;");
    assert_text(sql_change(rig, "SELECT count(*) > 0 FROM t"), "1;");
    assert_contains(sql_ask(rig, "EXPLAIN INSERT INTO t VALUES(1)"), "'Init'");
    assert_contains(sql_ask(rig, "EXPLAIN QUERY PLAN DELETE FROM t WHERE a = 1"), "SCAN t");
}

SQLITE_TEST(definitions_need_the_right_to_define)
{
    static const char *const definitions[] = {
        "CREATE TABLE u(a)",
        "create table if not exists t(a)",
        "CREATE TABLE u AS SELECT * FROM t",
        "CREATE INDEX i ON t(a)",
        "CREATE VIEW v AS SELECT * FROM t",
        "ALTER TABLE t ADD COLUMN c",
        "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT 1; END",
        "/* */ DROP TABLE t",
        "DROP TABLE IF EXISTS nowhere",
        "ALTER TABLE t RENAME TO s",
        "REINDEX",
        "ANALYZE",
        "--\nANALYZE t"};
    assert_text(sql_define(rig, "CREATE TABLE t(a)"), "");
    for (size_t i = 0; i < COUNT(definitions); i++) {
        sql_expect(sql_ask(rig, definitions[i]), "NOPERM ", "administrator");
        sql_expect(sql_change(rig, definitions[i]), "NOPERM ", "bare SQL");
    }
    assert_text(sql_ask(rig, "SELECT group_concat(name) FROM sqlite_schema WHERE name NOT LIKE "
                             "'stockade%' AND name NOT LIKE 'sqlite%'"),
                "'t';");
    sql_expect(sql_ask(rig, "EXPLAIN CREATE TABLE u(a)"), "NOPERM ", "administrator");
}

SQLITE_TEST(whatever_a_definition_does_changes_and_rowid_stay_zero)
{
    static const char *const definitions[] = {
        "CREATE TABLE t(a INTEGER PRIMARY KEY AUTOINCREMENT, b)",
        "CREATE TABLE u AS SELECT 1 AS a UNION SELECT 2",
        "CREATE INDEX i ON u(a)",
        "CREATE VIEW v AS SELECT * FROM u",
        "CREATE TRIGGER r AFTER INSERT ON u BEGIN DELETE FROM t; END",
        "ALTER TABLE u RENAME COLUMN a TO c",
        "ALTER TABLE u ADD COLUMN d",
        "ALTER TABLE u DROP COLUMN d",
        "ALTER TABLE u RENAME TO w",
        "CREATE TABLE IF NOT EXISTS w(a)",
        "CREATE INDEX IF NOT EXISTS i ON w(c)",
        "ANALYZE",
        "REINDEX",
        "REINDEX w",
        "DROP VIEW v",
        "DROP TRIGGER r",
        "DROP INDEX i",
        "DROP TABLE t",
        "DROP TABLE IF EXISTS t",
    };

    for (size_t i = 0; i < COUNT(definitions); i++) {
        struct ask ask = ask_of(SQL_MAY_DEFINE, definitions[i]);
        assert_text(sql_do(rig, &ask), "");
        assert_int_equal(ask.call.changes, 0);
        assert_int_equal(ask.call.last_insert_rowid, 0);
    }
    assert_text(sql_ask(rig, "SELECT * FROM w"), "1;2;");
}

/* Two inserts in one operation, with Stockade's own between them. */
static enum stk_error insert_twice(struct store_txn *txn, void *arg)
{
    struct ask *asks = arg;

    rig_grant(txn, "k", "someone");
    assert_int_equal(sql_body(txn, &asks[0]), STK_OK);
    rig_grant(txn, "l", "someone");
    return sql_body(txn, &asks[1]);
}

SQLITE_TEST(last_insert_rowid_is_the_operations_own)
{
    struct ask asks[2];

    assert_text(sql_define(rig, "CREATE TABLE t(a)"), "");
    asks[0] = ask_of(SQL_MAY_WRITE, "INSERT INTO t(rowid, a) VALUES(700, 1), (800, 2)");
    asks[1] = ask_of(SQL_MAY_WRITE, "INSERT INTO t(rowid, a) VALUES(1000, last_insert_rowid())");
    assert_ok(rig_write(rig, insert_twice, asks));
    assert_int_equal(asks[0].call.last_insert_rowid, 800);
    assert_int_equal(asks[0].call.changes, 2);
    assert_int_equal(asks[1].call.last_insert_rowid, 1000);
    assert_int_equal(asks[1].call.changes, 1);
    assert_text(sql_change(rig, "SELECT max(a), last_insert_rowid() FROM t"), "800,0;");
}

SQLITE_TEST(errors_of_the_statement_come_with_the_words_of_sqlite)
{
    static const struct {
        const char *statement, *text;
    } wrong[] = {
        {"SELEC 1", "near \"SELEC\": syntax error"},
        {"SELECT", "incomplete input"},
        {"SELECT * FROM nowhere", "no such table: nowhere"},
        {"INSERT INTO t VALUES(1)", "UNIQUE constraint failed: t.a"},
        {"INSERT INTO t VALUES(NULL)", "NOT NULL constraint failed: t.a"},
        {"INSERT INTO t VALUES(-1)", "CHECK constraint failed: a > 0"},
        {"SELECT abs(-9223372036854775808)", "integer overflow"},
        {"SELECT zeroblob(20000000)", "string or blob too big"},
        {"SELECT '", "unrecognized token"},
        {"UPDATE sqlite_master SET sql = 'x'", "may not be modified"},
    };
    assert_text(sql_define(rig, "CREATE TABLE t(a INT PRIMARY KEY NOT NULL CHECK(a > 0))"), "");
    assert_text(sql_change(rig, "INSERT INTO t VALUES(1)"), "");
    for (size_t i = 0; i < COUNT(wrong); i++)
        sql_expect(sql_change(rig, wrong[i].statement), "ERR ", wrong[i].text);
    assert_text(sql_ask(rig, "SELECT * FROM t"), "1;");
}

SQLITE_TEST(the_end_of_autoincrement_is_no_failure_of_the_store)
{
    assert_text(sql_define(rig, "CREATE TABLE t(a INTEGER PRIMARY KEY AUTOINCREMENT)"), "");
    assert_text(sql_change(rig, "INSERT INTO t VALUES(9223372036854775807)"), "");
    sql_expect(sql_change(rig, "INSERT INTO t VALUES(NULL)"), "ERR ", "AUTOINCREMENT");
    sql_expect(sql_change(rig, "INSERT INTO t VALUES(1), (NULL)"), "ERR ", "AUTOINCREMENT");
    assert_text(sql_change(rig, "INSERT INTO t VALUES(1)"), "");
    assert_null(strstr(rig_log(rig), "failed"));
}

SQLITE_TEST(a_full_disk_is_the_stores_failure)
{
    struct ask ask = ask_of(SQL_MAY_WRITE, "INSERT INTO t VALUES(1)");

    assert_text(sql_define(rig, "CREATE TABLE t(a)"), "");
    rig_fail_commit(rig);
    sql_expect(sql_do(rig, &ask), "STORE ", "");
    rig_heal(rig);
    assert_text(sql_do(rig, &ask), "");
    assert_text(sql_ask(rig, "SELECT * FROM t"), "1;");
}

SQLITE_TEST(a_row_too_many_is_refused_in_the_callers_name)
{
    struct ask ask = ask_of(SQL_MAY_READ, "SELECT 1 UNION SELECT 2 UNION SELECT 3");

    ask.rows_max = 3;
    assert_text(sql_do(rig, &ask), "1;2;3;");
    ask.rows_max = 2;
    assert_text(sql_do(rig, &ask), "ERR the statement gives too many rows");
    assert_int_equal(ask.rows, 2);
    assert_text(sql_define(rig, "CREATE TABLE t(a)"), "");
    ask = ask_of(SQL_MAY_WRITE, "INSERT INTO t VALUES(1), (2), (3) RETURNING a");
    ask.rows_max = 2;
    sql_expect(sql_do(rig, &ask), "ERR ", "too many rows");
    assert_text(sql_ask(rig, "SELECT count(*) FROM t"), "0;");
}

SQLITE_TEST(statements_that_are_kept_see_the_schema_change)
{
    assert_text(sql_define(rig, "CREATE TABLE t(a)"), "");
    assert_text(sql_change(rig, "INSERT INTO t VALUES(1)"), "");
    for (int i = 0; i < 3; i++)
        assert_text(sql_ask(rig, "SELECT * FROM t"), "1;");
    assert_text(sql_define(rig, "ALTER TABLE t ADD COLUMN b DEFAULT 'new'"), "");
    struct ask ask = ask_of(SQL_MAY_READ, "SELECT * FROM t");
    assert_text(sql_do(rig, &ask), "1,'new';");
    assert_text(ask.names, "a,b");
    rig_sql(rig, "DROP TABLE t");
    sql_expect(sql_ask(rig, "SELECT * FROM t"), "ERR ", "no such table");
    rig_sql(rig, "CREATE VIEW t AS SELECT * FROM stockade_meta");
    sql_expect(sql_ask(rig, "SELECT * FROM t"), "NOPERM ", "stockade_meta");
}

SQLITE_TEST(many_more_statements_than_are_kept_do_no_harm)
{
    char statement[64];

    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 200; i++) {
            char expected[16];
            snprintf(statement, sizeof statement, "SELECT %d, 'x'", i);
            snprintf(expected, sizeof expected, "%d,'x';", i);
            assert_text(sql_ask(rig, statement), expected);
        }
}

SQLITE_TEST(values_of_the_largest_size_pass_and_own_ones_are_not_bounded_by_it)
{
    size_t len = 16 << 20;
    char *data = mem_zalloc(len + 1);
    struct sql_value param = {.type = SQL_BLOB, .bytes = {data, len}};
    struct ask ask = ask_of(SQL_MAY_WRITE, "INSERT INTO t VALUES(?)");

    assert_text(sql_define(rig, "CREATE TABLE t(a)"), "");
    ask.call.params = &param;
    ask.call.params_count = 1;
    assert_text(sql_do(rig, &ask), "");
    assert_text(sql_ask(rig, "SELECT length(a) FROM t"), "16777216;");
    param.bytes.len = (16 << 20) + 1;
    assert_text(sql_do(rig, &ask), "");
    assert_text(sql_ask(rig, "SELECT max(length(a)) FROM t"), "16777217;");
    free(data);
}
