/* SPDX-License-Identifier: Apache-2.0 */
/* The store's time: whatever clocks do, nothing is taken for older than it is. */
#include "store/clock.h"
#include "store/sqlite/transaction.h"
#include "tests/unit/store/rig.h"

static const int64_t HOUR_MS = 3600000, DAY_MS = 86400000, YEAR_MS = 400 * INT64_C(86400000);

static enum stk_error read_time(struct store_txn *txn, void *arg)
{
    *(int64_t *)arg = txn_now_ms(txn);
    return STK_OK;
}

/* As the writer tells it; the reader has to agree. */
static int64_t store_time(struct rig *rig)
{
    int64_t writer_ms = 0, reader_ms = 0;

    assert_ok(rig_write(rig, read_time, &writer_ms));
    assert_ok(rig_read(rig, read_time, &reader_ms));
    assert_int_equal(writer_ms, reader_ms);
    return writer_ms;
}

static enum stk_error grant(struct store_txn *txn, void *arg)
{
    rig_grant(txn, arg, "o");
    return STK_OK;
}

/* A write that stores a date. */
static void write_something(struct rig *rig)
{
    assert_ok(rig_write(rig, grant, "r"));
}

static enum stk_error read_date(struct store_txn *txn, void *arg)
{
    *(int64_t *)arg = rig_lease(txn, "r").changed_ms;
    return STK_OK;
}

/* Time passes, for all clocks. */
static void pass(struct rig *rig, int64_t ms)
{
    rig->now_ms += ms;
}

/* Let time pass without a process. The wall clock is so far ahead then. */
static void close_for(struct rig *rig, int64_t ms, int64_t wall_ahead_ms)
{
    rig_close(rig);
    pass(rig, ms);
    rig->wall_ahead_ms = wall_ahead_ms;
    rig_open(rig, false);
}

/* Close the store, and open it after a reboot that has set the wall clock so far ahead. */
static void reboot(struct rig *rig, const char *boot, int64_t set_ahead_ms)
{
    rig_close(rig);
    rig->wall_ahead_ms += rig->now_ms - 5 + set_ahead_ms;
    rig->now_ms = 5;
    rig->boot = boot;
    rig_open(rig, false);
}

BOTH_TEST(it_begins_at_the_wall_clocks_and_goes_on_by_what_is_measured)
{
    int64_t begin_ms = store_time(rig);

    assert_int_equal(begin_ms, rig->now_ms);
    rig->wall_ahead_ms = YEAR_MS;
    assert_int_equal(store_time(rig), begin_ms);
    pass(rig, 1234);
    rig->wall_ahead_ms = -YEAR_MS;
    assert_int_equal(store_time(rig), begin_ms + 1234);
}

SQLITE_TEST(time_without_a_process_counts_where_both_clocks_say_that_it_passed)
{
    int64_t begin_ms = store_time(rig);

    close_for(rig, DAY_MS, rig->wall_ahead_ms);
    assert_int_equal(store_time(rig), begin_ms + DAY_MS);
    /* The wall clock was set ahead: what was measured counts. */
    close_for(rig, HOUR_MS, YEAR_MS);
    assert_int_equal(store_time(rig), begin_ms + DAY_MS + HOUR_MS);
}

SQLITE_TEST(of_two_clocks_that_disagree_at_a_start_the_one_that_says_less_is_believed)
{
    int64_t begin_ms = store_time(rig);

    close_for(rig, DAY_MS, -(DAY_MS - HOUR_MS));
    assert_int_equal(store_time(rig), begin_ms + HOUR_MS);
    /* From here on they agree again. */
    close_for(rig, HOUR_MS, rig->wall_ahead_ms);
    assert_int_equal(store_time(rig), begin_ms + 2 * HOUR_MS);
    /* It does not go back behind what it had reached. */
    rig_close(rig);
    rig->wall_ahead_ms = -YEAR_MS;
    rig_open(rig, false);
    assert_int_equal(store_time(rig), begin_ms + 2 * HOUR_MS);
}

SQLITE_TEST(a_second_between_the_clocks_is_no_disagreement)
{
    int64_t begin_ms = store_time(rig);

    close_for(rig, DAY_MS, -1000);
    assert_int_equal(store_time(rig), begin_ms + DAY_MS);
}

SQLITE_TEST(after_a_reboot_it_goes_on_where_it_was_noted_last)
{
    int64_t begin_ms = store_time(rig), changed_ms;

    pass(rig, NOTED_EVERY_MS);
    write_something(rig);
    pass(rig, NOTED_EVERY_MS - 1);
    write_something(rig);
    assert_int_equal(store_time(rig), begin_ms + 2 * NOTED_EVERY_MS - 1);
    reboot(rig, "second boot", YEAR_MS);
    assert_int_equal(store_time(rig), begin_ms + NOTED_EVERY_MS);
    assert_ok(rig_read(rig, read_date, &changed_ms));
    assert_true(changed_ms < store_time(rig) + NOTED_EVERY_MS);
    pass(rig, HOUR_MS);
    assert_int_equal(store_time(rig), begin_ms + NOTED_EVERY_MS + HOUR_MS);
    /* That was in this boot, so it is as exact as before. */
    close_for(rig, HOUR_MS, rig->wall_ahead_ms);
    assert_int_equal(store_time(rig), begin_ms + NOTED_EVERY_MS + 2 * HOUR_MS);
}

SQLITE_TEST(a_machine_that_runs_for_longer_counts_for_nothing_either)
{
    int64_t begin_ms = store_time(rig);

    rig_close(rig);
    rig->boot = "another machine's";
    pass(rig, YEAR_MS);
    rig_open(rig, false);
    assert_int_equal(store_time(rig), begin_ms);
}

/* As in a container that was moved with its clocks. */
SQLITE_TEST(a_count_that_went_back_within_a_boot_counts_for_nothing)
{
    int64_t begin_ms = store_time(rig);

    reboot(rig, rig->boot, YEAR_MS);
    assert_int_equal(store_time(rig), begin_ms);
    pass(rig, HOUR_MS);
    assert_int_equal(store_time(rig), begin_ms + HOUR_MS);
}

SQLITE_TEST(where_no_boot_is_known_each_start_counts_as_one)
{
    int64_t begin_ms = store_time(rig);

    rig_close(rig);
    rig->boot = "";
    rig_open(rig, false);
    close_for(rig, DAY_MS, rig->wall_ahead_ms);
    assert_int_equal(store_time(rig), begin_ms);
}

SQLITE_TEST(a_close_in_order_notes_the_time)
{
    int64_t begin_ms = store_time(rig);

    pass(rig, 30 * DAY_MS);
    reboot(rig, "second boot", 0);
    assert_int_equal(store_time(rig), begin_ms + 30 * DAY_MS);
}

SQLITE_TEST(what_writes_nothing_notes_nothing)
{
    int64_t begin_ms = store_time(rig);

    pass(rig, DAY_MS);
    (void)store_time(rig);
    assert_int_equal(rig_number(rig, "SELECT reached_ms FROM stockade_clock"), begin_ms);
    write_something(rig);
    assert_int_equal(rig_number(rig, "SELECT reached_ms FROM stockade_clock"), begin_ms + DAY_MS);
}

SQLITE_TEST(a_note_that_is_lost_with_its_commit_is_made_with_the_next_one)
{
    int64_t begin_ms = store_time(rig);

    pass(rig, NOTED_EVERY_MS);
    rig_fail_commit(rig);
    assert_int_equal(rig_write(rig, grant, "r"), STK_STORE);
    rig_heal(rig);
    write_something(rig);
    assert_int_equal(rig_number(rig, "SELECT reached_ms FROM stockade_clock"),
                     begin_ms + NOTED_EVERY_MS);
}

static int fail_once(void *db)
{
    sqlite3_progress_handler(db, 0, NULL, NULL);
    return 1;
}

/* What comes behind the operation fails: the note of the time. */
static enum stk_error grant_and_fail(struct store_txn *txn, void *arg)
{
    sqlite3 *db = ((struct transaction *)txn)->db;
    enum stk_error error = grant(txn, arg);

    sqlite3_progress_handler(db, 1, fail_once, db);
    return error;
}

SQLITE_TEST(a_write_beside_which_the_time_cannot_be_noted_is_not_acknowledged)
{
    write_something(rig);
    pass(rig, NOTED_EVERY_MS);
    assert_int_equal(rig_write(rig, grant_and_fail, "r"), STK_STORE);
    assert_int_equal(rig_write(rig, grant_and_fail, "s"), STK_STORE);
    assert_int_equal(rig_number(rig, "SELECT sum(token) FROM stockade_resource"), 1);
    write_something(rig);
}

SQLITE_TEST(a_close_that_cannot_note_the_time_closes_all_the_same)
{
    (void)store_time(rig);
    pass(rig, DAY_MS);
    rig_fail_commit(rig);
    rig_close(rig);
    rig_heal(rig);
    rig_open(rig, false);
    rig_lose_commit(rig);
    pass(rig, DAY_MS);
    rig_close(rig);
    rig_heal(rig);
    rig_open(rig, false);
    write_something(rig);
}

SQLITE_TEST(two_processes_on_a_file_have_the_same_time)
{
    struct rig other = *rig;
    int64_t begin_ms = store_time(rig);

    pass(rig, HOUR_MS);
    other.clock.context = rig;
    other.store = NULL;
    rig->wall_ahead_ms = YEAR_MS;
    rig_open(&other, false);
    assert_int_equal(store_time(&other), begin_ms + HOUR_MS);
    assert_int_equal(store_time(rig), begin_ms + HOUR_MS);
    rig_close(&other);
    /* Also where the second one does not believe the first one's clock. */
    pass(rig, HOUR_MS);
    rig->wall_ahead_ms = -YEAR_MS;
    rig_open(&other, false);
    int64_t time_ms = store_time(&other);
    assert_true(time_ms >= begin_ms && time_ms < begin_ms + 2 * HOUR_MS);
    assert_int_equal(store_time(rig), time_ms);
    pass(rig, HOUR_MS);
    assert_int_equal(store_time(rig), time_ms + HOUR_MS);
    assert_int_equal(store_time(&other), time_ms + HOUR_MS);
    rig_close(&other);
}

SQLITE_TEST(a_file_that_another_machine_has_put_in_its_place_goes_on_from_there)
{
    (void)store_time(rig);
    rig_sql(rig, "UPDATE stockade_clock SET boot = 'elsewhere', offset_ms = 1,"
                 " reached_ms = 1600000000000, start_ms = 1500000000000");
    assert_int_equal(store_time(rig), INT64_C(1600000000000));
    pass(rig, HOUR_MS);
    assert_int_equal(store_time(rig), INT64_C(1600000000000) + HOUR_MS);
}

SQLITE_TEST(a_first_start_without_a_right_clock_is_one_like_any_other)
{
    struct rig other = *rig;

    snprintf(other.path, sizeof other.path, "%s/other.db", rig->folder);
    other.clock.context = rig;
    rig->wall_ahead_ms = -rig->now_ms;
    rig_open(&other, false);
    int64_t begin_ms = store_time(&other);
    rig->wall_ahead_ms = 0;
    pass(rig, HOUR_MS);
    rig_close(&other);
    rig_open(&other, false);
    assert_int_equal(store_time(&other), begin_ms + HOUR_MS);
    rig_close(&other);
}

SQLITE_TEST(a_file_without_its_clock_is_refused)
{
    rig_close(rig);
    rig_sql(rig, "DELETE FROM stockade_clock");
    assert_contains(rig_refusal(rig), "impossible values");
}
