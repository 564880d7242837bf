/* SPDX-License-Identifier: Apache-2.0 */
/* How much time, memory and stack a statement may take, and that those who share a transaction or a
 * batch with one that is stopped lose nothing. */
#include "tests/unit/store/sql_rig.h"

#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "store/sql_text.h"
#include "store/sqlite/sql_memory.h"
#include "tests/unit/deadline.h"

TESTS_HAVE_ONE_THREAD

#define ENDLESS "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "

SQLITE_TEST(a_statement_is_stopped_when_its_time_is_over)
{
    static const char *const statements[] = {
        ENDLESS "SELECT max(x) FROM c",
        ENDLESS "SELECT x FROM c WHERE x < 0",
        ENDLESS "SELECT x FROM c ORDER BY x LIMIT 1 OFFSET 4000000000",
        ENDLESS "SELECT length(randomblob(10000000)) FROM c WHERE 0 = randomblob(9000000)",
    };
    for (size_t i = 0; i < COUNT(statements); i++)
        for (int right = SQL_MAY_READ; right <= SQL_MAY_WRITE; right++) {
            struct ask ask = ask_of((enum sql_right)right, statements[i]);
            ask.call.time_limit_ms = 50;
            struct deadline deadline = deadline_in(20000);
            sql_do(rig, &ask);
            if (strstr(ask.text, "memory") == NULL) /* the sorter may be first */
                sql_expect(ask.text, "ERR the statement was stopped", "50 ms");
            assert_true(deadline_spent_ms(&deadline) >= 30);
            deadline_keep(&deadline);
            assert_string_equal(sql_ask(rig, "SELECT 1"), "1;");
        }
}

SQLITE_TEST(time_counts_for_each_statement_alone)
{
    struct ask ask = ask_of(SQL_MAY_READ, "SELECT 1");

    ask.call.time_limit_ms = 1000;
    assert_string_equal(sql_do(rig, &ask), "1;");
    ask.call.time_limit_ms = 0;
    ask.call.statement = bytes_of(ENDLESS "SELECT max(x) FROM c");
    sql_expect(sql_do(rig, &ask), "ERR ", "stopped");
    ask.call.time_limit_ms = 1000;
    assert_string_equal(sql_do(rig, &ask), "ERR the statement was stopped: it took more than "
                                           "1000 ms");
}

static enum stk_error one_after_another(struct store_txn *txn, void *arg)
{
    struct ask *ask = arg;

    for (int i = 0; i < 1000; i++) {
        enum stk_error error = sql_body(txn, ask);
        if (error != STK_OK)
            return error;
    }
    return STK_OK;
}

SQLITE_TEST(the_statements_of_an_operation_share_the_time)
{
    struct ask ask = ask_of(SQL_MAY_READ, "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 "
                                          "FROM c LIMIT 30000) SELECT max(x) FROM c");
    struct deadline deadline = deadline_in(20000);

    ask.call.time_limit_ms = 300;
    assert_int_equal(rig_read(rig, one_after_another, &ask), STK_ERR);
    sql_expect(ask.call.why, "", "300 ms");
    deadline_keep(&deadline);
    ask.call.statement = bytes_of("SELECT 1");
    assert_ok(rig_read(rig, sql_body, &ask)); /* the next has its own */
}

SQLITE_TEST(a_statement_is_stopped_when_it_takes_too_much_memory)
{
    static const char *const statements[] = {
        ENDLESS "SELECT * FROM (SELECT randomblob(1000000) AS b FROM c) ORDER BY b",
        ENDLESS "SELECT max(randomblob(100000)) OVER (ORDER BY x) FROM c",
        ENDLESS "SELECT count(DISTINCT randomblob(100000)) FROM c",
    };
    for (size_t i = 0; i < COUNT(statements); i++)
        for (int right = SQL_MAY_READ; right <= SQL_MAY_WRITE; right++) {
            struct ask ask = ask_of((enum sql_right)right, statements[i]);
            sql_do(rig, &ask);
            sql_expect(ask.text, "ERR the statement was stopped", "128 MiB");
            assert_string_equal(sql_ask(rig, "SELECT 1"), "1;");
        }
}

/* Each name stands for its predecessor twice: that takes all memory there is before the first step.
 */
SQLITE_TEST(a_statement_that_multiplies_itself_is_stopped_while_it_is_compiled)
{
    struct buf text = {.data = NULL};

    buf_append_text(&text, "WITH a0(x) AS (SELECT 1)");
    for (int i = 1; i <= 40; i++)
        buf_printf(&text, ",a%d(x) AS (SELECT p.x FROM a%d p, a%d q)", i, i - 1, i - 1);
    buf_append(&text, " SELECT * FROM a40", sizeof " SELECT * FROM a40");
    sql_expect(sql_ask(rig, text.data), "ERR the statement was stopped", "128 MiB");
    sql_expect(sql_change(rig, text.data), "ERR the statement was stopped", "128 MiB");
    assert_string_equal(sql_ask(rig, "SELECT 1"), "1;");
    buf_free(&text);
}

/* A chain of names, each an unflattened select (with 20 more in it) from the one before. */
static void chain(struct buf *text, int selects, int more)
{
    int levels = (selects - 2) / (more + 1);

    buf_clear(text);
    buf_append_text(text, "WITH a0(x) AS (SELECT 1)");
    for (int i = 1; i <= levels; i++) {
        buf_printf(text, ",a%d(x) AS (SELECT x FROM a%d WHERE x", i, i - 1);
        for (int k = 0; k < 20; k++)
            buf_append_text(text, "+1");
        for (int k = 0; k < more; k++)
            buf_printf(text, " %s SELECT %d", k % 2 == 0 ? "UNION" : "EXCEPT", k);
        buf_append_text(text, " LIMIT 1)");
    }
    buf_printf(text, " SELECT * FROM a%d", levels);
    *buf_reserve(text, 1) = '\0';
}

SQLITE_TEST(selects_inside_selects_do_not_run_through_the_stack)
{
    struct buf text = {.data = NULL};

    for (int more = 0; more <= 320; more = more * 2 + 5) {
        chain(&text, SQL_SELECTS_MAX, more);
        sql_ask(rig, text.data); /* a result, or an error: it comes back */
    }
    chain(&text, SQL_SELECTS_MAX + 1, 0);
    sql_expect(sql_ask(rig, text.data), "ERR ", "500 SELECTs");
    buf_free(&text);
    text = (struct buf){.data = NULL};
    buf_append_text(&text, "SELECT ");
    for (int i = 0; i < 100000; i++)
        buf_append_text(&text, "-(1+");
    *buf_reserve(&text, 1) = '\0';
    sql_expect(sql_ask(rig, text.data), "ERR ", "");
    buf_free(&text);
}

SQLITE_TEST(texts_have_a_length)
{
    char *text = mem_alloc(SQL_STATEMENT_MAX + 2);
    struct ask ask = ask_of(SQL_MAY_READ, "");

    memset(text, ' ', SQL_STATEMENT_MAX + 2);
    memcpy(text, "SELECT 1", 8);
    ask.call.statement = (struct bytes){text, SQL_STATEMENT_MAX};
    assert_string_equal(sql_do(rig, &ask), "1;");
    ask.call.statement.len++;
    sql_expect(sql_do(rig, &ask), "ERR ", "1 MiB");
    free(text);
    sql_expect(sql_ask(rig, "SELECT 'x' LIKE printf('%.300c', '_')"), "ERR ", "LIKE");
}

/* The time that these functions of SQLite take is the product of their arguments' lengths. */
SQLITE_TEST(functions_that_would_take_hours_refuse)
{
    static const char *const statements[] = {
        "SELECT instr(zeroblob(16000000), CAST(zeroblob(8000000) || x'01' AS BLOB))",
        "SELECT replace(hex(zeroblob(8000000)), printf('%.8000000c', '0') || 'x', 'y')",
        "SELECT length(trim(hex(zeroblob(8000000)), printf('%.8000000c', 'x') || '0'))",
        "SELECT length(rtrim(hex(zeroblob(8000000)), printf('%.8000000c', 'x') || '0'))",
    };

    for (size_t i = 0; i < COUNT(statements); i++) {
        struct deadline deadline = deadline_in(20000);
        sql_expect(sql_ask(rig, statements[i]), "ERR ", "too long for this function");
        deadline_keep(&deadline);
    }
}

/* Operations that share a batch. */

static enum stk_error set_key(struct store_txn *txn, void *name)
{
    rig_set(txn, name, "value");
    return STK_OK;
}

/* A write of Stockade's, the statement, and what the engine does where that fails. */
static enum stk_error in_savepoint(struct store_txn *txn, void *arg)
{
    rig_set(txn, "before", "value");
    if (txn_savepoint(txn) != STK_OK)
        return STK_STORE;
    enum stk_error error = sql_body(txn, arg);
    return error == STK_OK ? txn_savepoint_keep(txn) : txn_savepoint_undo(txn);
}

static const char *key(struct rig *rig, const char *name)
{
    char query[128];
    snprintf(query, sizeof query, "SELECT value FROM stockade_values WHERE key = '%s'", name);
    return sql_ask(rig, query);
}

/* The statement runs between two other writes of one batch. Return how its operation ended. */
static enum stk_error in_a_batch(struct rig *rig, struct ask *ask, rig_body body)
{
    static char names[2][16] = {"first", "last"};
    struct rig_op ops[] = {rig_op(true, set_key, names[0]), rig_op(true, body, ask),
                           rig_op(true, set_key, names[1])};

    rig_sql(rig, "DELETE FROM stockade_string; UPDATE stockade_resource SET type = 0");
    rig_batch(rig, ops, 3);
    assert_ok(ops[0].base.error);
    assert_ok(ops[2].base.error);
    assert_string_equal(key(rig, "first"), "'value';");
    assert_string_equal(key(rig, "last"), "'value';");
    assert_int_equal(ops[1].done, 1);
    return ops[1].base.error;
}

SQLITE_TEST(a_statement_that_ends_the_transaction_ends_nobody_elses_write)
{
    static const struct {
        const char *statement, *why;
        bool ends; /* the transaction, so that the savepoint cannot be undone alone */
    } wrong[] = {
        {"INSERT OR ROLLBACK INTO t VALUES(2), (1)", "UNIQUE", true},
        {"UPDATE OR ROLLBACK t SET a = 1", "UNIQUE", true},
        {"INSERT INTO quits VALUES(1)", "enough", true},
        {"INSERT INTO t " ENDLESS "SELECT x + 100 FROM c", "50 ms", true},
        {"UPDATE t SET a = (" ENDLESS "SELECT max(x) FROM c)", "50 ms", true},
        {"INSERT INTO t " ENDLESS "SELECT randomblob(1000000) FROM c ORDER BY 1", "128 MiB", true},
        {"INSERT OR FAIL INTO t VALUES(2), (1)", "UNIQUE", false},
        {"INSERT OR ABORT INTO t VALUES(2), (1)", "UNIQUE", false},
        {"INSERT INTO t VALUES(2), (1)", "UNIQUE", false},
        {ENDLESS "SELECT max(x) FROM c", "50 ms", false},
        {"INSERT INTO nowhere VALUES(1)", "no such table", false},
    };
    rig_sql(rig, "CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES(1), (0); CREATE TABLE quits(a);"
                 "CREATE TRIGGER quit AFTER INSERT ON quits BEGIN"
                 "  SELECT RAISE(ROLLBACK, 'enough'); END;");
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct ask ask = ask_of(SQL_MAY_WRITE, wrong[i].statement);
        if (strstr(wrong[i].why, "ms") != NULL)
            ask.call.time_limit_ms = 50;
        assert_int_equal(in_a_batch(rig, &ask, sql_body), STK_ERR);
        sql_expect(ask.call.why, "", wrong[i].why);
        enum stk_error error = in_a_batch(rig, &ask, in_savepoint);
        if (error != (wrong[i].ends ? STK_ERR : STK_OK))
            fail_msg("%s: %d", wrong[i].statement, error);
        sql_expect(ask.call.why, "", wrong[i].why);
        assert_string_equal(key(rig, "before"), wrong[i].ends ? "" : "'value';");
        assert_string_equal(sql_ask(rig, "SELECT a FROM t ORDER BY a"), "0;1;");
    }
}

SQLITE_TEST(ddl_that_is_stopped_leaves_nothing)
{
    struct ask ask = ask_of(SQL_MAY_DEFINE, "CREATE TABLE x AS " ENDLESS "SELECT x FROM c");

    ask.call.time_limit_ms = 50;
    assert_int_equal(in_a_batch(rig, &ask, in_savepoint), STK_ERR);
    sql_expect(ask.call.why, "", "50 ms");
    sql_expect(sql_ask(rig, "SELECT * FROM x"), "ERR ", "no such table");
    assert_string_equal(sql_define(rig, "CREATE TABLE x(a)"), "");
}

static enum stk_error go_on_after_the_end(struct store_txn *txn, void *arg)
{
    struct ask *ask = arg;
    struct resource resource;

    assert_int_equal(sql_body(txn, ask), STK_ERR);
    ask->call.statement = bytes_of("INSERT INTO t VALUES(7)");
    assert_int_equal(sql_body(txn, ask), STK_ERR);
    sql_expect(ask->call.why, "the transaction was rolled back", "");
    (void)txn_resource(txn, bytes_of("late"), &resource);
    assert_int_not_equal(txn_resource_make(txn, bytes_of("late"), &resource), STK_OK);
    return STK_OK; /* even so */
}

SQLITE_TEST(nothing_more_happens_in_an_operation_whose_transaction_has_ended)
{
    struct ask ask = ask_of(SQL_MAY_WRITE, "INSERT OR ROLLBACK INTO t VALUES(1)");

    rig_sql(rig, "CREATE TABLE t(a UNIQUE); INSERT INTO t VALUES(1)");
    assert_int_equal(in_a_batch(rig, &ask, go_on_after_the_end), STK_ERR);
    assert_string_equal(sql_ask(rig, "SELECT * FROM t"), "1;");
    assert_string_equal(sql_ask(rig, "SELECT count(*) FROM stockade_fences"), "0;");
}

SQLITE_TEST(reads_of_one_batch_do_not_suffer_from_one_that_is_stopped)
{
    static struct ask asks[3];
    struct rig_op ops[3];

    asks[0] = ask_of(SQL_MAY_READ, "SELECT 1");
    asks[1] = ask_of(SQL_MAY_READ, ENDLESS "SELECT hex(zeroblob(8000000)) || x FROM c ORDER BY 1");
    asks[2] = ask_of(SQL_MAY_READ, "SELECT count(*) FROM stockade_values");
    for (int i = 0; i < 3; i++)
        ops[i] = rig_op(false, sql_body, &asks[i]);
    rig_batch(rig, ops, 3);
    assert_ok(ops[0].base.error);
    assert_int_equal(ops[1].base.error, STK_ERR);
    sql_expect(asks[1].call.why, "", "128 MiB");
    assert_ok(ops[2].base.error);
    assert_string_equal(asks[2].text, "0;");
}

/* Before the rig's own file system starts SQLite. */
static int install(void **state)
{
    (void)state;
    sql_memory_install();
    return 0;
}

AROUND_ALL_TESTS(install, NULL);
