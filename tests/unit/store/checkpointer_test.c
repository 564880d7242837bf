/* SPDX-License-Identifier: Apache-2.0 */
/* A long WAL is copied back while the writer goes on. Only where it grows too long does the writer
 * wait. */
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/sqlite/checkpointer.h"
#include "store/sqlite/db.h"
#include "tests/unit/deadline.h"
#include "tests/unit/store/rig.h"

enum {
    PAGES_MAX = 100,
    FACTOR = 4, /* so much longer it may get while it is copied */
    STUCK_MS = 300,
};

static int open_with(void **state, int pages_max)
{
    rig_sqlite(state);
    struct rig *rig = *state;
    rig_close(rig);
    rig->checkpoint_pages = pages_max;
    rig_open(rig, true);
    return 0;
}

static int open_rig(void **state)
{
    return open_with(state, PAGES_MAX);
}

static int open_default(void **state)
{
    return open_with(state, 0);
}

static int end_rig(void **state)
{
    fault_vfs_hold(((struct rig *)*state)->vfs, NULL);
    return rig_end(state);
}

#define RIG_TEST(name)         TEST_WITH(open_rig, end_rig, struct rig *rig, name)
#define DEFAULT_RIG_TEST(name) TEST_WITH(open_default, end_rig, struct rig *rig, name)

static int64_t now_ms(void)
{
    return clock_now_ms(&clock_monotonic);
}

static bool done_within(struct rig *rig, const struct rig_op *op, int ms)
{
    int64_t end_ms = now_ms() + ms;

    for (; op->done == 0; store_collect(rig->store))
        if (now_ms() > end_ms)
            return false;
    assert_ok(op->base.error);
    return true;
}

static void begin_write(struct rig *rig, struct rig_op *op, int *number, bool brief)
{
    *op = rig_op(true, rig_count_r, number);
    op->base.brief = brief;
    assert_int_equal(store_submit(rig->store, &op->base), STK_OK);
    (void)store_flush(rig->store);
}

static void write_one(struct rig *rig, int *number, bool brief)
{
    struct rig_op op;

    begin_write(rig, &op, number, brief);
    rig_await(rig, &op);
    assert_ok(op.base.error);
}

/* A write adds one frame. A pass that begins while the writer changes the wal-index's header ends
 * at once: SQLite says BUSY. The next one begins some frames later, so write until one is held; but
 * only so many, for a log that is too long waits for the copy. */
static void write_until_it_copies(struct rig *rig, int *number)
{
    struct deadline deadline = deadline_in(HANG_MS);

    fault_vfs_hold(rig->vfs, ".db");
    while (!fault_vfs_holds(rig->vfs)) {
        deadline_keep(&deadline);
        if (*number < 2 * PAGES_MAX)
            write_one(rig, number, false);
        else
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* between two looks */
    }
    assert_true(*number > PAGES_MAX / 2);
}

static long long size_of(const struct rig *rig, const char *suffix)
{
    char path[128];
    struct stat file;

    snprintf(path, sizeof path, "%s%s", rig->path, suffix);
    assert_int_equal(stat(path, &file), 0);
    return file.st_size;
}

RIG_TEST(commits_go_on_while_the_log_is_copied_back)
{
    int number = 0;

    write_until_it_copies(rig, &number);
    for (int i = 0; i < PAGES_MAX; i++)
        write_one(rig, &number, i % 2 == 0);
    assert_true(fault_vfs_holds(rig->vfs));
}

RIG_TEST(a_log_that_outgrows_its_copying_holds_up_the_writer)
{
    struct rig_op op;
    int number = 0, more = 0;

    write_until_it_copies(rig, &number);
    do
        begin_write(rig, &op, &number, false);
    while (done_within(rig, &op, STUCK_MS) && ++more < PAGES_MAX * FACTOR);
    assert_true(more < PAGES_MAX * FACTOR);
    fault_vfs_hold(rig->vfs, NULL);
    rig_await(rig, &op);
    assert_ok(op.base.error);
}

RIG_TEST(the_log_is_begun_anew_after_each_copying)
{
    int number = 0;

    for (int i = 0; i < 50 * PAGES_MAX; i++)
        write_one(rig, &number, true);
    assert_true(size_of(rig, "-wal") < 2 * FACTOR * PAGES_MAX * 1024);
    assert_null(strstr(rig_log(rig), "error"));
}

RIG_TEST(a_copy_that_fails_is_logged_once_and_tried_again)
{
    int number = 0;

    fault_vfs_set(rig->vfs, FAULT_WRITE, ".db", 5, SQLITE_IOERR_WRITE);
    for (int i = 0; fault_vfs_counts(rig->vfs).hits < 3 && i < 100 * PAGES_MAX; i++)
        write_one(rig, &number, true);
    fault_vfs_clear(rig->vfs);
    assert_contains(rig_log(rig), "cannot copy the write-ahead log into the file");
    long long before = size_of(rig, "-wal");
    for (int i = 0; i < 10 * PAGES_MAX; i++)
        write_one(rig, &number, true);
    assert_true(size_of(rig, "-wal") <= before + FACTOR * PAGES_MAX * 1024);
    const char *first = strstr(rig_log(rig), "cannot copy");
    if (strstr(first + 1, "cannot copy") != NULL)
        fail_msg("logged twice:\n%s", first);
}

RIG_TEST(a_sync_that_fails_is_the_end)
{
    struct rig_op op;
    int number = 0;

    fault_vfs_set(rig->vfs, FAULT_SYNC, ".db", 1, SQLITE_IOERR_FSYNC);
    begin_write(rig, &op, &number, false);
    struct deadline deadline = deadline_in(HANG_MS);
    while (!store_lost(rig->store)) { /* at the next write, at the latest */
        deadline_keep(&deadline);
        if (done_within(rig, &op, 0))
            begin_write(rig, &op, &number, false);
    }
    rig_close(rig);
    assert_true(size_of(rig, "-wal") >
                PAGES_MAX * 1024); /* the next store finds everything there */
}

/* Whoever closes last copies the log back and deletes it, but not where a sync has just failed. */
RIG_TEST(a_log_whose_copy_may_be_lost_outlives_the_store)
{
    int number = 0;

    fault_vfs_set(rig->vfs, FAULT_SYNC, ".db", 1, SQLITE_IOERR_FSYNC);
    write_until_it_copies(rig, &number);
    assert_int_equal(fault_vfs_counts(rig->vfs).hits, 1); /* which its caller hears of now */
    fault_vfs_hold(rig->vfs, NULL);
    rig_close(rig);
    assert_true(size_of(rig, "-wal") > PAGES_MAX * 1024);
}

/* Close the store, and open another writer on its file. */
static sqlite3 *open_writer(struct rig *rig)
{
    rig_close(rig);
    sqlite3 *writer = rig_foreign(rig);
    plain_run(writer, "CREATE TABLE few(x)");
    return writer;
}

static struct files files;

/* Start a checkpointer without a thread. */
static void start(struct checkpointer *checkpointer, const struct rig *rig, int pages_max)
{
    char why[128];
    sqlite3 *db = db_open(rig->path, DB_CHECKPOINTER, why, sizeof why);

    assert_non_null(db);
    plain_run(db, "PRAGMA user_version");
    files_open(&files, db, rig->path, &rig->log);
    assert_true(
        checkpointer_start(checkpointer, db, &files, pages_max, false, rig->path, &rig->log));
}

static void stop(struct checkpointer *checkpointer)
{
    checkpointer_stop(checkpointer);
    files_close(&files);
}

/* Tell it of a commit, after which the log has so many frames and repeats a page so often. Does it
 * copy? */
static bool copies_at(struct checkpointer *checkpointer, int frames, int repeats)
{
    checkpointer_on_commit(checkpointer, frames, repeats);
    return checkpointer_step(checkpointer);
}

/* A pass copies what was there when it began. Where the writer has gone on since, the rest is too
 * much to copy on its own thread, and there has to be another pass. */
RIG_TEST(what_came_during_a_pass_is_not_left_to_the_writer)
{
    enum { MANY = 1000 };
    struct checkpointer checkpointer;
    sqlite3 *writer = open_writer(rig);

    start(&checkpointer, rig, PAGES_MAX);
    assert_true(copies_at(&checkpointer, MANY, 1));
    assert_false(checkpointer_has_rest(&checkpointer));
    /* Only a few more than there were. */
    checkpointer_on_commit(&checkpointer, PAGES_MAX / 2, 1);
    assert_true(copies_at(&checkpointer, PAGES_MAX + 1, 1));
    assert_true(checkpointer_has_rest(&checkpointer));
    stop(&checkpointer);
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
}

/* Another program copies, or the writer changes the wal-index just then. */
RIG_TEST(a_pass_that_meets_a_lock_says_nothing_and_is_made_later)
{
    enum { LATER = PAGES_MAX / 4 };
    struct checkpointer checkpointer;
    sqlite3 *writer = open_writer(rig);

    start(&checkpointer, rig, PAGES_MAX);
    fault_vfs_set(rig->vfs, FAULT_SHM_LOCK, ".db", 1, SQLITE_BUSY);
    assert_true(copies_at(&checkpointer, PAGES_MAX + 1, 1));
    assert_int_equal(fault_vfs_counts(rig->vfs).hits, 1);
    assert_false(checkpointer_has_rest(&checkpointer));
    assert_null(strstr(rig_log(rig), "cannot copy"));
    assert_false(copies_at(&checkpointer, PAGES_MAX + LATER, 1));
    assert_true(copies_at(&checkpointer, PAGES_MAX + LATER + 1, 1));
    assert_true(checkpointer_has_rest(&checkpointer));
    stop(&checkpointer);
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
}

/* Otherwise the log would never begin anew, since something is always left. */
RIG_TEST(the_writer_copies_the_rest)
{
    enum { MORE = 20 };
    struct checkpointer checkpointer;
    sqlite3 *writer = open_writer(rig);
    int pages = 0;

    start(&checkpointer, rig, PAGES_MAX);
    assert_true(copies_at(&checkpointer, PAGES_MAX + 1, 1));
    for (int i = 0; i < MORE; i++)
        plain_run(writer, "INSERT INTO few VALUES(1)");
    checkpointer_copy_rest(&checkpointer, writer);
    assert_false(checkpointer_has_rest(&checkpointer));
    plain_run(writer, "INSERT INTO few VALUES(1)");
    sqlite3_wal_checkpoint_v2(writer, "main", SQLITE_CHECKPOINT_PASSIVE, &pages, NULL);
    assert_in_range(pages, 1, MORE / 2);
    stop(&checkpointer);
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
}

/* How many frames of the log are in the file already, as the wal-index tells everybody. */
static uint32_t copied_frames(const struct rig *rig)
{
    enum { BACKFILL_AT = 96 };
    char path[128];
    uint32_t frames = UINT32_MAX;

    snprintf(path, sizeof path, "%s-shm", rig->path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, BACKFILL_AT, SEEK_SET), 0);
    assert_int_equal(fread(&frames, sizeof frames, 1, file), 1);
    assert_int_equal(fclose(file), 0);
    return frames;
}

/* A reader, which keeps passes from what is committed after it began. */
static sqlite3 *read_on(const struct rig *rig)
{
    sqlite3 *reader = rig_foreign(rig);

    plain_run(reader, "BEGIN; SELECT count(*) FROM few");
    return reader;
}

RIG_TEST(what_a_failed_sync_was_to_make_safe_is_copied_again_by_whoever_comes_next)
{
    struct checkpointer checkpointer;
    sqlite3 *other = open_writer(rig), *reader; /* other: keeps the wal-index as it is */

    start(&checkpointer, rig, PAGES_MAX);
    reader = read_on(rig);
    plain_run(other, "INSERT INTO few VALUES(1)");
    sqlite3_wal_checkpoint_v2(other, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    assert_true(copied_frames(rig) > 0);
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    reader = read_on(rig); /* another page, or its older copy would be passed over */
    plain_run(other, "CREATE TABLE more(x)");
    fault_vfs_set(rig->vfs, FAULT_SYNC, ".db", 1, SQLITE_IOERR_FSYNC);
    assert_true(copies_at(&checkpointer, PAGES_MAX + 1, 1));
    assert_true(checkpointer_lost(&checkpointer));
    assert_int_equal(copied_frames(rig), 0);
    assert_int_equal(sqlite3_close(reader), SQLITE_OK);
    stop(&checkpointer);
    assert_int_equal(copied_frames(rig), 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

static void pad(sqlite3 *db, int mb)
{
    char sql[96];

    snprintf(sql, sizeof sql,
             "CREATE TABLE IF NOT EXISTS pad(x); INSERT INTO pad VALUES(zeroblob(%d))", mb << 20);
    plain_run(db, sql);
}

RIG_TEST(a_larger_file_has_a_longer_log)
{
    enum { LEAST = 32 * 1024, MOST = 128 * 1024, NOT_TOLD = 0 };
    struct checkpointer checkpointer;
    sqlite3 *writer = open_writer(rig);

    start(&checkpointer, rig, NOT_TOLD);
    assert_int_equal(atomic_load(&checkpointer.pages_max), LEAST);
    pad(writer, 16);
    assert_false(copies_at(&checkpointer, LEAST, 1));
    assert_true(copies_at(&checkpointer, LEAST + 1, 1));
    assert_in_range(atomic_load(&checkpointer.pages_max), 4 * 16 * 1024, 4 * 17 * 1024);
    stop(&checkpointer);
    pad(writer, 32);
    start(&checkpointer, rig, NOT_TOLD);
    assert_int_equal(atomic_load(&checkpointer.pages_max), MOST);
    stop(&checkpointer);
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
}

/* How often the log was begun: it keeps count itself. */
static unsigned begun(const struct rig *rig)
{
    char path[128];
    unsigned char header[16] = {0};

    snprintf(path, sizeof path, "%s-wal", rig->path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(header, sizeof header, 1, file), 1);
    fclose(file);
    return (unsigned)(header[14] << 8 | header[15]);
}

/* Long before it is long, because SQLite looks for each page among all the copies of that one. */
DEFAULT_RIG_TEST(a_log_that_repeats_a_page_is_begun_anew_early)
{
    enum { MANY = 512, LONG = 32 * 1024 };
    int number = 0;

    write_one(rig, &number, true);
    unsigned before = begun(rig);
    for (int i = 1; i < MANY - 100; i++)
        write_one(rig, &number, true);
    assert_int_equal(begun(rig), before);
    while (begun(rig) == before && number < LONG / 2)
        write_one(rig, &number, true);
    assert_true(number < LONG / 2);
}

RIG_TEST(a_log_that_goes_on_repeating_is_copied_once_in_a_while)
{
    enum { MANY = 512, SHORT = 1000, AGAIN = 2048 };
    struct checkpointer checkpointer;
    sqlite3 *writer = open_writer(rig);

    start(&checkpointer, rig, 0);
    assert_false(copies_at(&checkpointer, SHORT, MANY));
    assert_true(copies_at(&checkpointer, SHORT, MANY + 1));
    assert_false(copies_at(&checkpointer, SHORT + AGAIN - 1, MANY + 1));
    assert_true(copies_at(&checkpointer, SHORT + AGAIN, MANY + 1));
    stop(&checkpointer);
    assert_int_equal(sqlite3_close(writer), SQLITE_OK);
}

static void await_in_log(const struct rig *rig, const char *text)
{
    struct deadline deadline = deadline_in(HANG_MS);

    while (strstr(rig_log(rig), text) == NULL) {
        deadline_keep(&deadline);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* between two looks */
    }
}

RIG_TEST(a_reader_that_holds_the_log_is_told_of_until_it_has_gone)
{
    sqlite3 *reader = rig_foreign(rig);
    int number = 0;

    write_one(rig, &number, false);
    assert_int_equal(sqlite3_exec(reader, "BEGIN; SELECT * FROM stockade_string", NULL, NULL, NULL),
                     SQLITE_OK);
    for (int i = 0; i < 2 * PAGES_MAX; i++) /* within what the log takes by itself */
        write_one(rig, &number, false);
    assert_null(strstr(rig_log(rig), "write-ahead log has"));
    while (size_of(rig, "-wal") < 1 << 20) /* more than the rest that is left to the writer */
        write_one(rig, &number, false);
    await_in_log(rig, "a reader has kept its snapshot");
    assert_contains(rig_log(rig), "this program itself"); /* for it is the test's */
    assert_true(store_stats(rig->store).log_bytes > PAGES_MAX * FACTOR * 1024);
    struct deadline deadline = deadline_in(HANG_MS);
    while (store_stats(rig->store).oldest_snapshot_s == 0)
        deadline_keep(&deadline);
    sqlite3_close(reader);
    await_in_log(rig, "nobody holds its write-ahead log any more");
    assert_int_equal(store_stats(rig->store).oldest_snapshot_s, 0);
}
