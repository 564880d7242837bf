/* SPDX-License-Identifier: Apache-2.0 */
/* Receipts and their clean-up, in both stores. P6: an ID is answered by its first reply as long as
 * its receipt lives, and afterwards the resource says that it may have had one. */
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

enum { DAY_MS = 24 * 3600 * 1000 };

/* One sweep. */
struct sweep {
    int64_t before_ms;
    size_t max, removed;
    bool more;
};

static enum stk_error run_sweep(struct store_txn *txn, void *arg)
{
    struct sweep *at = arg;
    return txn_sweep_receipts(txn, at->before_ms, at->max, &at->removed, &at->more);
}

/* Sweep what ended more than a day ago. */
static struct sweep sweep(struct rig *rig, size_t max)
{
    struct sweep result = {.before_ms = rig->now_ms - DAY_MS, .max = max};

    assert_ok(rig_write(rig, run_sweep, &result));
    assert_true(result.removed <= max);
    return result;
}

/* "r": a grant, and `count` receipts under it. */
static enum stk_error grant_with_receipts(struct store_txn *txn, void *arg)
{
    char id[32];

    int64_t token = rig_grant(txn, "r", "o").fence.token;
    for (int i = 0; i < *(const int *)arg; i++) {
        snprintf(id, sizeof id, "%lld-%d", (long long)token, i);
        rig_receipt_put(txn, "r", id);
    }
    return STK_OK;
}

static void grant(struct rig *rig, int receipts)
{
    assert_ok(rig_write(rig, grant_with_receipts, &receipts));
}

static void release_r(struct store_txn *txn)
{
    rig_release(txn, "r");
}

static enum stk_error flush(struct store_txn *txn, void *arg)
{
    (void)arg;
    return flush_in_steps(txn);
}

struct expectation {
    const char *id;
    bool there;
    int64_t gone;
};

static enum stk_error expect_r(struct store_txn *txn, void *arg)
{
    const struct expectation *expected = arg;

    assert_int_equal(strcmp(rig_receipt(txn, "r", expected->id), "(none)") != 0, expected->there);
    assert_int_equal(rig_lease(txn, "r").receipts_gone, expected->gone);
    return STK_OK;
}

/* Has "r" a receipt of this ID? Up to which token may it have had receipts that are gone? */
static void expect(struct rig *rig, const char *id, bool there, int64_t gone)
{
    assert_ok(rig_read(rig, expect_r, &(struct expectation){id, there, gone}));
}

BOTH_WRITE_TEST(a_receipt_is_read_as_it_was_put_first_for_each_resource)
{
    struct resource a = rig_grant(txn, "a", "o"), b = rig_grant(txn, "b", "o"), none = {0};
    struct receipt put = {.token = 1, .fingerprint = UINT64_MAX, .reply = {"+O\0K\r\n", 6}}, got;
    struct receipt other = {.token = 1, .fingerprint = 7, .resp3 = true, .reply = {"", 0}};
    bool found = true;

    assert_ok(txn_receipt(txn, &none, bytes_of("id"), &found, &got));
    assert_false(found);
    assert_ok(txn_receipt_put(txn, &a, (struct bytes){"i\0d", 3}, &put));
    assert_ok(txn_receipt_put(txn, &b, (struct bytes){"i\0d", 3}, &other));
    assert_ok(txn_receipt(txn, &a, bytes_of("i"), &found, &got));
    assert_false(found);
    /* It replaces nothing. */
    assert_ok(txn_receipt_put(txn, &a, (struct bytes){"i\0d", 3}, &other));
    assert_ok(txn_receipt(txn, &a, (struct bytes){"i\0d", 3}, &found, &got));
    assert_true(found);
    assert_int_equal(got.token, 1);
    assert_true(got.fingerprint == UINT64_MAX);
    assert_false(got.resp3);
    assert_true(bytes_equal(got.reply, put.reply));
    assert_ok(txn_receipt(txn, &b, (struct bytes){"i\0d", 3}, &found, &got));
    assert_true(found && got.resp3 && got.fingerprint == 7 && got.reply.len == 0);
}

BOTH_TEST(receipts_live_as_long_as_their_token_and_a_day)
{
    grant(rig, 3);
    rig->now_ms += 100 * (int64_t)DAY_MS;
    assert_int_equal(sweep(rig, 10).removed, 0);
    expect(rig, "1-0", true, 0);
    rig_in_write(rig, release_r);
    rig->now_ms += DAY_MS;
    assert_int_equal(sweep(rig, 10).removed, 0);
    expect(rig, "1-2", true, 0);
    rig->now_ms += 1;
    struct sweep last = sweep(rig, 10);
    assert_int_equal(last.removed, 3);
    assert_false(last.more);
    expect(rig, "1-2", false, 1);
}

BOTH_TEST(a_larger_grant_a_release_a_revocation_and_a_flush_end_a_token)
{
    grant(rig, 1);
    grant(rig, 1);
    rig_in_write(rig, release_r);
    grant(rig, 1);
    assert_ok(rig_write(rig, flush, NULL));
    grant(rig, 1);
    rig->now_ms += 2 * (int64_t)DAY_MS;
    assert_int_equal(sweep(rig, 10).removed, 3);
    expect(rig, "4-0", true, 3);
    assert_int_equal(sweep(rig, 10).removed, 0);
}

BOTH_TEST(tokens_without_receipts_are_never_said_to_have_had_some)
{
    grant(rig, 1);
    grant(rig, 0);
    grant(rig, 0);
    rig_in_write(rig, release_r);
    rig->now_ms += 2 * (int64_t)DAY_MS;
    assert_int_equal(sweep(rig, 10).removed, 1);
    expect(rig, "1-0", false, 1);
}

static void receipt_of_a_dead_token(struct store_txn *txn)
{
    rig_release(txn, "r");
    rig_receipt_put(txn, "r", "late");
}

BOTH_TEST(a_receipt_put_after_its_token_ended_goes_too)
{
    grant(rig, 0);
    rig_in_write(rig, receipt_of_a_dead_token);
    rig->now_ms += DAY_MS + 1;
    assert_int_equal(sweep(rig, 10).removed, 1);
    expect(rig, "late", false, 1);
}

BOTH_TEST(a_sweep_is_bounded_and_says_so_before_it_takes_the_first)
{
    size_t removed = 0;
    int sweeps = 0;

    grant(rig, 25);
    grant(rig, 3);
    rig_in_write(rig, release_r);
    rig->now_ms += DAY_MS + 1;
    struct sweep first = sweep(rig, 10);
    assert_int_equal(first.removed, 10);
    assert_true(first.more);
    /* Some are still there, but one that is not may have been there. */
    expect(rig, "1-0", false, 1);
    expect(rig, "1-9", true, 1);
    expect(rig, "2-2", true, 1);
    for (struct sweep next = first; next.more; sweeps++) {
        next = sweep(rig, 4);
        removed += next.removed;
    }
    assert_int_equal(removed, 18);
    assert_true(sweeps >= 5 && sweeps <= 8);
    expect(rig, "2-2", false, 2);
}

BOTH_TEST(a_sweep_of_many_tokens_is_bounded_by_them_too)
{
    for (int i = 0; i < 10; i++)
        grant(rig, 1);
    rig->now_ms += DAY_MS + 1;
    struct sweep first = sweep(rig, 4);
    assert_true(first.more && first.removed <= 4);
    while (sweep(rig, 4).more)
        ;
    expect(rig, "9-0", false, 9);
    expect(rig, "10-0", true, 9);
}

BOTH_TEST(P6_a_wall_clock_that_is_set_makes_nothing_old_and_keeps_nothing_longer)
{
    grant(rig, 1);
    rig->wall_ahead_ms = 1000 * (int64_t)DAY_MS;
    grant(rig, 1);
    assert_int_equal(sweep(rig, 10).removed, 0);
    rig->now_ms += DAY_MS;
    assert_int_equal(sweep(rig, 10).removed, 0);
    rig->wall_ahead_ms = -1000 * (int64_t)DAY_MS;
    rig->now_ms += 1;
    assert_int_equal(sweep(rig, 10).removed, 1);
    expect(rig, "1-0", false, 1);
    expect(rig, "2-0", true, 1);
}

static enum stk_error grant_and_fail(struct store_txn *txn, void *arg)
{
    (void)grant_with_receipts(txn, arg);
    (void)grant_with_receipts(txn, arg);
    return STK_ERR;
}

BOTH_TEST(what_is_undone_leaves_neither_receipts_nor_ends)
{
    int count = 2;

    grant(rig, 0);
    assert_int_equal(rig_write(rig, grant_and_fail, &count), STK_ERR);
    expect(rig, "2-0", false, 0);
    grant(rig, 1);
    rig->now_ms += DAY_MS + 1;
    assert_int_equal(sweep(rig, 10).removed, 0);
    expect(rig, "2-0", true, 0);
}

static void end_a_token_of_a_long_name(struct store_txn *txn)
{
    char name[RESOURCE_NAME_MAX + 1] = "";

    memset(name, 'n', RESOURCE_NAME_MAX);
    rig_grant(txn, name, "o");
    rig_receipt_put(txn, name, "id");
    rig_grant(txn, name, "o");
    rig_receipt_put(txn, name, "id 2");
    rig_release(txn, name);
}

BOTH_TEST(tokens_of_names_that_are_not_cached_end_as_well)
{
    rig_in_write(rig, end_a_token_of_a_long_name);
    rig->now_ms += DAY_MS + 1;
    assert_int_equal(sweep(rig, 10).removed, 2);
}

static void remove_one(struct store_txn *txn)
{
    struct resource resource = rig_find(txn, "r");

    assert_ok(txn_receipt_remove(txn, &resource, bytes_of("1-0")));
    assert_string_equal(rig_receipt(txn, "r", "1-0"), "(none)");
    assert_ok(txn_receipt_remove(txn, &resource, bytes_of("1-0"))); /* there is none */
}

static enum stk_error remove_one_in_vain(struct store_txn *txn, void *arg)
{
    (void)arg;
    remove_one(txn);
    return STK_ERR;
}

static void put_it_again(struct store_txn *txn)
{
    assert_string_equal(rig_receipt(txn, "r", "1-0"), "(none)");
    assert_string_equal(rig_receipt(txn, "r", "1-1"), "reply to 1-1");
    rig_receipt_put(txn, "r", "1-0");
    assert_string_equal(rig_receipt(txn, "r", "1-0"), "reply to 1-0");
}

static void find_it(struct store_txn *txn)
{
    assert_string_equal(rig_receipt(txn, "r", "1-0"), "reply to 1-0");
}

BOTH_TEST(a_receipt_that_is_removed_leaves_its_id_free_and_the_others_there)
{
    grant(rig, 2);
    assert_int_equal(rig_write(rig, remove_one_in_vain, NULL), STK_ERR);
    rig_in_read(rig, find_it);
    rig_in_write(rig, remove_one);
    rig_in_write(rig, put_it_again);
}
