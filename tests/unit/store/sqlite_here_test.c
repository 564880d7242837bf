/* SPDX-License-Identifier: Apache-2.0 */
/* Brief operations that find the SQLite store idle run on the thread that flushes; nothing on it
 * waits for a lock or for what takes long. */
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/deadline.h"
#include "tests/unit/store/rig.h"
#include "tests/unit/test.h"

enum { DEADLINE_S = 20 };

/* On any thread: no assertions. Another value each time: an unchanged page is not written. */
static enum stk_error set_r(struct store_txn *txn, void *arg)
{
    static int number;
    struct resource resource;
    char value[16];
    int len = snprintf(value, sizeof value, "%d", ++number);

    *(pthread_t *)arg = pthread_self();
    if (txn_resource(txn, BYTES_LITERAL("r"), &resource) != STK_OK ||
        txn_resource_make(txn, BYTES_LITERAL("r"), &resource) != STK_OK)
        return STK_STORE;
    return txn_string_put(txn, &resource, (struct bytes){value, (size_t)len});
}

static enum stk_error get_r(struct store_txn *txn, void *arg)
{
    struct resource resource;

    *(pthread_t *)arg = pthread_self();
    return txn_resource(txn, BYTES_LITERAL("r"), &resource);
}

static void await(struct rig *rig, const struct rig_op *op)
{
    struct pollfd woken = {.fd = rig->woken[0], .events = POLLIN};
    char bytes[64];

    while (op->done == 0) {
        struct deadline deadline = deadline_in(DEADLINE_S * 1000);
        while (poll(&woken, 1, 100) != 1)
            deadline_keep(&deadline);
        assert_true(read(rig->woken[0], bytes, sizeof bytes) > 0);
        store_collect(rig->store);
    }
}

/* Submits it and flushes; is it finished? */
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

static void brief_ones_run_here(bool writes, rig_body body, struct rig *rig)
{
    struct deadline deadline = deadline_in(DEADLINE_S * 1000); /* its thread sleeps by then */
    pthread_t thread;

    for (int here_in_a_row = 0; here_in_a_row < 10;) {
        struct rig_op op = rig_op(writes, body, &thread);
        deadline_keep(&deadline);
        if (here(rig, &op, true)) {
            assert_true(pthread_equal(thread, pthread_self()));
            here_in_a_row++;
        } else { /* its thread had not gone to sleep yet */
            await(rig, &op);
            assert_false(pthread_equal(thread, pthread_self()));
            here_in_a_row = 0;
        }
        assert_int_equal(op.base.error, STK_OK);
        assert_int_equal(op.runs, 1);
    }
}

THREADED_TEST(brief_writes_run_here)
{
    brief_ones_run_here(true, set_r, rig);
}

THREADED_TEST(brief_reads_run_here)
{
    brief_ones_run_here(false, get_r, rig);
}

THREADED_TEST(what_may_take_long_never_does)
{
    pthread_t thread;

    brief_writes_run_here(rig);
    for (int i = 0; i < 20; i++) {
        struct rig_op brief = rig_op(true, set_r, &thread), slow = rig_op(true, set_r, &thread);
        brief.base.brief = true;
        assert_int_equal(store_submit(rig->store, &brief.base), STK_OK);
        assert_false(here(rig, &slow, false));
        await(rig, &slow);
        assert_false(pthread_equal(thread, pthread_self()));
        assert_int_equal(brief.done, 1);
    }
}

THREADED_TEST(nobody_waits_here_for_another_program)
{
    sqlite3 *foreign = rig_foreign(rig);
    pthread_t thread;
    struct rig_op op = rig_op(true, set_r, &thread);

    brief_writes_run_here(rig);
    assert_int_equal(sqlite3_exec(foreign, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    struct deadline deadline = deadline_in(4000); /* the busy timeout is 5 s */
    assert_false(here(rig, &op, true));
    deadline_keep(&deadline);
    assert_int_equal(sqlite3_exec(foreign, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    await(rig, &op);
    assert_int_equal(op.base.error, STK_OK);
    assert_int_equal(op.runs, 1);
    sqlite3_close(foreign);
    brief_writes_run_here(rig);
}

static enum stk_error dawdle(struct store_txn *txn, void *arg)
{
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    return set_r(txn, arg);
}

THREADED_TEST(what_took_long_here_is_done_elsewhere_for_a_while)
{
    pthread_t thread;
    struct rig_op slow = rig_op(true, dawdle, &thread), next = rig_op(true, set_r, &thread);

    brief_writes_run_here(rig);
    assert_true(here(rig, &slow, true));
    assert_false(here(rig, &next, true));
    await(rig, &next);
    assert_false(pthread_equal(thread, pthread_self()));
    brief_writes_run_here(rig); /* until it is tried again */
}

THREADED_TEST(a_lost_commit_is_lost_here_too)
{
    pthread_t thread;
    struct rig_op op = rig_op(true, set_r, &thread), later = rig_op(true, set_r, &thread);

    brief_writes_run_here(rig);
    rig_lose_commit(rig);
    op.base.brief = true;
    assert_int_equal(store_submit(rig->store, &op.base), STK_OK);
    (void)store_flush(rig->store);
    struct deadline deadline = deadline_in(DEADLINE_S * 1000);
    while (!store_lost(rig->store))
        deadline_keep(&deadline);
    store_collect(rig->store);
    assert_int_equal(op.done, 0);
    assert_int_equal(store_submit(rig->store, &later.base), STK_BUSY);
    rig_heal(rig);
}

struct seen {
    char name[8];
    int64_t token;
    pthread_t thread;
};

static enum stk_error see(struct store_txn *txn, void *arg)
{
    struct seen *seen = arg;
    struct resource resource;
    enum stk_error error =
        txn_resource(txn, (struct bytes){seen->name, strlen(seen->name)}, &resource);

    seen->token = resource.fence.token;
    seen->thread = pthread_self();
    return error;
}

/* Read where it is asked for, which takes a while to come true. */
static enum stk_error see_here(struct rig *rig, struct seen *seen)
{
    for (struct deadline deadline = deadline_in(DEADLINE_S * 1000);; deadline_keep(&deadline)) {
        struct rig_op op = rig_op(false, see, seen);
        if (here(rig, &op, true)) {
            assert_true(pthread_equal(seen->thread, pthread_self()));
            return op.base.error;
        }
        await(rig, &op);
    }
}

static void change(sqlite3 *foreign, const char *sql)
{
    assert_int_equal(sqlite3_exec(foreign, sql, NULL, NULL, NULL), SQLITE_OK);
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
        change(foreign, sql);
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
    change(foreign, "INSERT INTO stockade_resource(name, token, changed_ms)"
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
