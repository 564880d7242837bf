/* SPDX-License-Identifier: Apache-2.0 */
/* Clean-up as the engine does it: it commits only where there is something to do, and what a
 * holder may still have stays. Here, too: how renewals date their row, which it goes by. */
#include "fence/base/list.h"
#include "store/store.h"
#include "store/txn.h"
#include "tests/unit/engine/says.h"

enum {
    MINUTE_MS = 60 * 1000,
    HOUR_MS = 60 * MINUTE_MS,
    DAY_MS = 24 * HOUR_MS,
    KEEP_MS = 60 * 1000,
    SWEEPS_MS = 3000, /* time for some */
};

static int setup(void **state)
{
    *state = world_new(&(struct engine_options){.receipts_keep_ms = KEEP_MS, .forget_ms = HOUR_MS});
    return 0;
}

#define SWEEP_TEST(name) TEST_WITH(setup, world_teardown, struct world *world, name)

static uint64_t commits(const struct world *world)
{
    return store_stats(world->store).commits;
}

/* Time passes in one go. */
static void leap(struct world *world, int64_t ms)
{
    world->now_ms += ms;
    world_pass(world, SWEEPS_MS);
}

struct date {
    struct store_op op;
    int64_t changed_ms;
};

static enum stk_error read_date(struct store_op *op, struct store_txn *txn)
{
    struct date *date = list_entry(op, struct date, op);
    struct resource row;
    struct lease lease;

    assert_int_equal(txn_resource(txn, BYTES_LITERAL("r"), &row), STK_OK);
    assert_int_equal(txn_lease(txn, &row, &lease), STK_OK);
    date->changed_ms = lease.changed_ms;
    return STK_OK;
}

static void date_read(struct store_op *op)
{
    (void)op;
}

/* When the row of r was written last, as it says. */
static int64_t date_of_r(struct world *world)
{
    struct date date = {.op = {.run = read_date, .done = date_read}};

    list_init(&date.op.link);
    assert_int_equal(store_submit(world->store, &date.op), STK_OK);
    world_settle(world);
    return date.changed_ms;
}

SWEEP_TEST(an_engine_that_idles_looks_and_commits_nothing)
{
    assert_begins(world, 1, "ACQUIRE held 3600000", "*2\r\n:1\r\n");
    assert_begins(world, 1, "ACQUIRE r 3600000", "*2\r\n:1\r\n");
    assert_says(world, 1, "FENCED 1 ID x SET r 1", "+OK\r\n");
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    uint64_t before = commits(world);
    long sweeps = world_counter(world, "sweeps");
    world_pass(world, 10 * 1000);
    assert_in_range(world_counter(world, "sweeps") - sweeps, 9, 11);
    assert_int_equal(commits(world), before);
    /* When there is something to do, it is done. */
    leap(world, KEEP_MS);
    assert_int_equal(world_counter(world, "receipts_removed"), 1);
    assert_int_equal(commits(world), before + 1);
}

SWEEP_TEST(a_walk_over_many_rows_commits_only_where_one_goes)
{
    enum { ROWS = 700 };
    char line[64];

    for (int i = 0; i < ROWS; i++) {
        snprintf(line, sizeof line, "ACQUIRE r%d 1000", i);
        assert_begins(world, 1, line, "*2\r\n:1\r\n");
        if (i == ROWS / 2) {
            snprintf(line, sizeof line, "RELEASE r%d 1", i);
            assert_says(world, 1, line, ":0\r\n");
        }
    }
    uint64_t before = commits(world);
    leap(world, 2 * HOUR_MS);
    assert_int_equal(world_counter(world, "resources_forgotten"), 1);
    assert_int_equal(commits(world), before + 1);
    snprintf(line, sizeof line, "LEASE r%d", ROWS / 2);
    assert_says(world, 1, line, "$-1\r\n");
}

SWEEP_TEST(P3_a_daemon_that_was_away_for_long_keeps_the_rows_of_its_leases)
{
    assert_begins(world, 1, "ACQUIRE r 86400000", "*2\r\n:1\r\n");
    assert_begins(world, 1, "ACQUIRE last 1000", "*2\r\n:1\r\n");
    world_restart_engine(world, 90 * (int64_t)DAY_MS);
    world_pass(world, SWEEPS_MS);
    leap(world, 25 * (int64_t)HOUR_MS);
    assert_says(world, 2, "FENCED 1 SET r 1", "+OK\r\n");
    assert_says(world, 2, "FENCED 1 DEL r", ":1\r\n");
    /* Nobody can hold it any more. */
    leap(world, 2 * (int64_t)HOUR_MS);
    assert_int_equal(world_counter(world, "resources_forgotten"), 1);
    assert_begins(world, 2, "FENCED 1 SET r 1", "-UNKNOWN ");
}

SWEEP_TEST(P6_after_the_next_grant_the_receipt_of_a_swept_token_is_not_denied)
{
    assert_begins(world, 1, "ACQUIRE r 1000", "*2\r\n:1\r\n");
    assert_says(world, 1, "FENCED 1 ID x SET r 1", "+OK\r\n");
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    leap(world, KEEP_MS);
    assert_int_equal(world_counter(world, "receipts_removed"), 1);
    assert_begins(world, 1, "ACQUIRE r 1000", "*2\r\n:2\r\n");
    assert_begins(world, 1, "RECEIPT r 1 x", "-EXPIRED ");
    /* Of its successor nothing was removed. */
    assert_says(world, 1, "RELEASE r 2", ":0\r\n");
    assert_says(world, 1, "RECEIPT r 2 x", "*2\r\n:0\r\n$-1\r\n");
}

SWEEP_TEST(a_renewal_dates_its_row_once_an_hour)
{
    assert_begins(world, 1, "ACQUIRE r 86400000", "*2\r\n:1\r\n");
    int64_t granted_ms = date_of_r(world);
    world->now_ms += HOUR_MS - 1;
    assert_begins(world, 1, "RENEW r 1 86400000", ":");
    assert_int_equal(date_of_r(world), granted_ms);
    world->now_ms++;
    assert_begins(world, 1, "RENEW r 1 86400000", ":");
    assert_int_equal(date_of_r(world), granted_ms + HOUR_MS);
}

SWEEP_TEST(a_renewal_dates_its_row_where_its_date_lies_ahead)
{
    assert_begins(world, 1, "ACQUIRE r 86400000", "*2\r\n:1\r\n");
    int64_t granted_ms = date_of_r(world);
    /* As after a reboot: the store's time goes on where it was noted last. */
    world->now_ms -= MINUTE_MS;
    assert_begins(world, 1, "RENEW r 1 86400000", ":");
    assert_int_equal(date_of_r(world), granted_ms - MINUTE_MS);
}
