/* SPDX-License-Identifier: Apache-2.0 */
/* Brief operations that find the SQLite store idle run on the thread that flushes; nothing on it
 * waits for a lock or for what takes long. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "fence/base/mem.h"
#include "tests/unit/deadline.h"
#include "tests/unit/store/rig.h"

static int number; /* that writes count up */

static enum stk_error get_r(struct store_txn *txn, void *arg)
{
    struct resource resource;

    (void)arg;
    return txn_resource(txn, BYTES_LITERAL("r"), &resource);
}

/* Submit it and flush. Is it finished? */
static bool here(struct rig *rig, struct rig_op *op, bool brief)
{
    op->base.brief = brief;
    assert_int_equal(store_submit(rig->store, &op->base), STK_OK);
    if (!store_flush(rig->store)) {
        assert_int_equal(op->done, 0);
        return false;
    }
    store_collect(rig->store);
    assert_int_equal(op->done, 1);
    return true;
}

static bool ran_here(const struct rig_op *op)
{
    return pthread_equal(op->thread, pthread_self());
}

/* Repeat it until it runs on this thread, which may take a while: its thread may not have gone to
 * sleep yet, and where the machine stood still, nothing is tried here for a second. */
static void run_here(struct rig *rig, bool writes, rig_body body)
{
    for (struct deadline deadline = deadline_in(HANG_MS);; deadline_keep(&deadline)) {
        struct rig_op *op = rig_op_new(rig, writes, body, &number);
        bool done = here(rig, op, true);
        if (!done)
            rig_await(rig, op);
        assert_ok(op->base.error);
        assert_int_equal(op->runs, 1);
        assert_true(ran_here(op) == done);
        if (done)
            return;
    }
}

THREADED_TEST(brief_writes_run_here)
{
    for (int i = 0; i < 10; i++)
        run_here(rig, true, rig_count_r);
}

THREADED_TEST(brief_reads_run_here)
{
    for (int i = 0; i < 10; i++)
        run_here(rig, false, get_r);
}

THREADED_TEST(what_may_take_long_never_does)
{
    brief_writes_run_here(rig);
    for (int i = 0; i < 20; i++) {
        struct rig_op *brief = rig_op_new(rig, true, rig_count_r, &number);
        struct rig_op *slow = rig_op_new(rig, true, rig_count_r, &number);
        brief->base.brief = true;
        assert_int_equal(store_submit(rig->store, &brief->base), STK_OK);
        assert_false(here(rig, slow, false));
        rig_await(rig, slow);
        assert_false(ran_here(slow));
        assert_int_equal(brief->done, 1);
    }
}

THREADED_TEST(nobody_waits_here_for_another_program)
{
    sqlite3 *foreign = rig_foreign(rig);
    struct rig_op *op = rig_op_new(rig, true, rig_count_r, &number);

    brief_writes_run_here(rig);
    plain_run(foreign, "BEGIN IMMEDIATE");
    struct deadline deadline = deadline_in(4000); /* the busy timeout is 5 s */
    assert_false(here(rig, op, true));
    deadline_keep(&deadline);
    plain_run(foreign, "ROLLBACK");
    rig_await(rig, op);
    assert_ok(op->base.error);
    assert_int_equal(op->runs, 1);
    sqlite3_close(foreign);
    brief_writes_run_here(rig);
}

static enum stk_error dawdle(struct store_txn *txn, void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL); /* it takes long: the point */
    return rig_count_r(txn, arg);
}

THREADED_TEST(what_took_long_here_is_done_elsewhere_for_a_while)
{
    struct rig_op *next = rig_op_new(rig, true, rig_count_r, &number);

    run_here(rig, true, dawdle);
    struct deadline deadline = deadline_in(900); /* a second later it is tried here again */
    if (here(rig, next, true)) {
        deadline_keep(&deadline);
        fail_msg("the next one ran here, too");
    }
    rig_await(rig, next);
    assert_false(ran_here(next));
    brief_writes_run_here(rig); /* until it is tried again */
}

THREADED_TEST(a_lost_commit_is_lost_here_too)
{
    struct rig_op *op = rig_op_new(rig, true, rig_count_r, &number);
    struct rig_op *later = rig_op_new(rig, true, rig_count_r, &number);

    brief_writes_run_here(rig);
    rig_lose_commit(rig);
    op->base.brief = true;
    assert_int_equal(store_submit(rig->store, &op->base), STK_OK);
    (void)store_flush(rig->store);
    struct deadline deadline = deadline_in(HANG_MS);
    while (!store_lost(rig->store))
        deadline_keep(&deadline);
    store_collect(rig->store);
    assert_int_equal(op->done, 0);
    assert_int_equal(store_submit(rig->store, &later->base), STK_BUSY);
    rig_heal(rig);
}

struct seen {
    char name[8];
    int64_t token;
};

static enum stk_error see(struct store_txn *txn, void *arg)
{
    struct seen *seen = arg;
    struct resource resource;
    enum stk_error error =
        txn_resource(txn, (struct bytes){seen->name, strlen(seen->name)}, &resource);

    seen->token = resource.fence.token;
    return error;
}

/* Repeat a read until it runs on this thread. */
static enum stk_error see_here(struct rig *rig, struct seen *seen)
{
    for (struct deadline deadline = deadline_in(HANG_MS);; deadline_keep(&deadline)) {
        struct rig_op *op = rig_op_new(rig, false, see, seen);
        if (here(rig, op, true)) {
            assert_true(ran_here(op));
            return op->base.error;
        }
        rig_await(rig, op);
    }
}

/* The writer reads what its own connection wrote; others' commits must not be missed by that, nor
 * by its next write. */
THREADED_TEST(what_another_program_wrote_is_read_here)
{
    sqlite3 *foreign = rig_foreign(rig);
    struct seen seen = {.name = "r"};

    for (int token = 1; token <= 5; token++) {
        char sql[96];
        brief_writes_run_here(rig);
        assert_int_equal(see_here(rig, &seen), STK_OK);
        assert_int_equal(seen.token, token - 1);
        snprintf(sql, sizeof sql, "UPDATE stockade_resource SET token = %d WHERE name = x'72'",
                 token);
        plain_run(foreign, sql);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(see_here(rig, &seen), STK_OK);
            assert_int_equal(seen.token, token);
        }
    }
    brief_writes_run_here(rig);
    assert_int_equal(store_stats(rig->store).foreign_commits, 5);
    sqlite3_close(foreign);
}

THREADED_TEST(a_read_that_fails_here_fails_alone)
{
    sqlite3 *foreign = rig_foreign(rig);
    struct seen good = {.name = "r"}, bad = {.name = "bad"};

    brief_writes_run_here(rig);
    plain_run(foreign, "INSERT INTO stockade_resource(name, token, changed_ms)"
                       " VALUES(CAST('bad' AS BLOB), -1, 0)");
    brief_writes_run_here(rig);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(see_here(rig, &bad), STK_STORE);
        assert_int_equal(see_here(rig, &good), STK_OK);
    }
    const char *said = strstr(rig_log(rig), "a read failed");
    assert_non_null(said);
    brief_writes_run_here(rig);
    sqlite3_close(foreign);
}

static enum stk_error set_large(struct store_txn *txn, void *arg)
{
    size_t size = 80 << 20; /* more than the writer's page cache holds */
    char *value = mem_zalloc(size);

    (void)arg;
    enum stk_error error = rig_try_set(txn, "large", (struct bytes){value, size});
    free(value);
    return error;
}

static enum stk_error get_large(struct store_txn *txn, void *arg)
{
    struct resource resource;
    struct bytes value;
    bool found;

    (void)arg;
    enum stk_error error = txn_resource(txn, BYTES_LITERAL("large"), &resource);
    return error == STK_OK ? txn_string(txn, &resource, &found, &value) : error;
}

/* Of which nothing is remembered. */
static enum stk_error get_lease(struct store_txn *txn, void *arg)
{
    struct resource resource;
    struct lease lease;

    (void)arg;
    enum stk_error error = txn_resource(txn, BYTES_LITERAL("r"), &resource);
    return error == STK_OK ? txn_lease(txn, &resource, &lease) : error;
}

/* Where the disk fails, SQLite ends the transaction that all reads of the batch are in. */
THREADED_TEST(a_read_from_a_disk_that_fails_here_fails_alone)
{
    struct rig_op *large = rig_op_new(rig, true, set_large, NULL);

    rig_submit(rig, large);
    (void)store_flush(rig->store);
    rig_await(rig, large);
    assert_ok(large->base.error);
    for (struct deadline deadline = deadline_in(HANG_MS);; deadline_keep(&deadline)) {
        brief_writes_run_here(rig);
        struct rig_op *bad = rig_op_new(rig, false, get_large, NULL);
        struct rig_op *good = rig_op_new(rig, false, get_lease, NULL);
        bad->base.brief = good->base.brief = true;
        fault_vfs_set(rig->vfs, FAULT_READ, "", 1, SQLITE_IOERR_READ);
        assert_ok(store_submit(rig->store, &bad->base));
        assert_ok(store_submit(rig->store, &good->base));
        bool done = store_flush(rig->store);
        rig_await(rig, good);
        fault_vfs_clear(rig->vfs);
        if (bad->base.error == STK_OK) /* another thread's read has failed */
            continue;
        assert_int_equal(bad->base.error, STK_STORE);
        assert_ok(good->base.error);
        if (done && ran_here(bad))
            return;
    }
}
