/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite store while the disk fails, or another program gets in its way. */
#include <limits.h>

#include "fence/base/mem.h"
#include "store/sqlite/db.h"
#include "store/sqlite/reader.h"
#include "tests/unit/store/rig.h"

TESTS_HAVE_ONE_THREAD

enum { LARGE_BYTES = 24 << 20 }; /* more than the writer's page cache holds */

/* A value of the given size, so large that a statement writes to the WAL before the commit. */
static enum stk_error set_large(struct store_txn *txn, void *arg)
{
    size_t size = *(const size_t *)arg;
    char *value = mem_alloc(size);

    memset(value, 'x', size);
    enum stk_error error = rig_try_set(txn, "large", (struct bytes){value, size});
    free(value);
    return error;
}

static enum stk_error size_of_large(struct store_txn *txn, void *arg)
{
    struct resource resource;
    struct bytes value = {"", 0};
    bool found;

    enum stk_error error = txn_resource(txn, BYTES_LITERAL("large"), &resource);
    if (error == STK_OK)
        error = txn_string(txn, &resource, &found, &value);
    *(size_t *)arg = value.len;
    return error;
}

/* A careless operation, which ignores a failure and returns success. */
static enum stk_error set_large_carelessly(struct store_txn *txn, void *arg)
{
    (void)set_large(txn, arg);
    return STK_OK;
}

static int occurrences(const char *text, const char *what)
{
    int count = 0;
    while ((text = strstr(text, what)) != NULL) {
        count++;
        text += strlen(what);
    }
    return count;
}

/* Write `value` to r in one batch of several operations, and expect all of them to end with
 * `error`. */
static void write_several(struct rig *rig, char *value, enum stk_error error, int runs)
{
    struct rig_op ops[4];

    for (int i = 0; i < 4; i++)
        ops[i] = rig_op(true, rig_set_r, value);
    rig_batch(rig, ops, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ops[i].base.error, error);
        assert_int_equal(ops[i].runs, runs);
    }
}

SQLITE_TEST(a_full_disk_is_logged_once_and_once_when_it_is_over)
{
    write_several(rig, "1", STK_OK, 1);
    rig_fail_commit(rig);
    for (int i = 0; i < 3; i++) {
        write_several(rig, "2", STK_STORE, 1);
        rig_expect_r(rig, "1");
    }
    assert_int_equal(occurrences(rig_log(rig), "error"), 1);
    assert_contains(rig_log(rig), "full");
    rig_heal(rig);
    rig_expect_r(rig, "1"); /* a commit that wrote nothing proves nothing */
    assert_null(strstr(rig_log(rig), "succeed again"));
    write_several(rig, "3", STK_OK, 1);
    write_several(rig, "4", STK_OK, 1);
    rig_expect_r(rig, "4");
    assert_int_equal(occurrences(rig_log(rig), "succeed again"), 1);
    assert_false(store_lost(rig->store));
}

SQLITE_TEST(a_failure_before_the_commit_fails_alone)
{
    size_t large = LARGE_BYTES, size = 1;
    struct rig_op ops[] = {rig_op(true, rig_set_r, "1"), rig_op(true, set_large, &large),
                           rig_op(true, rig_set_r, "2")};

    /* It fails twice: in the batch, and alone. */
    fault_vfs_set(rig->vfs, FAULT_WRITE, "-wal", 2, SQLITE_IOERR_WRITE);
    rig_batch(rig, &ops[1], 1);
    assert_int_equal(ops[1].base.error, STK_STORE);
    assert_int_equal(fault_vfs_counts(rig->vfs).hits, 1);
    rig_batch(rig, ops, 3);
    assert_int_equal(fault_vfs_counts(rig->vfs).hits, 2);
    for (int i = 0; i < 3; i++)
        assert_ok(ops[i].base.error);
    assert_ok(rig_read(rig, size_of_large, &size));
    assert_int_equal(size, LARGE_BYTES);
    rig_expect_r(rig, "2");
}

SQLITE_TEST(an_operation_that_overlooks_a_failure_is_undone_all_the_same)
{
    size_t large = LARGE_BYTES, size = 1;

    fault_vfs_set(rig->vfs, FAULT_WRITE, "-wal", 1, SQLITE_FULL);
    assert_int_equal(rig_write(rig, set_large_carelessly, &large), STK_STORE);
    assert_ok(rig_read(rig, size_of_large, &size));
    assert_int_equal(size, 0);
    assert_ok(rig_write(rig, set_large_carelessly, &large));
}

SQLITE_TEST(a_commit_whose_write_or_sync_failed_is_of_unknown_outcome)
{
    static const enum fault_call places[] = {FAULT_WRITE, FAULT_SYNC};
    static const int codes[] = {SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC};
    char seen[16];

    for (int i = 0; i < 2; i++) {
        rig_write_r(rig, "1");
        fault_vfs_set(rig->vfs, places[i], "-wal", FAULT_FOR_EVER, codes[i]);
        struct rig_op op = rig_op(true, rig_set_r, "2");
        rig_batch(rig, &op, 1);
        assert_int_equal(op.done, 0);
        assert_true(store_lost(rig->store));
        fault_vfs_clear(rig->vfs);
        rig_close(rig);
        assert_int_equal(op.done, 0);
        rig_open(rig, false);
        assert_ok(rig_read(rig, rig_get_r, seen));
        assert_true(strcmp(seen, "1") == 0 || strcmp(seen, "2") == 0);
    }
    assert_contains(rig_log(rig), "unknown");
}

SQLITE_TEST(a_write_lock_held_elsewhere_is_store_and_is_named_in_the_log)
{
    fault_vfs_hurry(rig->vfs);
    write_several(rig, "1", STK_OK, 1);
    sqlite3 *db = rig_foreign(rig);
    plain_run(db, "BEGIN IMMEDIATE");
    write_several(rig, "2", STK_STORE, 0);
    write_several(rig, "2", STK_STORE, 0);
    assert_int_equal(occurrences(rig_log(rig), "another program holds the write lock"), 1);
    plain_run(db, "COMMIT");
    sqlite3_close(db);
    write_several(rig, "3", STK_OK, 1);
    rig_expect_r(rig, "3");
}

SQLITE_TEST(a_file_that_was_moved_away_takes_no_writes)
{
    char away[128];

    write_several(rig, "1", STK_OK, 1);
    snprintf(away, sizeof away, "%s.away", rig->path);
    assert_int_equal(rename(rig->path, away), 0);
    write_several(rig, "2", STK_STORE, 1);
    assert_int_equal(occurrences(rig_log(rig), "moved or deleted"), 1);
    assert_int_equal(rename(away, rig->path), 0);
    write_several(rig, "3", STK_OK, 1);
    rig_expect_r(rig, "3");
}

SQLITE_TEST(a_checkpoint_that_fails_costs_no_write)
{
    size_t megabyte = 1 << 20, size = 0;

    fault_vfs_set(rig->vfs, FAULT_WRITE, ".db", FAULT_FOR_EVER, SQLITE_FULL);
    for (int i = 0; i < 40; i++, megabyte++)
        assert_ok(rig_write(rig, set_large, &megabyte));
    assert_true(fault_vfs_counts(rig->vfs).hits > 0);
    rig_close(rig);
    fault_vfs_clear(rig->vfs);
    rig_open(rig, false);
    assert_ok(rig_read(rig, size_of_large, &size));
    assert_int_equal(size, megabyte - 1);
}

SQLITE_TEST(a_damaged_file_is_store_not_a_crash)
{
    size_t large = 1 << 20, size;
    char rubbish[4096];

    assert_ok(rig_write(rig, set_large, &large));
    rig_write_r(rig, "1");
    rig_close(rig);
    FILE *file = fopen(rig->path, "r+");
    assert_non_null(file);
    memset(rubbish, 0xa5, sizeof rubbish);
    /* Past the tables' first pages, which a store looks at when it opens. */
    for (long at = 20 << 10; at < 900 << 10; at += (long)sizeof rubbish) {
        assert_int_equal(fseek(file, at, SEEK_SET), 0);
        assert_int_equal(fwrite(rubbish, sizeof rubbish, 1, file), 1);
    }
    assert_int_equal(fclose(file), 0);
    rig_open(rig, false);
    assert_int_equal(rig_read(rig, size_of_large, &size), STK_STORE);
    assert_contains(rig_log(rig), "malformed");
    rig_write_r(rig, "2");
    rig_expect_r(rig, "2");
}

/* The authorizer: no COMMIT. */
static int deny_commit(void *context, int action, const char *a, const char *b, const char *file,
                       const char *inside)
{
    (void)context, (void)b, (void)file, (void)inside;
    return action == SQLITE_TRANSACTION && strcmp(a, "COMMIT") == 0 ? SQLITE_DENY : SQLITE_OK;
}

static void expect_read(struct reader *reader, const char *value)
{
    char text[16] = "";
    struct rig_op op = rig_op(false, rig_get_r, text);
    struct list batch;

    list_init(&batch);
    list_append(&batch, &op.base.link);
    reader_run(reader, &batch);
    assert_ok(op.base.error);
    assert_string_equal(text, value);
}

SQLITE_TEST(a_read_transaction_that_will_not_commit_does_not_go_on_seeing_the_past)
{
    struct files files = {.broken = false};
    struct store_reasons reasons;
    struct store_clock clock;
    struct reader reader;
    char why[200];

    rig_write_r(rig, "1");
    sqlite3 *db = db_open(rig->path, DB_READER, why, sizeof why);
    assert_non_null(db);
    reasons_init(&reasons);
    store_clock_init(&clock, NULL);
    assert_true(reader_init(&reader, db, false, &files, &reasons, rig->path, &rig->log, &clock));
    sqlite3_set_authorizer(db, deny_commit, NULL);
    expect_read(&reader, "1");
    rig_write_r(rig, "2");
    expect_read(&reader, "2");
    reader_free(&reader);
    reasons_destroy(&reasons);
    assert_int_equal(db_close(db), SQLITE_OK);
}
