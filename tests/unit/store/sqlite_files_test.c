/* SPDX-License-Identifier: Apache-2.0 */
/* A store whose files are taken away, replaced or cut short while it is open. */
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/deadline.h"
#include "tests/unit/store/rig.h"

static const char *name_of(const struct rig *rig, const char *suffix)
{
    static char name[128];
    snprintf(name, sizeof name, "%s%s", rig->path, suffix);
    return name;
}

static bool is_there(const struct rig *rig, const char *suffix)
{
    struct stat status;
    return stat(name_of(rig, suffix), &status) == 0;
}

static void remove_file(const struct rig *rig, const char *suffix)
{
    assert_int_equal(unlink(name_of(rig, suffix)), 0);
}

/* Put an empty file in the place of the store's. */
static void replace_file(const struct rig *rig, const char *suffix)
{
    char other[128];
    snprintf(other, sizeof other, "%s.other", rig->path);
    FILE *file = fopen(other, "w");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(rename(other, name_of(rig, suffix)), 0);
}

static struct rig_op write_r(struct rig *rig, char *value)
{
    struct rig_op op = rig_op(true, rig_set_r, value);
    rig_batch(rig, &op, 1);
    return op;
}

/* Expect a write to be refused with a reason that has `named` in it. */
static void expect_refusal(struct rig *rig, const char *named)
{
    struct rig_op op = write_r(rig, "refused");
    assert_int_equal(op.done, 1);
    assert_int_equal(op.base.error, STK_STORE);
    assert_non_null(op.base.why);
    assert_contains(op.base.why, named);
    struct store_stats stats = store_stats(rig->store);
    assert_int_equal(stats.state, STORE_STOPPED);
    assert_string_equal(stats.why, op.base.why);
    assert_non_null(strstr(rig_log(rig), op.base.why));
    assert_false(store_lost(rig->store));
}

/* Expect a value in the main file, without the log, as somebody finds it after `kill -9`. */
static void expect_in_main_file(const struct rig *rig, const char *value)
{
    char copy[128], bytes[4096];
    size_t got;
    snprintf(copy, sizeof copy, "%s.copy", rig->path);
    FILE *from = fopen(rig->path, "r"), *to = fopen(copy, "w");
    assert_true(from != NULL && to != NULL);
    while ((got = fread(bytes, 1, sizeof bytes, from)) > 0)
        assert_int_equal(fwrite(bytes, 1, got, to), got);
    assert_int_equal(fclose(from) | fclose(to), 0);
    sqlite3 *db = plain_open(copy);
    char *rows = plain_rows(db, "SELECT value FROM stockade_string");
    assert_string_equal(rows, value);
    free(rows);
    sqlite3_close(db);
}

/* Expect that the next store to open the file finds what was acknowledged. */
static void expect_after_reopening(struct rig *rig, const char *value)
{
    rig_reopen(rig);
    rig_expect_r(rig, value);
    rig_write_r(rig, "afterwards");
    assert_int_equal(store_stats(rig->store).state, STORE_FINE);
}

SQLITE_TEST(a_log_that_was_deleted_takes_no_writes_and_what_it_held_is_saved_at_once)
{
    char seen[16];

    rig_write_r(rig, "1");
    remove_file(rig, "-wal");
    expect_refusal(rig, "store.db-wal");
    expect_in_main_file(rig, "1");
    assert_int_equal(rig_read(rig, rig_get_r, seen), STK_STORE);
    expect_refusal(rig, "saved");
    expect_after_reopening(rig, "1");
}

SQLITE_TEST(a_log_that_was_replaced_or_deleted_with_the_shared_memory_takes_no_writes)
{
    for (int i = 0; i < 2; i++) {
        rig_write_r(rig, "1");
        if (i == 0) {
            replace_file(rig, "-wal"); /* by an empty one, into which nobody has written */
        } else {
            remove_file(rig, "-wal");
            remove_file(rig, "-shm");
        }
        expect_refusal(rig, "store.db-wal");
        expect_in_main_file(rig, "1");
        expect_after_reopening(rig, "1");
    }
}

SQLITE_TEST(a_shared_memory_that_was_deleted_takes_no_writes_and_the_log_stays)
{
    rig_write_r(rig, "1");
    remove_file(rig, "-shm");
    expect_refusal(rig, "store.db-shm");
    rig_close(rig);
    assert_true(is_there(rig, "-wal")); /* another program may have begun to use it */
    expect_after_reopening(rig, "1");
}

SQLITE_TEST(a_file_that_was_cut_to_nothing_takes_no_writes_and_its_log_stays)
{
    rig_write_r(rig, "1");
    assert_int_equal(truncate(rig->path, 0), 0);
    expect_refusal(rig, "store.db was cut");
    rig_close(rig);
    assert_true(is_there(rig, "-wal"));
    /* SQLite would delete the log, and begin anew. */
    assert_contains(rig_refusal(rig), "store.db-wal");
    assert_true(is_there(rig, "-wal"));
}

SQLITE_TEST(a_file_that_was_cut_in_half_takes_no_writes)
{
    struct stat status;

    rig_sql(rig, "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(zeroblob(100000))");
    rig_sql(rig, "PRAGMA wal_checkpoint");
    rig_write_r(rig, "1");
    assert_int_equal(stat(rig->path, &status), 0);
    assert_int_equal(truncate(rig->path, status.st_size / 2), 0);
    expect_refusal(rig, "store.db was cut");
}

SQLITE_TEST(another_program_may_make_the_file_smaller)
{
    rig_sql(rig, "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(zeroblob(100000))");
    rig_sql(rig, "PRAGMA wal_checkpoint");
    rig_write_r(rig, "1");
    rig_sql(rig, "DROP TABLE theirs; VACUUM");
    rig_sql(rig, "PRAGMA wal_checkpoint(TRUNCATE)");
    rig_write_r(rig, "2");
    rig_sql(rig, "PRAGMA wal_checkpoint(TRUNCATE)");
    rig_write_r(rig, "3");
}

SQLITE_TEST(a_file_that_was_moved_takes_no_writes_until_it_is_back_and_is_whole)
{
    char away[128], seen[16];

    rig_write_r(rig, "1");
    snprintf(away, sizeof away, "%s.away", rig->path);
    assert_int_equal(rename(rig->path, away), 0);
    expect_refusal(rig, "moved or deleted");
    assert_null(strstr(rig_log(rig), "restart to go on"));
    assert_ok(rig_read(rig, rig_get_r, seen)); /* nobody can have changed it */
    assert_string_equal(seen, "1");
    assert_int_equal(rename(away, rig->path), 0);
    expect_in_main_file(rig, "1");
    rig_write_r(rig, "2");
    assert_int_equal(store_stats(rig->store).state, STORE_FINE);
}

SQLITE_TEST(a_file_that_was_deleted_leaves_its_log_so_that_nobody_begins_anew)
{
    rig_write_r(rig, "1");
    remove_file(rig, "");
    expect_refusal(rig, "moved or deleted");
    rig_close(rig);
    assert_true(is_there(rig, "-wal"));
    assert_contains(rig_refusal(rig), "store.db-wal");
    assert_false(is_there(rig, ""));
    assert_true(is_there(rig, "-wal"));
    remove_file(rig, "-wal");
    rig_open(rig, false); /* as a person has decided */
}

SQLITE_TEST(a_folder_that_was_moved_takes_no_writes_and_loses_nothing)
{
    char away[128];

    rig_write_r(rig, "1");
    snprintf(away, sizeof away, "%s.away", rig->folder);
    assert_int_equal(rename(rig->folder, away), 0);
    struct rig_op op = write_r(rig, "refused");
    assert_int_equal(op.base.error, STK_STORE);
    rig_close(rig);
    assert_int_equal(rename(away, rig->folder), 0);
    assert_true(is_there(rig, "-wal"));
    rig_open(rig, false);
    rig_expect_r(rig, "1");
}

struct meddling {
    const struct rig *rig;
    const char *suffix;
};

static enum stk_error set_r_and_remove(struct store_txn *txn, void *arg)
{
    const struct meddling *meddling = arg;
    rig_set(txn, "r", "2");
    if (is_there(meddling->rig, meddling->suffix))
        remove_file(meddling->rig, meddling->suffix);
    return STK_OK;
}

/* Before its commit is written: what is refused leaves no trace. */
SQLITE_TEST(files_that_go_within_a_batch_take_nothing_of_it)
{
    static const char *const suffixes[] = {"-wal", "-shm", ""};
    for (int i = 0; i < 3; i++) {
        rig_write_r(rig, "1");
        struct meddling meddling = {rig, suffixes[i]};
        assert_int_equal(rig_write(rig, set_r_and_remove, &meddling), STK_STORE);
        assert_false(store_lost(rig->store));
        if (i < 2)
            expect_after_reopening(rig, "1");
    }
}

static void on_sync_remove(void *context)
{
    const struct meddling *meddling = context;
    if (is_there(meddling->rig, meddling->suffix))
        remove_file(meddling->rig, meddling->suffix);
}

/* It has reached the disk, and nobody can say whether it will be found there. */
SQLITE_TEST(a_commit_whose_files_go_while_it_is_synced_is_not_acknowledged)
{
    static const char *const suffixes[] = {"-wal", "-shm"};
    for (int i = 0; i < 2; i++) {
        rig_write_r(rig, "1");
        struct meddling meddling = {rig, suffixes[i]};
        fault_vfs_on_sync(rig->vfs, "-wal", on_sync_remove, &meddling);
        struct rig_op op = write_r(rig, "2");
        fault_vfs_on_sync(rig->vfs, NULL, NULL, NULL);
        assert_int_equal(op.done, 0);
        assert_true(store_lost(rig->store));
        if (i == 0)
            expect_in_main_file(rig, "2"); /* saved all the same: it and what was before it */
        expect_after_reopening(rig, "2");
    }
}

SQLITE_TEST(an_idle_store_notices_by_itself_and_saves_what_was_acknowledged)
{
    rig_close(rig);
    rig_open(rig, true);
    struct rig_op op = rig_op(true, rig_set_r, "1");
    rig_submit(rig, &op);
    rig_await(rig, &op);
    assert_ok(op.base.error);
    remove_file(rig, "-wal");
    struct deadline deadline = deadline_in(HANG_MS);
    while (strstr(store_stats(rig->store).why, "is saved") == NULL)
        deadline_keep(&deadline);
    assert_int_equal(store_stats(rig->store).state, STORE_STOPPED);
    expect_in_main_file(rig, "1");
}
