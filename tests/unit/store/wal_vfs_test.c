/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer in front of the write-ahead log saves writes, and otherwise nobody notices it. The
 * file below it counts its writes, and fails them on demand. */
#include <sys/stat.h>
#include <unistd.h>

#include "store/sqlite/wal_vfs.h"
#include "tests/unit/folder.h"
#include "tests/unit/store/plain.h"
#include "tests/unit/test.h"

enum { AHEAD_MIN = 200 << 10 };

struct rig {
    sqlite3_vfs base; /* below the one that is tested, above the usual one */
    sqlite3_vfs *usual;
    sqlite3_io_methods methods; /* of the log */
    const sqlite3_io_methods *real;
    int writes, syncs, fail;
    int fail_after; /* writes that go well before `fail` */
    sqlite3 *db;
    struct wal_vfs *vfs;
    char folder[64], path[96], wal[104];
};

/* The only one: a file leads to the methods under test, not to ours. */
static struct rig *the_rig;

static int count_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    struct rig *rig = the_rig;

    rig->writes++;
    if (rig->fail != 0 && rig->fail_after-- <= 0)
        return rig->fail;
    return rig->real->xWrite(file, bytes, len, at);
}

static int count_sync(sqlite3_file *file, int flags)
{
    the_rig->syncs++;
    return the_rig->real->xSync(file, flags);
}

static void run(const struct rig *rig, const char *sql)
{
    plain_run(rig->db, sql);
}

static int64_t number(const struct rig *rig, const char *sql)
{
    return plain_number(rig->db, sql);
}

static int open_counted(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags,
                        int *given)
{
    struct rig *rig = the_rig;
    int code = rig->usual->xOpen(rig->usual, path, file, flags, given);

    (void)vfs;
    if (code == SQLITE_OK && (flags & SQLITE_OPEN_WAL)) {
        rig->real = file->pMethods;
        rig->methods = *rig->real;
        rig->methods.xWrite = count_write;
        rig->methods.xSync = count_sync;
        file->pMethods = &rig->methods;
    }
    return code;
}

/* A file that the VFS below opens, seen through the one that is tested. */
static int begin(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);

    the_rig = rig;
    rig->usual = sqlite3_vfs_find(NULL);
    rig->base = *rig->usual;
    rig->base.zName = "counted";
    rig->base.xOpen = open_counted;
    assert_int_equal(sqlite3_vfs_register(&rig->base, 1), SQLITE_OK);
    rig->vfs = wal_vfs_new(true);
    assert_non_null(rig->vfs);
    assert_int_equal(sqlite3_vfs_register(rig->usual, 1), SQLITE_OK);
    folder_make(rig->folder, sizeof rig->folder);
    snprintf(rig->path, sizeof rig->path, "%s/a.db", rig->folder);
    snprintf(rig->wal, sizeof rig->wal, "%s-wal", rig->path);
    assert_int_equal(sqlite3_open_v2(rig->path, &rig->db,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE,
                                     wal_vfs_name(rig->vfs)),
                     SQLITE_OK);
    assert_ptr_equal(wal_vfs_of(rig->db), rig->vfs);
    run(rig, "PRAGMA page_size = 1024; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
             "PRAGMA wal_autocheckpoint = 0; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)");
    rig->writes = rig->syncs = 0;
    *state = rig;
    return 0;
}

static int end(void **state)
{
    struct rig *rig = *state;
    char command[160];

    assert_int_equal(sqlite3_close(rig->db), SQLITE_OK);
    wal_vfs_free(rig->vfs);
    assert_int_equal(sqlite3_vfs_unregister(&rig->base), SQLITE_OK);
    snprintf(command, sizeof command, "rm -r %s", rig->folder);
    assert_int_equal(system(command), 0);
    free(rig);
    return 0;
}

#define RIG_TEST(name) TEST_WITH(begin, end, struct rig *rig, name)

RIG_TEST(a_commit_is_one_write_and_one_sync)
{
    run(rig, "INSERT INTO t VALUES(0, 'writes ahead')");
    for (int i = 1; i <= 10; i++) {
        char sql[128];
        rig->writes = rig->syncs = 0;
        snprintf(sql, sizeof sql,
                 "INSERT INTO t VALUES(%d, randomblob(5000)), (%d, randomblob(5000))", 2 * i,
                 2 * i + 1);
        run(rig, sql);
        assert_int_equal(rig->writes, 1);
        assert_int_equal(rig->syncs, 1);
    }
}

RIG_TEST(the_log_is_written_ahead_a_piece_at_a_time)
{
    struct stat first, second;

    run(rig, "INSERT INTO t VALUES(1, 'a')");
    assert_int_equal(stat(rig->wal, &first), 0);
    assert_true(first.st_size > AHEAD_MIN);
    run(rig, "INSERT INTO t VALUES(2, randomblob(100000))");
    assert_int_equal(stat(rig->wal, &second), 0);
    assert_int_equal(second.st_size, first.st_size);
    for (int i = 0; i < 10; i++)
        run(rig, "INSERT INTO t(v) VALUES(randomblob(100000))");
    assert_int_equal(stat(rig->wal, &second), 0);
    assert_true(second.st_size > 1000000 && second.st_size < 1000000 + 3 * first.st_size);
}

static void copy(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof command, "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

/* How many rows another process finds if this one dies now. */
static int64_t rows_after_death(const struct rig *rig)
{
    char other[96], other_wal[104];

    snprintf(other, sizeof other, "%s/b.db", rig->folder);
    snprintf(other_wal, sizeof other_wal, "%s-wal", other);
    copy(rig->path, other);
    copy(rig->wal, other_wal);
    sqlite3 *db = plain_open(other);
    int64_t rows = plain_number(db, "SELECT count(*) FROM t");
    sqlite3_close(db);
    return rows;
}

/* Also where a commit is not synced: SQLite tells readers of it next. */
RIG_TEST(what_is_committed_is_in_the_file)
{
    run(rig, "PRAGMA synchronous = NORMAL");
    for (int i = 1; i <= 20; i++) {
        run(rig, "INSERT INTO t(v) VALUES(randomblob(3000))");
        assert_int_equal(rows_after_death(rig), i);
    }
    assert_int_equal(rig->syncs, 0);
}

static void expect_lengths(sqlite3 *db)
{
    assert_int_equal(plain_number(db, "SELECT count(*) FROM t WHERE length(v) = 702"), 400);
    assert_int_equal(plain_number(db, "SELECT count(*) FROM t WHERE length(v) = 701"), 533);
}

/* The page cache is so small that the transaction writes to the log, and reads from it, before it
 * ends; pages of it are written again in place. */
RIG_TEST(a_transaction_larger_than_the_cache_reads_what_it_wrote)
{
    run(rig, "PRAGMA cache_size = 10; BEGIN;"
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)"
             "  INSERT INTO t SELECT i, zeroblob(700) FROM n;"
             "UPDATE t SET v = randomblob(701) WHERE id % 3 = 0;"
             "SAVEPOINT a; DELETE FROM t WHERE id % 2 = 0; UPDATE t SET v = 'x'; ROLLBACK TO a;"
             "UPDATE t SET v = zeroblob(702) WHERE id % 5 = 0");
    expect_lengths(rig->db);
    run(rig, "COMMIT");
    sqlite3 *db = plain_open(rig->path);
    expect_lengths(db);
    assert_int_equal(plain_number(db, "SELECT count(*) FROM pragma_integrity_check"
                                      " WHERE integrity_check <> 'ok'"),
                     0);
    sqlite3_close(db);
}

RIG_TEST(a_write_that_fails_fails_the_commit_and_nothing_else)
{
    run(rig, "INSERT INTO t VALUES(1, 'a'); BEGIN; INSERT INTO t VALUES(2, randomblob(5000))");
    rig->fail = SQLITE_FULL;
    assert_int_equal(sqlite3_exec(rig->db, "COMMIT", NULL, NULL, NULL), SQLITE_FULL);
    if (sqlite3_get_autocommit(rig->db) == 0)
        run(rig, "ROLLBACK");
    wal_vfs_forget(rig->vfs);
    rig->writes = 0;
    assert_int_equal(number(rig, "SELECT count(*) FROM t"), 1);
    assert_int_equal(rig->writes, 0); /* what was given up is not tried again */
    rig->fail = 0;
    run(rig, "INSERT INTO t VALUES(3, 'c')");
    assert_int_equal(number(rig, "SELECT sum(id) FROM t"), 4);
}

RIG_TEST(a_log_that_was_cut_is_written_ahead_again_and_that_may_fail)
{
    struct stat cut;

    for (int i = 1; i <= 2; i++) {
        run(rig, "PRAGMA wal_checkpoint(TRUNCATE)");
        assert_int_equal(stat(rig->wal, &cut), 0);
        assert_int_equal(cut.st_size, 0);
        rig->fail = i == 1 ? SQLITE_FULL : 0;
        rig->fail_after = 2; /* the log's header, which is synced by itself; the commit */
        run(rig, "INSERT INTO t(v) VALUES('a')");
        rig->fail = 0;
        assert_int_equal(stat(rig->wal, &cut), 0);
        assert_int_equal(cut.st_size > AHEAD_MIN, i == 2);
        assert_int_equal(rows_after_death(rig), i); /* the log's own header, too */
    }
}

RIG_TEST(it_tells_how_often_a_page_is_repeated)
{
    enum { TIMES = 100 };
    run(rig, "INSERT INTO t VALUES(1, 0)");
    for (int i = 0; i < TIMES; i++)
        run(rig, "UPDATE t SET v = v + 1");
    assert_int_equal(wal_vfs_repeats(rig->vfs), 2 + TIMES); /* CREATE TABLE wrote the page, too */
    run(rig, "PRAGMA wal_checkpoint; UPDATE t SET v = 0");  /* the log is begun anew */
    assert_int_equal(wal_vfs_repeats(rig->vfs), 1);
    for (int i = 0; i < TIMES; i++)
        run(rig, "UPDATE t SET v = v + 1");
    run(rig, "INSERT INTO t VALUES(2, zeroblob(6000000))"); /* and no page twice */
    assert_in_range(wal_vfs_repeats(rig->vfs), 1, 3);
}

RIG_TEST(nothing_is_written_at_the_end_that_was_not_committed)
{
    run(rig, "INSERT INTO t VALUES(1, 'a'); PRAGMA cache_size = 10; BEGIN;"
             "INSERT INTO t VALUES(2, randomblob(60000))");
    assert_int_equal(sqlite3_close(rig->db), SQLITE_OK);
    rig->db = plain_open(rig->path);
    assert_int_equal(number(rig, "SELECT count(*) FROM t"), 1);
}
