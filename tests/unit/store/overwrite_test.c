/* SPDX-License-Identifier: Apache-2.0 */
/* A string that is put over one of the same length is written in place, past SQLite's own count of
 * changes. It has to last, to be undone and to be followed by others like any other change. A
 * transaction's first string is put by a statement, so each test sets "a" first. */
#include "store/sqlite/transaction.h"
#include "tests/unit/store/sql_rig.h"

static int64_t overwrites(struct store_txn *txn)
{
    return ((struct transaction *)txn)->overwrites;
}

/* r and c hold strings, whose length the writer knows. */
static void begin_with(struct store_txn *txn)
{
    rig_set(txn, "a", "a0");
    rig_set(txn, "r", "b-zero");
    rig_set(txn, "c", "c-zero");
}

static enum stk_error set_a(struct store_txn *txn, void *arg)
{
    rig_set(txn, "a", arg);
    return STK_OK;
}

/* Set it. Is it an overwrite? */
static bool overwrite(struct store_txn *txn, const char *name, const char *value)
{
    int64_t before = overwrites(txn);
    rig_set(txn, name, value);
    return overwrites(txn) == before + 1;
}

static enum stk_error overwrite_r(struct store_txn *txn, void *arg)
{
    assert_true(overwrite(txn, "r", arg));
    assert_string_equal(rig_get(txn, "r"), arg);
    return STK_OK;
}

/* In memory, for a reader, and in the file. */
static void expect(struct rig *rig, const char *r, const char *c)
{
    rig_expect_r(rig, r);
    rig_reopen(rig);
    rig_expect_r(rig, r);
    assert_string_equal(rig_rows(rig, "SELECT value FROM stockade_values WHERE key = 'c'"), c);
}

/* In one transaction: a is set, then this. Return its error. */
static enum stk_error after_a(struct rig *rig, rig_body body, void *arg)
{
    struct rig_op ops[] = {rig_op(true, set_a, "a1"), rig_op(true, body, arg)};

    rig_batch(rig, ops, 2);
    assert_ok(ops[0].base.error);
    assert_int_equal(ops[1].done, 1);
    return ops[1].base.error;
}

static enum stk_error run_block(struct store_txn *txn, void *block)
{
    (*(rig_block *)block)(txn);
    return STK_OK;
}

static void run_after_a(struct rig *rig, rig_block block, const char *r, const char *c)
{
    rig_in_write(rig, begin_with);
    assert_ok(after_a(rig, run_block, &block));
    expect(rig, r, c);
}

/* A test of one operation, and of what r and c are afterwards. */
#define AFTER_A_TEST(name, r, c)                                                                   \
    static void name##_block(struct store_txn *txn);                                               \
    SQLITE_TEST(name)                                                                              \
    {                                                                                              \
        run_after_a(rig, name##_block, r, c);                                                      \
    }                                                                                              \
    static void name##_block(struct store_txn *txn)

AFTER_A_TEST(what_is_overwritten_holds, "b-two!", "c-one!")
{
    assert_true(overwrite(txn, "r", "b-one!"));
    assert_true(overwrite(txn, "c", "c-one!"));
    assert_true(overwrite(txn, "r", "b-two!"));
    assert_true(overwrite(txn, "a", "a2"));
}

AFTER_A_TEST(another_length_is_another_row, "SHORT", "c-zero")
{
    assert_true(overwrite(txn, "r", "b-one!"));
    assert_false(overwrite(txn, "r", "longer than it was"));
    assert_true(overwrite(txn, "r", "as long as that is"));
    assert_false(overwrite(txn, "r", ""));
    assert_false(overwrite(txn, "r", ""));
    assert_false(overwrite(txn, "r", "short"));
    assert_true(overwrite(txn, "r", "SHORT"));
}

AFTER_A_TEST(a_string_that_is_gone_is_not_overwritten, "b-3333", "c-zero")
{
    struct resource resource = rig_find(txn, "r");

    assert_true(overwrite(txn, "r", "b-one!"));
    assert_ok(txn_value_clear(txn, &resource));
    assert_string_equal(rig_get(txn, "r"), "(none)");
    assert_false(overwrite(txn, "r", "b-two!"));
    assert_true(overwrite(txn, "r", "b-3333"));
}

static enum stk_error overwrite_r_and_fail(struct store_txn *txn, void *arg)
{
    assert_ok(overwrite_r(txn, arg));
    return STK_RANGE;
}

SQLITE_TEST(an_operation_that_has_overwritten_and_fails_is_undone)
{
    rig_in_write(rig, begin_with);
    assert_int_equal(after_a(rig, overwrite_r_and_fail, "wrong!"), STK_RANGE);
    expect(rig, "b-zero", "c-zero");
}

AFTER_A_TEST(an_overwrite_is_undone_to_its_savepoint, "b-two!", "c-zero")
{
    assert_true(overwrite(txn, "r", "b-one!"));
    assert_ok(txn_savepoint(txn));
    assert_true(overwrite(txn, "r", "wrong!"));
    assert_true(overwrite(txn, "c", "wrong!"));
    assert_ok(txn_savepoint_undo(txn));
    assert_string_equal(rig_get(txn, "r"), "b-one!");
    assert_ok(txn_savepoint(txn));
    rig_set(txn, "r", "b-two!");
    assert_ok(txn_savepoint_keep(txn));
}

/* What the writer knows of a length is of no use after an undo: "r" is shorter, then longer. */
AFTER_A_TEST(a_length_that_is_mistaken_is_noticed, "b-zero", "c-zero")
{
    static const char *const others[] = {"much longer than it was", "b"};
    struct resource resource = rig_find(txn, "r");
    struct cache *cache = ((struct transaction *)txn)->cache;

    for (size_t i = 0; i < 2; i++) {
        cache_string_update(cache, resource.id, bytes_of(others[i]));
        assert_true(cache_string_has_len(cache, resource.id, strlen(others[i])));
        assert_false(overwrite(txn, "r", others[i]));
        assert_string_equal(rig_get(txn, "r"), others[i]);
        rig_set(txn, "r", "b-zero");
    }
}

static enum stk_error read_and_replace(struct store_txn *txn, void *arg)
{
    assert_string_equal(rig_get(txn, "r"), "123456");
    assert_true(overwrite(txn, "c", "c-one!"));
    assert_false(overwrite(txn, "r", arg));
    return overwrite_r(txn, "b-two!");
}

static void read_c(struct store_txn *txn)
{
    assert_string_equal(rig_get(txn, "c"), "c-zero");
}

SQLITE_TEST(a_number_that_another_program_put_there_is_replaced)
{
    rig_in_write(rig, begin_with);
    rig_sql(rig, "UPDATE stockade_string SET value = 123456 WHERE value = x'622d7a65726f'");
    rig_in_write(rig, read_c); /* remembered again */
    assert_ok(after_a(rig, read_and_replace, "b-one!"));
    expect(rig, "b-two!", "c-one!");
}

static void define_between(struct store_txn *txn)
{
    struct ask define = ask_of(SQL_MAY_DEFINE, "CREATE TABLE t(x PRIMARY KEY)");
    struct ask drop = ask_of(SQL_MAY_DEFINE, "DROP TABLE old");
    char why[SQL_WHY_MAX];

    assert_true(overwrite(txn, "r", "b-one!"));
    assert_ok(sql_body(txn, &drop));
    assert_ok(sql_body(txn, &define));
    assert_true(overwrite(txn, "r", "b-two!"));
    assert_ok(txn_guard_create(txn,
                               &(struct table_guard){.table = bytes_of("t"),
                                                     .column = bytes_of("x"),
                                                     .prefix = bytes_of("t:")},
                               why));
    assert_true(overwrite(txn, "r", "b-3333"));
}

SQLITE_TEST(the_schema_may_change_after_an_overwrite)
{
    assert_string_equal(sql_define(rig, "CREATE TABLE old(x)"), "");
    run_after_a(rig, define_between, "b-3333", "c-zero");
    assert_string_equal(sql_ask(rig, "SELECT count(*) FROM t"), "0;");
}

SQLITE_TEST(a_commit_that_fails_keeps_no_overwrite)
{
    rig_in_write(rig, begin_with);
    struct rig_op ops[] = {rig_op(true, set_a, "a1"), rig_op(true, overwrite_r, "wrong!")};
    rig_fail_commit(rig);
    rig_batch(rig, ops, 2);
    assert_int_equal(ops[1].base.error, STK_STORE);
    rig_heal(rig);
    expect(rig, "b-zero", "c-zero");
}
