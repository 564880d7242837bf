/* SPDX-License-Identifier: Apache-2.0 */
/* What store.h promises about operations, batches, queues and failed commits, for both stores. */
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

/* Change everything that can be changed, then fail. */
static enum stk_error set_and_fail(struct store_txn *txn, void *arg)
{
    struct resource resource = rig_grant(txn, "hash", "o");

    (void)arg;
    rig_set(txn, "r", "failed");
    rig_set(txn, "made", "failed");
    rig_grant(txn, "r", "failed");
    assert_ok(txn_field_put(txn, &resource, bytes_of("f"), BYTES_LITERAL("failed")));
    return STK_RANGE;
}

static enum stk_error flush_and_fail(struct store_txn *txn, void *arg)
{
    (void)arg;
    assert_ok(flush_in_steps(txn));
    return STK_ERR;
}

static enum stk_error only_fail(struct store_txn *txn, void *arg)
{
    (void)arg;
    rig_find(txn, "r");
    return STK_STALE;
}

static void nothing_failed_is_left(struct store_txn *txn)
{
    int64_t count;

    assert_int_equal(rig_find(txn, "made").id, 0);
    assert_int_equal(rig_find(txn, "hash").id, 0);
    assert_int_equal(rig_find(txn, "r").fence.token, 0);
    assert_ok(txn_count_keys(txn, &count));
    assert_int_equal(count, 1);
    assert_ok(txn_count_live(txn, &count));
    assert_int_equal(count, 0);
}

BOTH_TEST(an_operation_that_fails_is_undone_alone)
{
    char seen[2][16];
    struct rig_op ops[] = {
        rig_op(true, rig_set_r, "1"),     rig_op(true, set_and_fail, NULL),
        rig_op(true, rig_get_r, seen[0]), rig_op(true, flush_and_fail, NULL),
        rig_op(true, rig_get_r, seen[1]), rig_op(true, only_fail, NULL),
        rig_op(true, rig_set_r, "2"),
    };
    static const enum stk_error errors[] = {STK_OK, STK_RANGE, STK_OK, STK_ERR,
                                            STK_OK, STK_STALE, STK_OK};

    rig_batch(rig, ops, COUNT(ops));
    for (size_t i = 0; i < COUNT(ops); i++) {
        assert_int_equal(ops[i].done, 1);
        assert_int_equal(ops[i].base.error, errors[i]);
    }
    assert_string_equal(seen[0], "1");
    assert_string_equal(seen[1], "1");
    rig_expect_r(rig, "2");
    rig_in_both(rig, nothing_failed_is_left);
}

BOTH_TEST(an_operation_that_fails_alone_is_not_run_twice)
{
    struct rig_op op = rig_op(true, set_and_fail, NULL);

    rig_batch(rig, &op, 1);
    assert_int_equal(op.base.error, STK_RANGE);
    assert_int_equal(op.runs, 1);
}

BOTH_TEST(a_refusal_that_touched_nothing_costs_the_others_no_second_run)
{
    struct rig_op ops[] = {rig_op(true, rig_set_r, "1"), rig_op(true, only_fail, NULL),
                           rig_op(true, rig_set_r, "2")};

    rig_batch(rig, ops, 3);
    assert_int_equal(ops[1].base.error, STK_STALE);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ops[i].runs, 1);
    assert_int_equal(store_stats(rig->store).commits, 1);
}

BOTH_TEST(operations_are_done_in_order_in_bounded_batches)
{
    struct rig_op ops[RIG_QUEUE_MAX];
    int order = 0;

    for (int i = 0; i < RIG_QUEUE_MAX; i++) {
        ops[i] = rig_op(true, rig_set_r, "x");
        ops[i].order = &order;
        rig_submit(rig, &ops[i]);
    }
    assert_int_equal(store_stats(rig->store).writes_queued, RIG_QUEUE_MAX);
    assert_true(store_step(rig->store));
    assert_int_equal(ops[0].done, 0);
    store_collect(rig->store);
    assert_int_equal(order, RIG_BATCH_MAX);
    rig_settle(rig);
    for (int i = 0; i < RIG_QUEUE_MAX; i++)
        assert_true(ops[i].done == 1 && ops[i].place == i);
    struct store_stats stats = store_stats(rig->store);
    assert_int_equal(stats.writes, RIG_QUEUE_MAX);
    assert_int_equal(stats.commits, RIG_QUEUE_MAX / RIG_BATCH_MAX);
    assert_int_equal(stats.batch_writes_max, RIG_BATCH_MAX);
    assert_int_equal(stats.writes_queued, 0);
    assert_false(store_step(rig->store));
}

BOTH_TEST(a_full_queue_refuses_and_takes_again_later)
{
    struct rig_op writes[RIG_QUEUE_MAX + 1], read = rig_op(false, rig_get_r, (char[16]){0});

    for (int i = 0; i <= RIG_QUEUE_MAX; i++)
        writes[i] = rig_op(true, rig_set_r, "x");
    for (int i = 0; i < RIG_QUEUE_MAX; i++)
        rig_submit(rig, &writes[i]);
    assert_int_equal(store_submit(rig->store, &writes[RIG_QUEUE_MAX].base), STK_BUSY);
    rig_submit(rig, &read); /* reads have a queue of their own */
    rig_settle(rig);
    assert_int_equal(writes[RIG_QUEUE_MAX].runs + writes[RIG_QUEUE_MAX].done, 0);
    rig_submit(rig, &writes[RIG_QUEUE_MAX]);
    rig_settle(rig);
    assert_int_equal(writes[RIG_QUEUE_MAX].done, 1);
    assert_int_equal(read.done, 1);
}

BOTH_TEST(a_read_sees_what_was_collected_before_it_was_submitted)
{
    char seen[16], value[16];

    for (int i = 0; i < 20; i++) {
        snprintf(value, sizeof value, "%d", i);
        assert_ok(rig_write(rig, rig_set_r, value));
        assert_ok(rig_read(rig, rig_get_r, seen));
        assert_string_equal(seen, value);
    }
    assert_int_equal(store_stats(rig->store).reads, 20);
}

BOTH_TEST(a_read_that_fails_fails_alone)
{
    char seen[16];
    struct rig_op ops[] = {rig_op(false, only_fail, NULL), rig_op(false, rig_get_r, seen)};

    rig_batch(rig, ops, 2);
    assert_int_equal(ops[0].base.error, STK_STALE);
    assert_ok(ops[1].base.error);
    assert_string_equal(seen, "(none)");
}

BOTH_TEST(a_commit_that_fails_cleanly_fails_its_batch_and_nothing_of_it_is_left)
{
    struct resource resource;

    rig_write_r(rig, "before");
    assert_int_equal(rig_next_token(rig), 1);
    rig_fail_commit(rig);
    struct rig_op ops[] = {rig_op(true, rig_set_r, "lost"), rig_op(true, rig_grant_r, &resource),
                           rig_op(true, only_fail, NULL)};
    rig_batch(rig, ops, 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(ops[i].done == 1 && ops[i].base.error == STK_STORE);
    assert_int_equal(resource.fence.token, 2);
    assert_ok(rig_read(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.token, 1);
    assert_true(store_stats(rig->store).failed_commits > 0);
    assert_false(store_lost(rig->store));
    rig_heal(rig);
    /* What was cached of the lost grant would show here. */
    assert_ok(rig_write(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.token, 1);
    rig_expect_r(rig, "before");
    assert_int_equal(rig_next_token(rig), 2);
}

BOTH_TEST(after_a_commit_of_unknown_outcome_nothing_is_answered)
{
    struct rig_op write = rig_op(true, rig_set_r, "?"), behind = rig_op(true, rig_set_r, "!");

    rig_write_r(rig, "before");
    assert_false(store_lost(rig->store));
    rig_lose_commit(rig);
    rig_submit(rig, &write);
    while (store_step(rig->store))
        store_collect(rig->store);
    assert_true(store_lost(rig->store));
    rig_heal(rig);
    assert_int_equal(store_submit(rig->store, &behind.base), STK_BUSY);
    rig_settle(rig);
    rig_close(rig);
    assert_int_equal(write.done + behind.done + behind.runs, 0);
}

BOTH_TEST(closing_runs_and_delivers_what_is_queued)
{
    char seen[16] = "";
    struct rig_op write = rig_op(true, rig_set_r, "last"), read = rig_op(false, rig_get_r, seen);

    rig_submit(rig, &write);
    rig_submit(rig, &read);
    rig_close(rig);
    assert_true(write.done == 1 && write.base.error == STK_OK);
    assert_true(read.done == 1 && read.base.error == STK_OK);
    assert_string_equal(seen, "last");
}
