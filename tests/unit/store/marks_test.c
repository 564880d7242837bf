/* SPDX-License-Identifier: Apache-2.0 */
/* Marks: what an operation does after one can be undone, what it did before stays. Both stores. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/store/rig.h"

#define assert_ok(call) assert_int_equal((call), STK_OK)

/* Does everything to "a" (live, a string) and to a resource "new" that an operation can do. */
static void do_everything(struct store_txn *txn)
{
    struct resource new = rig_grant(txn, "new", "marked");
    struct resource a = rig_grant(txn, "a", "marked");

    assert_ok(txn_field_put(txn, &new, bytes_of("f"), BYTES_LITERAL("marked")));
    assert_ok(txn_value_clear(txn, &a));
    assert_ok(txn_field_put(txn, &a, bytes_of("f"), BYTES_LITERAL("marked")));
    rig_receipt_put(txn, "a", "marked");
    rig_release(txn, "a");
}

static void expect_as_before(struct store_txn *txn)
{
    struct resource a = rig_find(txn, "a");
    struct lease lease;

    assert_int_equal(rig_find(txn, "new").id, 0);
    assert_int_equal(a.fence.token, 1);
    assert_int_equal(a.fence.state, FENCE_LIVE);
    assert_int_equal(a.type, VALUE_STRING);
    assert_ok(txn_lease(txn, &a, &lease));
    assert_true(bytes_equal(lease.owner, BYTES_LITERAL("first")));
    assert_int_equal(lease.holds, 1);
    assert_string_equal(rig_get(txn, "a"), "before");
    assert_string_equal(rig_receipt(txn, "a", "marked"), "(none)");
}

static enum stk_error prepare(struct store_txn *txn, void *arg)
{
    (void)arg;
    rig_grant(txn, "a", "first");
    rig_set(txn, "a", "before");
    return STK_OK;
}

static enum stk_error undo(struct store_txn *txn, void *arg)
{
    (void)arg;
    expect_as_before(txn);
    rig_set(txn, "kept", "1");
    for (int i = 0; i < 3; i++) {
        assert_ok(txn_mark(txn));
        do_everything(txn);
        assert_int_equal(rig_find(txn, "a").fence.token, 2);
        assert_ok(txn_mark_undo(txn));
        expect_as_before(txn);
        assert_string_equal(rig_get(txn, "kept"), "1");
    }
    return STK_OK;
}

static enum stk_error look(struct store_txn *txn, void *arg)
{
    (void)arg;
    expect_as_before(txn);
    assert_string_equal(rig_get(txn, "kept"), "1");
    return STK_OK;
}

static void what_follows_a_mark_is_undone_and_what_was_before_stays(void **state)
{
    assert_ok(rig_write(*state, prepare, NULL));
    assert_ok(rig_write(*state, undo, NULL));
    assert_ok(rig_write(*state, look, NULL));
    assert_ok(rig_read(*state, look, NULL));
}

static enum stk_error keep(struct store_txn *txn, void *arg)
{
    (void)arg;
    assert_ok(txn_mark(txn));
    do_everything(txn);
    assert_ok(txn_mark_keep(txn));
    /* A second one undoes its own part only. */
    assert_ok(txn_mark(txn));
    rig_grant(txn, "a", "again");
    assert_ok(txn_mark_undo(txn));
    return STK_OK;
}

static enum stk_error look_kept(struct store_txn *txn, void *arg)
{
    (void)arg;
    assert_int_equal(rig_find(txn, "a").fence.token, 2);
    assert_int_equal(rig_find(txn, "a").fence.state, FENCE_RELEASED);
    assert_int_equal(rig_find(txn, "new").type, VALUE_HASH);
    assert_string_equal(rig_receipt(txn, "a", "marked"), "reply to marked");
    return STK_OK;
}

static void what_is_kept_stays(void **state)
{
    assert_ok(rig_write(*state, prepare, NULL));
    assert_ok(rig_write(*state, keep, NULL));
    assert_ok(rig_write(*state, look_kept, NULL));
    assert_ok(rig_read(*state, look_kept, NULL));
}

static enum stk_error undo_a_flush(struct store_txn *txn, void *arg)
{
    (void)arg;
    rig_receipt_put(txn, "a", "id");
    assert_ok(txn_mark(txn));
    assert_ok(txn_flush(txn));
    assert_int_equal(rig_find(txn, "a").fence.state, FENCE_REVOKED);
    assert_ok(txn_mark_undo(txn));
    expect_as_before(txn);
    assert_string_equal(rig_receipt(txn, "a", "id"), "reply to id");
    return STK_OK;
}

static void a_flush_is_undone(void **state)
{
    assert_ok(rig_write(*state, prepare, NULL));
    assert_ok(rig_write(*state, undo_a_flush, NULL));
}

static enum stk_error undo_sweeps(struct store_txn *txn, void *arg)
{
    size_t removed;
    int64_t after = 0, floor = rig_find(txn, "elsewhere").fence.floor;
    bool more;

    (void)arg;
    rig_grant(txn, "gone", "o");
    rig_grant(txn, "gone", "o");
    rig_release(txn, "gone");
    rig_grant(txn, "last", "o");
    rig_receipt_put(txn, "last", "id");
    rig_release(txn, "last");
    assert_ok(txn_mark(txn));
    assert_ok(txn_sweep_resources(txn, INT64_MAX, 0, 100, &after, &removed, &more));
    assert_int_equal(removed, 1);
    assert_int_equal(rig_find(txn, "gone").id, 0);
    assert_int_equal(rig_find(txn, "elsewhere").fence.floor, 2);
    assert_ok(txn_sweep_receipts(txn, INT64_MAX, 100, &removed, &more));
    assert_int_equal(removed, 1);
    assert_int_equal(rig_lease(txn, "last").receipts_gone, 1);
    assert_ok(txn_mark_undo(txn));
    assert_int_equal(rig_find(txn, "gone").fence.token, 2);
    assert_int_equal(rig_find(txn, "elsewhere").fence.floor, floor);
    assert_string_equal(rig_receipt(txn, "last", "id"), "reply to id");
    assert_int_equal(rig_lease(txn, "last").receipts_gone, 0);
    assert_ok(txn_sweep_receipts(txn, INT64_MAX, 100, &removed, &more));
    assert_int_equal(removed, 1);
    return STK_OK;
}

static void sweeps_and_the_floor_they_raise_are_undone(void **state)
{
    assert_ok(rig_write(*state, undo_sweeps, NULL));
}

static enum stk_error leave_a_mark(struct store_txn *txn, void *arg)
{
    assert_ok(txn_mark(txn));
    rig_set(txn, arg, "1");
    return STK_OK;
}

static enum stk_error mark_and_fail(struct store_txn *txn, void *arg)
{
    (void)leave_a_mark(txn, arg);
    return STK_ERR;
}

static enum stk_error get(struct store_txn *txn, void *arg)
{
    snprintf(arg, 16, "%s", rig_get(txn, arg));
    return STK_OK;
}

static void a_mark_ends_with_its_operation(void **state)
{
    char a[16] = "a", b[16] = "b", c[16] = "c";
    struct rig_op ops[] = {rig_op(true, leave_a_mark, "a"), rig_op(true, mark_and_fail, "b"),
                           rig_op(true, leave_a_mark, "c")};

    for (size_t i = 0; i < 3; i++)
        rig_submit(*state, &ops[i]);
    rig_settle(*state);
    assert_ok(ops[0].base.error);
    assert_int_equal(ops[1].base.error, STK_ERR);
    assert_ok(ops[2].base.error);
    assert_ok(rig_read(*state, get, a));
    assert_ok(rig_read(*state, get, b));
    assert_ok(rig_read(*state, get, c));
    assert_string_equal(a, "1");
    assert_string_equal(b, "(none)");
    assert_string_equal(c, "1");
}

static enum stk_error read_marked(struct store_txn *txn, void *arg)
{
    (void)arg;
    assert_ok(txn_mark(txn));
    expect_as_before(txn);
    assert_ok(txn_mark_undo(txn));
    assert_ok(txn_mark(txn));
    expect_as_before(txn);
    return STK_OK;
}

static void a_read_may_set_marks_too(void **state)
{
    assert_ok(rig_write(*state, prepare, NULL));
    assert_ok(rig_read(*state, read_marked, NULL));
    assert_ok(rig_read(*state, read_marked, NULL));
}

#define TESTS(X)                                                                                   \
    X(what_follows_a_mark_is_undone_and_what_was_before_stays)                                     \
    X(what_is_kept_stays)                                                                          \
    X(a_flush_is_undone)                                                                           \
    X(sweeps_and_the_floor_they_raise_are_undone)                                                  \
    X(a_mark_ends_with_its_operation)                                                              \
    X(a_read_may_set_marks_too)

int main(void)
{
#define X(test) cmocka_unit_test_setup_teardown(test, rig_memory, rig_end),
    const struct CMUnitTest in_memory[] = {TESTS(X)};
#undef X
#define X(test) cmocka_unit_test_setup_teardown(test, rig_sqlite, rig_end),
    const struct CMUnitTest on_sqlite[] = {TESTS(X)};
#undef X
    int failed = cmocka_run_group_tests_name("memory", in_memory, NULL, NULL);
    return failed + cmocka_run_group_tests_name("sqlite", on_sqlite, NULL, NULL);
}
