/* SPDX-License-Identifier: Apache-2.0 */
/* A string over one of the same length, which SQLite changes in place and counts nowhere: it holds,
 * is undone and gives way to others as any other change. A transaction's first string is put by a
 * statement, so "a" comes first. */
#include "store/sqlite/transaction.h"
#include "tests/unit/store/sql_rig.h"

static int64_t overwrites(struct store_txn *txn)
{
    return ((struct transaction *)txn)->overwrites;
}

/* b and c hold strings, whose length the writer knows. */
static void begin_with(struct store_txn *txn)
{
    rig_set(txn, "a", "a0");
    rig_set(txn, "b", "b-zero");
    rig_set(txn, "c", "c-zero");
}

static enum stk_error set_a(struct store_txn *txn, void *arg)
{
    rig_set(txn, "a", arg);
    return STK_OK;
}

/* Whether it is an overwrite. */
static bool overwrite(struct store_txn *txn, const char *name, const char *value)
{
    int64_t before = overwrites(txn);
    rig_set(txn, name, value);
    return overwrites(txn) == before + 1;
}

static enum stk_error overwrite_b(struct store_txn *txn, void *arg)
{
    assert_true(overwrite(txn, "b", arg));
    assert_string_equal(rig_get(txn, "b"), arg);
    return STK_OK;
}

static enum stk_error is(struct store_txn *txn, const char *name, const char *value)
{
    assert_string_equal(rig_get(txn, name), value);
    return STK_OK;
}

static enum stk_error b_is(struct store_txn *txn, void *arg)
{
    return is(txn, "b", arg);
}

/* In memory, for a reader, and in the file. */
static void expect_b(struct rig *rig, const char *value)
{
    assert_ok(rig_write(rig, b_is, (void *)value));
    assert_ok(rig_read(rig, b_is, (void *)value));
    rig_reopen(rig);
    assert_ok(rig_read(rig, b_is, (void *)value));
}

/* In one transaction: a is set, then this. Its error. */
static enum stk_error after_a(struct rig *rig, rig_body body, void *arg)
{
    struct rig_op first = rig_op(true, set_a, "a1"), second = rig_op(true, body, arg);

    rig_submit(rig, &first);
    rig_submit(rig, &second);
    rig_settle(rig);
    assert_ok(first.base.error);
    assert_int_equal(second.done, 1);
    return second.base.error;
}

static enum stk_error overwrite_some(struct store_txn *txn, void *arg)
{
    (void)arg;
    assert_true(overwrite(txn, "b", "b-one!"));
    assert_true(overwrite(txn, "c", "c-one!"));
    assert_true(overwrite(txn, "b", "b-two!"));
    assert_true(overwrite(txn, "a", "a2"));
    return STK_OK;
}

static enum stk_error c_is(struct store_txn *txn, void *arg)
{
    return is(txn, "c", arg);
}

SQLITE_TEST(what_is_overwritten_holds)
{
    rig_in_write(rig, begin_with);
    assert_int_equal(after_a(rig, overwrite_some, NULL), STK_OK);
    assert_ok(rig_read(rig, c_is, "c-one!"));
    expect_b(rig, "b-two!");
}

static void expect_b_after(struct rig *rig, rig_body body, const char *value)
{
    rig_in_write(rig, begin_with);
    assert_int_equal(after_a(rig, body, NULL), STK_OK);
    expect_b(rig, value);
}

static enum stk_error change_lengths(struct store_txn *txn, void *arg)
{
    (void)arg;
    assert_true(overwrite(txn, "b", "b-one!"));
    assert_false(overwrite(txn, "b", "longer than it was"));
    assert_true(overwrite(txn, "b", "as long as that is"));
    assert_false(overwrite(txn, "b", ""));
    assert_false(overwrite(txn, "b", ""));
    assert_false(overwrite(txn, "b", "short"));
    assert_true(overwrite(txn, "b", "SHORT"));
    return STK_OK;
}

SQLITE_TEST(another_length_is_another_row)
{
    expect_b_after(rig, change_lengths, "SHORT");
}

static enum stk_error remove_and_put_again(struct store_txn *txn, void *arg)
{
    struct resource resource = rig_find(txn, "b");

    (void)arg;
    assert_true(overwrite(txn, "b", "b-one!"));
    assert_ok(txn_value_clear(txn, &resource));
    assert_string_equal(rig_get(txn, "b"), "(none)");
    assert_false(overwrite(txn, "b", "b-two!"));
    assert_true(overwrite(txn, "b", "b-3333"));
    return STK_OK;
}

SQLITE_TEST(a_string_that_is_gone_is_not_overwritten)
{
    expect_b_after(rig, remove_and_put_again, "b-3333");
}

static enum stk_error overwrite_b_and_fail(struct store_txn *txn, void *arg)
{
    assert_int_equal(overwrite_b(txn, arg), STK_OK);
    return STK_RANGE;
}

SQLITE_TEST(an_operation_that_has_overwritten_and_fails_is_undone)
{
    rig_in_write(rig, begin_with);
    assert_int_equal(after_a(rig, overwrite_b_and_fail, "wrong!"), STK_RANGE);
    expect_b(rig, "b-zero");
}

static enum stk_error undo_some(struct store_txn *txn, void *arg)
{
    (void)arg;
    assert_true(overwrite(txn, "b", "b-one!"));
    assert_ok(txn_mark(txn));
    assert_true(overwrite(txn, "b", "wrong!"));
    assert_true(overwrite(txn, "c", "wrong!"));
    assert_ok(txn_mark_undo(txn));
    assert_string_equal(rig_get(txn, "b"), "b-one!");
    assert_ok(txn_mark(txn));
    rig_set(txn, "b", "b-two!");
    return txn_mark_keep(txn);
}

SQLITE_TEST(an_overwrite_is_undone_to_its_mark)
{
    rig_in_write(rig, begin_with);
    assert_int_equal(after_a(rig, undo_some, NULL), STK_OK);
    assert_ok(rig_read(rig, c_is, "c-zero"));
    expect_b(rig, "b-two!");
}

/* What the writer knows of a length is of no use after an undo: "b" is shorter, then longer. */
static enum stk_error mistake_the_length(struct store_txn *txn, void *arg)
{
    static const char *const others[] = {"much longer than it was", "b"};
    struct resource resource = rig_find(txn, "b");
    struct cache *cache = ((struct transaction *)txn)->cache;

    (void)arg;
    for (size_t i = 0; i < 2; i++) {
        cache_string_update(cache, resource.id, bytes_of(others[i]));
        assert_true(cache_string_has_len(cache, resource.id, strlen(others[i])));
        assert_false(overwrite(txn, "b", others[i]));
        assert_string_equal(rig_get(txn, "b"), others[i]);
        rig_set(txn, "b", "b-zero");
    }
    return STK_OK;
}

SQLITE_TEST(a_length_that_is_mistaken_is_noticed)
{
    expect_b_after(rig, mistake_the_length, "b-zero");
}

static enum stk_error read_and_replace(struct store_txn *txn, void *arg)
{
    assert_string_equal(rig_get(txn, "b"), "123456");
    assert_true(overwrite(txn, "c", "c-one!"));
    assert_false(overwrite(txn, "b", arg));
    return overwrite_b(txn, "b-two!");
}

SQLITE_TEST(a_number_that_another_program_put_there_is_replaced)
{
    rig_in_write(rig, begin_with);
    rig_sql(rig, "UPDATE stockade_string SET value = 123456 WHERE value = x'622d7a65726f'");
    assert_ok(rig_write(rig, c_is, "c-zero")); /* remembered again */
    assert_int_equal(after_a(rig, read_and_replace, "b-one!"), STK_OK);
    expect_b(rig, "b-two!");
}

static enum stk_error define_between(struct store_txn *txn, void *arg)
{
    struct ask define = ask_of(SQL_MAY_DEFINE, "CREATE TABLE t(x PRIMARY KEY)");
    struct ask drop = ask_of(SQL_MAY_DEFINE, "DROP TABLE old");
    char why[SQL_WHY_MAX];

    (void)arg;
    assert_true(overwrite(txn, "b", "b-one!"));
    assert_int_equal(sql_body(txn, &drop), STK_OK);
    assert_int_equal(sql_body(txn, &define), STK_OK);
    assert_true(overwrite(txn, "b", "b-two!"));
    assert_int_equal(txn_guard_create(txn, bytes_of("t"), bytes_of("x"), bytes_of("t:"), why),
                     STK_OK);
    assert_true(overwrite(txn, "b", "b-3333"));
    return STK_OK;
}

SQLITE_TEST(the_schema_may_change_after_an_overwrite)
{
    assert_string_equal(sql_define(rig, "CREATE TABLE old(x)"), "");
    rig_in_write(rig, begin_with);
    assert_int_equal(after_a(rig, define_between, NULL), STK_OK);
    assert_string_equal(sql_ask(rig, "SELECT count(*) FROM t"), "0;");
    expect_b(rig, "b-3333");
}

SQLITE_TEST(a_commit_that_fails_keeps_no_overwrite)
{
    rig_in_write(rig, begin_with);
    struct rig_op first = rig_op(true, set_a, "a1"), second = rig_op(true, overwrite_b, "wrong!");
    rig_fail_commit(rig);
    rig_submit(rig, &first);
    rig_submit(rig, &second);
    rig_settle(rig);
    assert_int_equal(second.base.error, STK_STORE);
    rig_heal(rig);
    expect_b(rig, "b-zero");
}
