/* SPDX-License-Identifier: Apache-2.0 */
/* Savepoints, in both stores: what an operation does after one can be undone, and what it did
 * before stays. */
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

/* Does everything to "a" (live, a string) and to a resource "new" that an operation can do. */
static void do_everything(struct store_txn *txn)
{
    struct resource new = rig_grant(txn, "new", "inside");
    struct resource a = rig_grant(txn, "a", "inside");

    assert_ok(txn_field_put(txn, &new, bytes_of("f"), BYTES_LITERAL("inside")));
    assert_ok(txn_value_clear(txn, &a));
    assert_ok(txn_field_put(txn, &a, bytes_of("f"), BYTES_LITERAL("inside")));
    rig_receipt_put(txn, "a", "inside");
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
    assert_string_equal(rig_receipt(txn, "a", "inside"), "(none)");
}

static void prepare(struct store_txn *txn)
{
    rig_grant(txn, "a", "first");
    rig_set(txn, "a", "before");
}

static void undo(struct store_txn *txn)
{
    expect_as_before(txn);
    rig_set(txn, "kept", "1");
    for (int i = 0; i < 3; i++) {
        assert_ok(txn_savepoint(txn));
        do_everything(txn);
        assert_int_equal(rig_find(txn, "a").fence.token, 2);
        assert_ok(txn_savepoint_undo(txn));
        expect_as_before(txn);
        assert_string_equal(rig_get(txn, "kept"), "1");
    }
}

static void look(struct store_txn *txn)
{
    expect_as_before(txn);
    assert_string_equal(rig_get(txn, "kept"), "1");
}

BOTH_TEST(what_follows_a_savepoint_is_undone_and_what_was_before_stays)
{
    rig_in_write(rig, prepare);
    rig_in_write(rig, undo);
    rig_in_both(rig, look);
}

static void keep(struct store_txn *txn)
{
    assert_ok(txn_savepoint(txn));
    do_everything(txn);
    assert_ok(txn_savepoint_keep(txn));
    /* A second one undoes its own part only. */
    assert_ok(txn_savepoint(txn));
    rig_grant(txn, "a", "again");
    assert_ok(txn_savepoint_undo(txn));
}

static void look_kept(struct store_txn *txn)
{
    assert_int_equal(rig_find(txn, "a").fence.token, 2);
    assert_int_equal(rig_find(txn, "a").fence.state, FENCE_RELEASED);
    assert_int_equal(rig_find(txn, "new").type, VALUE_HASH);
    assert_string_equal(rig_receipt(txn, "a", "inside"), "reply to inside");
}

BOTH_TEST(what_is_kept_stays)
{
    rig_in_write(rig, prepare);
    rig_in_write(rig, keep);
    rig_in_both(rig, look_kept);
}

static void undo_a_flush(struct store_txn *txn)
{
    rig_receipt_put(txn, "a", "id");
    assert_ok(txn_savepoint(txn));
    assert_ok(flush_in_steps(txn));
    assert_int_equal(rig_find(txn, "a").fence.state, FENCE_REVOKED);
    assert_ok(txn_savepoint_undo(txn));
    expect_as_before(txn);
    assert_string_equal(rig_receipt(txn, "a", "id"), "reply to id");
}

BOTH_TEST(a_flush_is_undone)
{
    rig_in_write(rig, prepare);
    rig_in_write(rig, undo_a_flush);
}

BOTH_WRITE_TEST(sweeps_and_the_floor_they_raise_are_undone)
{
    size_t removed;
    int64_t after = 0, floor = rig_find(txn, "elsewhere").fence.floor;
    bool more;

    rig_grant(txn, "gone", "o");
    rig_grant(txn, "gone", "o");
    rig_release(txn, "gone");
    rig_grant(txn, "last", "o");
    rig_receipt_put(txn, "last", "id");
    rig_release(txn, "last");
    assert_ok(txn_savepoint(txn));
    assert_ok(txn_sweep_resources(txn, INT64_MAX, 0, 100, &after, &removed, &more));
    assert_int_equal(removed, 1);
    assert_int_equal(rig_find(txn, "gone").id, 0);
    assert_int_equal(rig_find(txn, "elsewhere").fence.floor, 2);
    assert_ok(txn_sweep_receipts(txn, INT64_MAX, 100, &removed, &more));
    assert_int_equal(removed, 1);
    assert_int_equal(rig_lease(txn, "last").receipts_gone, 1);
    assert_ok(txn_savepoint_undo(txn));
    assert_int_equal(rig_find(txn, "gone").fence.token, 2);
    assert_int_equal(rig_find(txn, "elsewhere").fence.floor, floor);
    assert_string_equal(rig_receipt(txn, "last", "id"), "reply to id");
    assert_int_equal(rig_lease(txn, "last").receipts_gone, 0);
    assert_ok(txn_sweep_receipts(txn, INT64_MAX, 100, &removed, &more));
    assert_int_equal(removed, 1);
}

static enum stk_error leave_a_savepoint(struct store_txn *txn, void *arg)
{
    assert_ok(txn_savepoint(txn));
    rig_set(txn, arg, "1");
    return STK_OK;
}

static enum stk_error save_and_fail(struct store_txn *txn, void *arg)
{
    (void)leave_a_savepoint(txn, arg);
    return STK_ERR;
}

static enum stk_error get(struct store_txn *txn, void *arg)
{
    snprintf(arg, 16, "%s", rig_get(txn, arg));
    return STK_OK;
}

BOTH_TEST(a_savepoint_ends_with_its_operation)
{
    char a[16] = "a", b[16] = "b", c[16] = "c";
    struct rig_op ops[] = {rig_op(true, leave_a_savepoint, "a"), rig_op(true, save_and_fail, "b"),
                           rig_op(true, leave_a_savepoint, "c")};

    rig_batch(rig, ops, 3);
    assert_ok(ops[0].base.error);
    assert_int_equal(ops[1].base.error, STK_ERR);
    assert_ok(ops[2].base.error);
    assert_ok(rig_read(rig, get, a));
    assert_ok(rig_read(rig, get, b));
    assert_ok(rig_read(rig, get, c));
    assert_string_equal(a, "1");
    assert_string_equal(b, "(none)");
    assert_string_equal(c, "1");
}

static void read_in_savepoint(struct store_txn *txn)
{
    assert_ok(txn_savepoint(txn));
    expect_as_before(txn);
    assert_ok(txn_savepoint_undo(txn));
    assert_ok(txn_savepoint(txn));
    expect_as_before(txn);
}

BOTH_TEST(a_read_may_set_savepoints_too)
{
    rig_in_write(rig, prepare);
    rig_in_read(rig, read_in_savepoint);
    rig_in_read(rig, read_in_savepoint);
}
