/* SPDX-License-Identifier: Apache-2.0 */
/* What users' SQL can reach: its own tables, and of Stockade's the public views. What is refused
 * here is tried with every right, since the administrator's is no wider than this. And which tokens
 * open a guarded row: the current one of its own resource, and no other. */
#include "tests/unit/store/sql_rig.h"

TESTS_HAVE_ONE_THREAD

/* All that Stockade keeps in the file, and its schema. */
static const char own_state[] =
    "SELECT * FROM sqlite_schema WHERE lower(name) GLOB 'stockade_*' ORDER BY name;"
    "SELECT * FROM stockade_resource; SELECT * FROM stockade_string;"
    "SELECT * FROM stockade_hash; SELECT * FROM stockade_meta; SELECT * FROM stockade_receipt;"
    "SELECT * FROM stockade_retired; SELECT * FROM stockade_clock;"
    "SELECT * FROM stockade_guard; SELECT * FROM guarded";

static void furnish(struct store_txn *txn)
{
    char why[SQL_WHY_MAX];

    for (int i = 0; i < 2; i++) { /* the newest tokens are 2 */
        rig_grant(txn, "sku:1", "someone");
        rig_grant(txn, "sku:2", "somebody else");
    }
    rig_set(txn, "key", "value");
    assert_int_equal(txn_guard_create(txn,
                                      &(struct table_guard){.table = bytes_of("guarded"),
                                                            .column = bytes_of("sku"),
                                                            .prefix = bytes_of("sku:")},
                                      why),
                     STK_OK);
}

/* A store with leases, values, a guarded table with a row, a table `t`, and views and triggers of
 * another program that point at Stockade's tables. */
static int set_up(void **state)
{
    rig_sqlite(state);
    rig_sql(*state, "CREATE TABLE guarded(sku, n); INSERT INTO guarded VALUES('1', 5);"
                    "CREATE TABLE t(a); INSERT INTO t VALUES(1);"
                    "CREATE TABLE fires(a);"
                    "CREATE TRIGGER fire AFTER INSERT ON fires BEGIN"
                    "  UPDATE stockade_resource SET token = 99; END;"
                    "CREATE TABLE peeks(a);"
                    "CREATE TRIGGER peek AFTER INSERT ON peeks BEGIN"
                    "  INSERT INTO t SELECT value FROM stockade_meta; END;"
                    "CREATE VIEW window AS SELECT * FROM stockade_meta;"
                    "CREATE VIEW through AS SELECT resource FROM stockade_fences;"
                    "CREATE VIEW back AS SELECT a FROM t;"
                    "CREATE TRIGGER door INSTEAD OF INSERT ON back BEGIN"
                    "  INSERT INTO stockade_string VALUES(9, NEW.a); END;");
    rig_in_write(*state, furnish);
    return 0;
}

#define RIG_TEST(name) TEST_WITH(set_up, rig_end, struct rig *rig, name)

/* Expect the statement to be refused with each right, on both connections, and to change nothing.
 */
static void expect_refused(struct rig *rig, const char *statement)
{
    static const enum sql_right rights[] = {SQL_MAY_READ, SQL_MAY_WRITE, SQL_MAY_DEFINE};
    char *before = strdup(rig_rows(rig, own_state));

    for (size_t i = 0; i < COUNT(rights); i++) {
        struct ask ask = ask_of(rights[i], statement);
        const char *text = sql_do(rig, &ask);
        if (strncmp(text, "NOPERM ", 7) != 0 && strncmp(text, "GUARDED ", 8) != 0 &&
            strncmp(text, "ERR ", 4) != 0)
            fail_msg("right %zu: %s: %s", i, statement, text);
        const char *after = rig_rows(rig, own_state);
        if (strcmp(before, after) != 0)
            fail_msg("right %zu: %s has changed\n%s\ninto\n%s", i, statement, before, after);
    }
    free(before);
}

static void refuse_all(struct rig *rig, const char *const *statements, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_refused(rig, statements[i]);
}

RIG_TEST(stockades_tables_are_neither_read_nor_written)
{
    static const char *const statements[] = {
        "SELECT * FROM stockade_resource",
        "SELECT count(*) FROM stockade_meta",
        "SELECT count(id) FROM stockade_resource",
        "SELECT 1 FROM stockade_meta",
        "SELECT rowid FROM stockade_string",
        "SELECT * FROM \"StockADE_meta\"",
        "SELECT * FROM 'stockade_meta'",
        "SELECT * FROM [stockade_meta]",
        "SELECT * FROM main.stockade_meta AS stockade_fences",
        "SELECT * FROM (SELECT * FROM stockade_meta) AS stockade_fences",
        "SELECT (SELECT value FROM stockade_meta)",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM stockade_retired)",
        "SELECT 5 IN stockade_meta",
        "SELECT a FROM t ORDER BY (SELECT key FROM stockade_meta)",
        "WITH stockade_fences AS (SELECT * FROM stockade_meta) SELECT * FROM stockade_fences",
        "WITH stockade_fences AS (SELECT * FROM stockade_resource) SELECT * FROM stockade_fences",
        "WITH stockade_values AS (SELECT id FROM stockade_hash) SELECT * FROM stockade_values",
        "WITH stockade_guard_x AS (SELECT id FROM stockade_hash) SELECT * FROM stockade_guard_x",
        "WITH x AS (SELECT id FROM stockade_resource) SELECT * FROM x AS stockade_values",
        ("WITH stockade_guard_x AS (SELECT name FROM stockade_resource)"
         " SELECT * FROM stockade_guard_x"),
        ("WITH \"Stockade_GUARD_insert_guarded\" AS (SELECT * FROM stockade_meta)"
         " SELECT * FROM stockade_guard_insert_guarded"),
        ("WITH 'stockade_guard_x' AS (SELECT count(*) FROM stockade_resource WHERE token > 0)"
         " SELECT * FROM stockade_guard_x"),
        ("WITH stockade_guard_x AS (SELECT stockade_guard('', 1, 2, x'') AS a)"
         " SELECT a FROM stockade_guard_x"),
        ("WITH stockade_guard_x AS (SELECT value AS a FROM stockade_meta)"
         " INSERT INTO t SELECT a FROM stockade_guard_x"),
        "SELECT * FROM window",
        "INSERT INTO stockade_meta VALUES('a', 1)",
        "INSERT INTO stockade_values VALUES('a', 1)",
        "REPLACE INTO STOCKADE_META VALUES('floor', 1)",
        "UPDATE stockade_resource SET token = token + 1",
        "UPDATE main.\"stockade_resource\" SET state = 2 WHERE id = 1",
        "UPDATE stockade_fences SET token = 1",
        "DELETE FROM stockade_resource",
        "DELETE FROM [stockade_guard]",
        "INSERT INTO t SELECT value FROM stockade_meta",
        "UPDATE t SET a = (SELECT max(token) FROM stockade_resource)",
        "DELETE FROM t WHERE a IN (SELECT id FROM stockade_resource)",
        "INSERT INTO t VALUES(1) RETURNING (SELECT max(value) FROM stockade_meta)",
        "INSERT INTO fires VALUES(1)",
        "INSERT INTO peeks VALUES(1)",
        "INSERT INTO back VALUES('x')",
        "EXPLAIN SELECT * FROM stockade_meta",
        "EXPLAIN QUERY PLAN DELETE FROM stockade_meta",
    };
    refuse_all(rig, statements, COUNT(statements));
}

RIG_TEST(the_public_views_are_read_and_nothing_else)
{
    static const char *const forms[] = {
        "SELECT * FROM %s", "SELECT count(*) FROM %s", "SELECT 1 FROM main.%s AS x WHERE 1",
        "WITH x AS (SELECT * FROM %s) SELECT * FROM x AS y, x AS z"};
    char *names = strdup(rig_rows(rig, "SELECT name FROM sqlite_schema WHERE type = 'view' AND "
                                       "name LIKE 'stockade^_%' ESCAPE '^'"));
    int views = 0;

    for (char *name = strtok(names, "\n"); name != NULL; name = strtok(NULL, "\n"), views++)
        for (size_t i = 0; i < COUNT(forms); i++) {
            char *query = sqlite3_mprintf(forms[i], name);
            struct ask ask = ask_of(SQL_MAY_READ, query);
            sql_do(rig, &ask);
            if (ask.error != STK_OK)
                fail_msg("%s: %s", query, ask.text);
            sqlite3_free(query);
        }
    free(names);
    assert_int_equal(views, 5);
    assert_string_equal(sql_ask(rig, "SELECT resource, token, state FROM STOCKADE_FENCES"),
                        "'sku:1',2,'live';'sku:2',2,'live';");
    assert_string_equal(sql_ask(rig, "SELECT * FROM stockade_values"), "'key','value';");
    assert_string_equal(sql_ask(rig, "SELECT * FROM stockade_guards"),
                        "'guarded','sku','sku:',NULL;");
    assert_string_equal(sql_ask(rig, "SELECT * FROM through"), "'sku:1';'sku:2';");
    assert_string_equal(sql_change(rig, "INSERT INTO t SELECT token FROM stockade_fences"), "");
}

/* A statement is kept compiled for its next user, who may have fewer rights. */
RIG_TEST(what_one_user_may_is_not_what_the_next_one_may)
{
    struct ask all = ask_of(SQL_MAY_READ, "SELECT count(*) FROM stockade_fences"), some = all;

    some.call.own_hidden = true;
    for (int i = 0; i < 2; i++) {
        assert_string_equal(sql_do(rig, &all), "2;");
        sql_expect(sql_do(rig, &some), "NOPERM ", "names all resources");
    }
    struct ask guise = ask_of(SQL_MAY_READ, "WITH stockade_guard_x AS (SELECT CAST(name AS TEXT)"
                                            " FROM stockade_resource)"
                                            " SELECT * FROM stockade_guard_x");
    guise.call.own_hidden = true;
    sql_expect(sql_do(rig, &guise), "NOPERM ", "in its text");
    sql_define(rig, "CREATE TABLE numbered(id INTEGER PRIMARY KEY AUTOINCREMENT)");
    struct ask admin = ask_of(SQL_MAY_DEFINE, "DELETE FROM sqlite_sequence"), user = admin;
    user.call.right = SQL_MAY_WRITE;
    assert_string_equal(sql_do(rig, &admin), "");
    sql_expect(sql_do(rig, &user), "NOPERM ", "sqlite_sequence");
}

RIG_TEST(nothing_of_stockades_can_be_made_altered_or_dropped)
{
    static const char *const statements[] = {
        "CREATE TABLE stockade_x(a)",
        "CREATE TABLE IF NOT EXISTS \"STOCKADE_x\"(a)",
        "CREATE TABLE [stockade_x] AS SELECT 1",
        "CREATE VIEW stockade_x AS SELECT 1",
        ("CREATE VIEW x AS WITH stockade_guard_x AS (SELECT name FROM stockade_resource)"
         " SELECT * FROM stockade_guard_x"),
        "CREATE INDEX stockade_x ON t(a)",
        "CREATE INDEX x ON stockade_resource(owner)",
        "CREATE UNIQUE INDEX x ON stockade_resource(token)",
        "CREATE TRIGGER stockade_x AFTER INSERT ON t BEGIN SELECT 1; END",
        "CREATE TRIGGER x AFTER UPDATE ON stockade_resource BEGIN DELETE FROM t; END",
        "CREATE TRIGGER x INSTEAD OF INSERT ON stockade_values BEGIN SELECT 1; END",
        "ALTER TABLE t RENAME TO stockade_x",
        "ALTER TABLE t RENAME TO \"Stockade_x\"",
        "ALTER TABLE stockade_resource RENAME TO x",
        "ALTER TABLE stockade_resource ADD COLUMN x",
        "ALTER TABLE stockade_resource DROP COLUMN owner",
        "ALTER TABLE stockade_resource RENAME COLUMN token TO x",
        "ALTER TABLE stockade_fences RENAME TO x",
        "DROP TABLE stockade_resource",
        "DROP TABLE IF EXISTS stockade_meta",
        "DROP VIEW stockade_fences",
        "DROP INDEX stockade_keys",
        "DROP TRIGGER stockade_guard_insert_guarded",
        "DROP INDEX stockade_guard_blob_guarded",
        "CREATE TRIGGER x AFTER INSERT ON guarded BEGIN SELECT 1; END",
        "CREATE TRIGGER x BEFORE UPDATE OF n ON \"GUARDED\" BEGIN SELECT 1; END",
        "ALTER TABLE guarded RENAME TO x",
        "ALTER TABLE guarded ADD COLUMN x",
        "ALTER TABLE guarded DROP COLUMN n",
        "ALTER TABLE guarded RENAME COLUMN sku TO x",
        "DROP TABLE guarded",
        "DROP TABLE IF EXISTS main.GUARDED",
    };
    refuse_all(rig, statements, COUNT(statements));
}

RIG_TEST(other_files_pragmas_and_transactions_are_out_of_reach)
{
    static const char *const statements[] = {
        "ATTACH ':memory:' AS x",
        "ATTACH DATABASE '/tmp/stockade-test-attached' AS x",
        "DETACH main",
        "VACUUM",
        "VACUUM main INTO '/tmp/stockade-test-vacuumed'",
        "PRAGMA user_version",
        "PRAGMA user_version = 9",
        "PRAGMA writable_schema = ON",
        "PRAGMA recursive_triggers = OFF",
        "PRAGMA foreign_keys = ON",
        "PRAGMA table_info(t)",
        "SELECT * FROM pragma_user_version",
        "SELECT * FROM pragma_table_info('t')",
        "SELECT * FROM pragma_database_list()",
        "SELECT name FROM main.pragma_function_list",
        "SELECT (SELECT journal_mode FROM pragma_journal_mode)",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "END",
        "ROLLBACK",
        "ROLLBACK TO stockade_savepoint",
        "SAVEPOINT x",
        "RELEASE stockade_savepoint",
        "EXPLAIN COMMIT",
        "EXPLAIN PRAGMA user_version",
        "CREATE VIRTUAL TABLE x USING fts5(a)",
        "CREATE VIRTUAL TABLE x USING rtree(a, b, c)",
        "CREATE TEMP TABLE x(a)",
        "CREATE TEMPORARY VIEW x AS SELECT 1",
        "CREATE TEMP TRIGGER x AFTER INSERT ON main.guarded BEGIN SELECT 1; END",
        "CREATE TABLE temp.x(a)",
        "CREATE TABLE temp.guarded(sku, n)",
        "SELECT * FROM dbstat",
        "SELECT sql FROM sqlite_stmt",
        "SELECT * FROM sqlite_dbpage",
        "INSERT INTO sqlite_master VALUES('table', 'x', 'x', 0, 'CREATE TABLE x(a)')",
        "UPDATE sqlite_schema SET sql = NULL WHERE name LIKE 'stockade%'",
        "DELETE FROM sqlite_master",
        "DELETE FROM sqlite_temp_schema",
    };
    refuse_all(rig, statements, COUNT(statements));
}

RIG_TEST(dangerous_functions_are_out_of_reach)
{
    static const char *const statements[] = {
        "SELECT load_extension('/tmp/x.so')",
        "SELECT Load_Extension('x', 'y')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT FTS3_TOKENIZER('simple', x'0000000000000000')",
        "SELECT stockade_guard('sku:', '1', 1, x'')",
        "SELECT a FROM t WHERE stockade_guard('sku:', '1', 1, x'')",
        "SELECT sqlite_log(1, 'x')",
        "SELECT readfile('/etc/passwd')",
        "SELECT json_patch('{}', '{}')",
        "CREATE INDEX x ON t(stockade_guard('sku:', a, 1, x''))",
        "CREATE TABLE x(a CHECK(fts3_tokenizer(a)))",
    };
    static const struct sql_value pointer = {.type = SQL_BLOB, .bytes = {"AAAAAAAA", 8}};

    refuse_all(rig, statements, COUNT(statements));
    /* With a bound pointer SQLite itself would take it, whatever the connection is set to. */
    struct ask ask = ask_of(SQL_MAY_WRITE, "SELECT fts3_tokenizer('simple', ?)");
    ask.call.params = &pointer;
    ask.call.params_count = 1;
    sql_expect(sql_do(rig, &ask), "NOPERM ", "fts3_tokenizer()");
}

RIG_TEST(what_users_need_is_within_reach)
{
    static const char *const definitions[] = {
        "CREATE TABLE orders(id INTEGER PRIMARY KEY AUTOINCREMENT, sku REFERENCES guarded, n)",
        "CREATE TABLE lines(a, b, PRIMARY KEY(a, b)) WITHOUT ROWID",
        "CREATE TABLE made(a INT, b INT GENERATED ALWAYS AS (a * 2) STORED, CHECK(a > 0)) STRICT",
        "CREATE UNIQUE INDEX orders_n ON orders(n) WHERE n > 0",
        "CREATE INDEX orders_e ON orders(trim(sku), replace(sku, 'a', 'b'))",
        "CREATE VIEW report AS SELECT sku, sum(n) AS n FROM orders GROUP BY sku",
        "CREATE TRIGGER log AFTER INSERT ON orders BEGIN INSERT INTO t VALUES(NEW.n); END",
        "CREATE INDEX guarded_n ON guarded(n)",
        "DROP INDEX guarded_n",
        "ALTER TABLE lines RENAME TO items",
        "ALTER TABLE orders RENAME COLUMN n TO pieces",
        "ALTER TABLE orders ADD COLUMN note DEFAULT 'none'",
        "ALTER TABLE orders DROP COLUMN note",
        "ANALYZE",
        "REINDEX",
        "DROP TABLE items",
    };
    for (size_t i = 0; i < COUNT(definitions); i++)
        if (strcmp(sql_define(rig, definitions[i]), "") != 0)
            fail_msg("%s: %s", definitions[i], sql_define(rig, definitions[i]));
    assert_string_equal(sql_change(rig, "INSERT INTO orders(sku, pieces) VALUES('1', 3)"), "");
    assert_string_equal(sql_ask(rig, "SELECT * FROM report"), "'1',3;");
    assert_string_equal(sql_ask(rig, "SELECT value FROM json_each('[1,2]')"), "1;2;");
    assert_string_equal(sql_ask(rig, "SELECT seq FROM sqlite_sequence"), "1;");
    assert_string_equal(sql_ask(rig, "SELECT count(*) > 0 FROM sqlite_stat1"), "1;");
    assert_string_equal(sql_ask(rig, "SELECT count(*) FROM sqlite_stat1 WHERE tbl LIKE 'stock%'"),
                        "0;");
    assert_string_equal(sql_ask(rig, "SELECT type FROM sqlite_schema WHERE name = 'report'"),
                        "'view';");
    sql_expect(sql_change(rig, "UPDATE sqlite_sequence SET seq = 9"), "NOPERM ", "sequence");
}

/* Run a statement, which changes one row, under a token. */
static const char *change(struct rig *rig, const char *resource, int64_t token, const char *sql)
{
    static struct ask ask;

    ask = ask_of(SQL_MAY_WRITE, sql);
    ask.claim = (struct claim){.resource = bytes_of(resource), .token = token};
    sql_do(rig, &ask);
    if (ask.error == STK_OK)
        assert_int_equal(ask.call.changes, 1);
    return ask.text;
}

static const char update[] = "UPDATE guarded SET n = n - 1";

RIG_TEST(only_the_current_token_of_its_own_resource_opens_a_row)
{
    sql_expect(change(rig, "sku:2", 2, update), "GUARDED ", "sku:1");
    sql_expect(change(rig, "sku:1", 1, update), "GUARDED ", "sku:1");
    sql_expect(change(rig, "sku:1", 3, update), "GUARDED ", "sku:1");
    /* The second time, the statement is known; the claims are not. */
    for (int round = 0; round < 2; round++) {
        sql_expect(sql_change(rig, update), "GUARDED ", "sku:1");
        assert_string_equal(change(rig, "sku:1", 2, update), "");
    }
    assert_string_equal(sql_ask(rig, "SELECT n FROM guarded"), "3;");
}

RIG_TEST(a_row_cannot_be_taken_over_by_giving_it_another_key)
{
    sql_expect(change(rig, "sku:2", 2, "UPDATE guarded SET sku = '2'"), "GUARDED ", "sku:1");
    sql_expect(change(rig, "sku:1", 2, "UPDATE guarded SET sku = '2'"), "GUARDED ", "sku:2");
    assert_string_equal(sql_ask(rig, "SELECT sku, n FROM guarded"), "'1',5;");
}

static void release(struct store_txn *txn)
{
    rig_release(txn, "sku:1");
}

RIG_TEST(a_retired_token_opens_no_row)
{
    rig_in_write(rig, release);
    sql_expect(change(rig, "sku:1", 2, "DELETE FROM guarded"), "GUARDED ", "nobody holds");
    assert_string_equal(sql_ask(rig, "SELECT sku, n FROM guarded"), "'1',5;");
}

RIG_TEST(a_guard_that_was_lost_stops_its_table)
{
    rig_sql(rig, "DROP TRIGGER stockade_guard_update_guarded");
    sql_expect(change(rig, "sku:1", 2, update), "GUARDED the guard of guarded is broken",
               "stockade_guard_update_guarded");
    assert_string_equal(sql_ask(rig, "SELECT n FROM guarded"), "5;");
    assert_string_equal(sql_change(rig, "UPDATE t SET a = 2"), "");
}
