/* SPDX-License-Identifier: Apache-2.0 */
/* The clean-up of resources that nobody uses, in both stores. P2: the tokens of a resource rise
 * for its whole life, also where its row was removed in between. */
#include "tests/unit/store/rig.h"

enum { HOUR_MS = 3600 * 1000, ALL = 1000 };

/* One sweep: retired for an hour, live for ten. */
struct sweep {
    int64_t now_ms, after;
    size_t max, removed;
    bool more;
};

static enum stk_error run_sweep(struct store_txn *txn, void *arg)
{
    struct sweep *at = arg;
    return txn_sweep_resources(txn, at->now_ms - HOUR_MS, at->now_ms - 10 * HOUR_MS, at->max,
                               &at->after, &at->removed, &at->more);
}

static struct sweep sweep(struct rig *rig, size_t max, int64_t after)
{
    struct sweep result = {.now_ms = rig->now_ms, .max = max, .after = after};

    assert_ok(rig_write(rig, run_sweep, &result));
    return result;
}

static size_t sweep_all(struct rig *rig)
{
    return sweep(rig, ALL, 0).removed;
}

/* Bodies, which are given a name. */

static enum stk_error grant_one(struct store_txn *txn, void *arg)
{
    rig_grant(txn, arg, "o");
    return STK_OK;
}

static enum stk_error release_one(struct store_txn *txn, void *arg)
{
    rig_release(txn, arg);
    return STK_OK;
}

static enum stk_error set_one(struct store_txn *txn, void *arg)
{
    rig_set(txn, arg, "v");
    return STK_OK;
}

static enum stk_error clear_one(struct store_txn *txn, void *arg)
{
    struct resource resource = rig_find(txn, arg);
    return txn_value_clear(txn, &resource);
}

static enum stk_error receipt_one(struct store_txn *txn, void *arg)
{
    rig_receipt_put(txn, arg, "id");
    return STK_OK;
}

static void run(struct rig *rig, rig_body body, const char *name)
{
    assert_ok(rig_write(rig, body, (void *)(uintptr_t)name));
}

struct row {
    const char *name;
    int64_t id, receipts_gone;
    struct fence fence;
};

static enum stk_error read_row(struct store_txn *txn, void *arg)
{
    struct row *row = arg;
    struct resource resource = rig_find(txn, row->name);

    row->id = resource.id;
    row->fence = resource.fence;
    row->receipts_gone = rig_lease(txn, row->name).receipts_gone;
    return STK_OK;
}

/* As the writer sees it, cache and all; the reader has to agree. */
static struct row row_of(struct rig *rig, const char *name)
{
    struct row seen = {.name = name}, read = {.name = name};

    assert_ok(rig_write(rig, read_row, &seen));
    assert_ok(rig_read(rig, read_row, &read));
    assert_int_equal(seen.id, read.id);
    assert_int_equal(seen.fence.token, read.fence.token);
    assert_int_equal(seen.fence.floor, read.fence.floor);
    assert_int_equal(seen.receipts_gone, read.receipts_gone);
    return seen;
}

static bool is_there(struct rig *rig, const char *name)
{
    return row_of(rig, name).id != 0;
}

/* Make a released resource whose row is not the last. */
static void make(struct rig *rig, const char *name)
{
    run(rig, grant_one, name);
    run(rig, release_one, name);
    run(rig, grant_one, "last");
}

BOTH_TEST(a_resource_without_use_goes_after_its_time_and_not_before)
{
    make(rig, "a");
    rig->now_ms += HOUR_MS;
    assert_int_equal(sweep_all(rig), 0);
    rig->now_ms += 1;
    assert_int_equal(sweep_all(rig), 1);
    assert_false(is_there(rig, "a"));
    assert_true(is_there(rig, "last"));
    assert_int_equal(sweep_all(rig), 0);
}

BOTH_TEST(P2_a_removed_resource_goes_on_above_its_last_token)
{
    for (int i = 0; i < 7; i++)
        run(rig, grant_one, "a");
    run(rig, grant_one, "b");
    make(rig, "a");
    int64_t token = row_of(rig, "a").fence.token;
    for (int round = 0; round < 5; round++) {
        char last[16];
        int64_t id = row_of(rig, "a").id;
        rig->now_ms += HOUR_MS + 1;
        assert_int_equal(sweep_all(rig), 1);
        struct row gone = row_of(rig, "a");
        assert_int_equal(gone.id, 0);
        assert_true(gone.fence.floor >= token);
        make(rig, "a");
        snprintf(last, sizeof last, "last %d", round);
        run(rig, grant_one, last);
        struct row back = row_of(rig, "a");
        assert_true(back.fence.token > token);
        assert_true(back.id > id); /* its data must not be another's */
        token = back.fence.token;
    }
    /* The floor is lifted for all. */
    run(rig, grant_one, "b");
    assert_true(row_of(rig, "b").fence.token >= token);
}

static enum stk_error sweep_receipts(struct store_txn *txn, void *arg)
{
    bool more;
    return txn_sweep_receipts(txn, txn_now_ms(txn), ALL, arg, &more);
}

BOTH_TEST(receipts_keep_their_resource_and_its_successor_knows_of_them)
{
    size_t removed;

    make(rig, "a");
    run(rig, grant_one, "a");
    run(rig, receipt_one, "a");
    run(rig, release_one, "a");
    rig->now_ms += HOUR_MS + 1;
    assert_int_equal(sweep_all(rig), 0);
    assert_ok(rig_write(rig, sweep_receipts, &removed));
    assert_int_equal(removed, 1);
    assert_int_equal(row_of(rig, "a").receipts_gone, 2);
    assert_int_equal(sweep_all(rig), 1);
    /* Nobody knows any more whether token 2 had receipts: gone, with or without a row. */
    assert_int_equal(row_of(rig, "a").receipts_gone, 2);
    run(rig, grant_one, "a");
    assert_int_equal(row_of(rig, "a").receipts_gone, 2);
    assert_int_equal(row_of(rig, "a").fence.token, 3);
}

BOTH_TEST(a_resource_with_a_value_stays)
{
    run(rig, set_one, "bare");
    run(rig, set_one, "a");
    make(rig, "a");
    rig->now_ms += 100 * HOUR_MS;
    assert_int_equal(sweep_all(rig), 0);
    run(rig, clear_one, "a");
    run(rig, clear_one, "bare");
    assert_int_equal(sweep_all(rig), 2);
    assert_int_equal(row_of(rig, "bare").fence.floor, 1);
}

BOTH_TEST(a_live_token_keeps_its_resource_until_it_counts_as_abandoned)
{
    run(rig, grant_one, "a");
    run(rig, grant_one, "last");
    rig->now_ms += 10 * HOUR_MS;
    assert_int_equal(sweep_all(rig), 0);
    run(rig, grant_one, "a");
    rig->now_ms += 10 * HOUR_MS;
    assert_int_equal(sweep_all(rig), 0);
    rig->now_ms += 1;
    assert_int_equal(sweep_all(rig), 1);
    assert_false(is_there(rig, "a"));
    assert_int_equal(row_of(rig, "a").fence.floor, 2);
}

BOTH_TEST(an_abandoned_token_with_receipts_is_revoked_and_all_goes_in_the_end)
{
    size_t removed;

    run(rig, grant_one, "a");
    run(rig, receipt_one, "a");
    run(rig, grant_one, "last");
    run(rig, receipt_one, "last");
    rig->now_ms += 10 * HOUR_MS + 1;
    assert_int_equal(sweep_all(rig), 0);
    assert_int_equal(row_of(rig, "a").fence.state, FENCE_REVOKED);
    assert_int_equal(row_of(rig, "last").fence.state, FENCE_REVOKED);
    assert_ok(rig_write(rig, sweep_receipts, &removed));
    assert_int_equal(removed, 0);
    rig->now_ms += HOUR_MS + 1;
    assert_ok(rig_write(rig, sweep_receipts, &removed));
    assert_int_equal(removed, 2);
    assert_int_equal(sweep_all(rig), 1);
    assert_false(is_there(rig, "a"));
    assert_true(is_there(rig, "last"));
}

BOTH_TEST(the_last_row_stays_so_that_its_id_is_not_given_again)
{
    make(rig, "a");
    run(rig, release_one, "last");
    int64_t id = row_of(rig, "last").id;
    rig->now_ms += 100 * HOUR_MS;
    assert_int_equal(sweep_all(rig), 1);
    run(rig, grant_one, "new");
    assert_true(row_of(rig, "new").id > id);
    assert_int_equal(sweep_all(rig), 1);
    assert_false(is_there(rig, "last"));
}

BOTH_TEST(a_sweep_goes_through_the_table_in_bounded_steps)
{
    enum { ROWS = 50, STEP = 7 };
    char name[16];
    size_t removed = 0, steps = 0;
    struct sweep at = {.after = 0, .more = true};

    for (int i = 0; i < ROWS; i++) {
        snprintf(name, sizeof name, "r%d", i);
        run(rig, i % 3 == 0 ? set_one : grant_one, name);
        if (i % 3 == 1)
            run(rig, release_one, name);
    }
    run(rig, grant_one, "last");
    rig->now_ms += HOUR_MS + 1;
    for (; at.more; steps++) {
        int64_t before = at.after;
        at = sweep(rig, STEP, before);
        assert_true(at.removed <= STEP);
        assert_true(at.more ? at.after > before : at.after == 0);
        removed += at.removed;
    }
    assert_int_equal(removed, 17);
    assert_int_equal(steps, (ROWS + 1) / STEP + 2);
    for (int i = 0; i < ROWS; i++) {
        snprintf(name, sizeof name, "r%d", i);
        assert_int_equal(is_there(rig, name), i % 3 != 1);
    }
}

BOTH_TEST(P2_a_sweep_that_is_lost_leaves_rows_and_floor)
{
    struct sweep lost = {.max = ALL};

    make(rig, "a");
    rig->now_ms += HOUR_MS + 1;
    lost.now_ms = rig->now_ms;
    rig_fail_commit(rig);
    assert_int_equal(rig_write(rig, run_sweep, &lost), STK_STORE);
    rig_heal(rig);
    assert_int_equal(lost.removed, 1);
    assert_true(is_there(rig, "a"));
    assert_int_equal(row_of(rig, "elsewhere").fence.floor, 0);
    assert_int_equal(sweep_all(rig), 1);
    assert_int_equal(row_of(rig, "elsewhere").fence.floor, 1);
}
