/* SPDX-License-Identifier: Apache-2.0 */
/* Backup and restore where all goes well: which files they leave alone, and what a restore
 * takes away from those who held leases. (Where the disk fails: maintenance_test.c.) */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/token.h"
#include "store/maintenance.h"
#include "tests/unit/store/rig.h"

struct set {
    struct rig *rig;
    char backup[200], why[MAINTENANCE_WHY_MAX];
};

static void furnish(struct store_txn *txn)
{
    rig_grant(txn, "live", "owner");
    rig_receipt_put(txn, "live", "id");
    rig_grant(txn, "over", "owner");
    rig_release(txn, "over");
}

static struct set prepare(struct rig *rig)
{
    struct set set = {.rig = rig};

    snprintf(set.backup, sizeof set.backup, "%s/backup.db", rig->folder);
    rig_in_write(rig, furnish);
    return set;
}

static bool back_up(struct set *set, bool replace)
{
    struct backup_call call = {.store = set->rig->path, .file = set->backup, .replace = replace};
    return store_sqlite_backup(&call, set->why, sizeof set->why);
}

static bool restore(struct set *set, struct restore_call *call)
{
    *call = (struct restore_call){.file = set->backup, .store = set->rig->path};
    return store_sqlite_restore(call, set->why, sizeof set->why);
}

SQLITE_TEST(a_backup_does_not_replace_the_store_or_its_log)
{
    struct set set = prepare(rig);
    static const char *const parts[] = {"", "-wal", "-shm"};

    for (size_t i = 0; i < COUNT(parts); i++) {
        snprintf(set.backup, sizeof set.backup, "%s%s", rig->path, parts[i]);
        assert_int_equal(access(set.backup, F_OK), 0);
        assert_false(back_up(&set, true));
        assert_contains(set.why, "is the store itself, or a part of it");
    }
}

static bool take_the_name(void *context, const char *doing, int64_t done, int64_t total)
{
    (void)doing, (void)done, (void)total;
    close(open(((struct set *)context)->backup, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    return true;
}

SQLITE_TEST(a_file_that_is_made_during_a_backup_is_not_replaced)
{
    struct set set = prepare(rig);
    struct backup_call call = {
        .store = rig->path, .file = set.backup, .watch = {take_the_name, &set}};

    /* So large that it is copied in several steps, between which the callback is called. */
    rig_sql(rig, "CREATE TABLE large(x); INSERT INTO large VALUES(zeroblob(17500000));");
    assert_false(store_sqlite_backup(&call, set.why, sizeof set.why));
    assert_contains(set.why, "is there already");
}

SQLITE_TEST(a_file_that_others_may_read_is_not_taken_over_for_a_private_backup)
{
    struct set set = prepare(rig);
    struct stat status;
    char left[220];

    snprintf(left, sizeof left, "%s.tmp", set.backup);
    close(open(left, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(chmod(left, 0666), 0);
    assert_int_equal(chmod(rig->path, 0600), 0);
    assert_true(back_up(&set, false));
    assert_int_equal(stat(set.backup, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

SQLITE_TEST(a_second_backup_to_one_name_is_refused_while_the_first_is_made)
{
    struct set set = prepare(rig);
    char scratch[208];

    snprintf(scratch, sizeof scratch, "%s.tmp", set.backup);
    int fd = open(scratch, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0);
    assert_false(back_up(&set, false));
    assert_contains(set.why, "another backup or restore is writing");
    close(fd);
    assert_true(back_up(&set, false));
}

SQLITE_TEST(a_restore_ends_every_lease)
{
    struct set set = prepare(rig);
    struct restore_call call;

    assert_true(back_up(&set, false));
    assert_true(restore(&set, &call));
    assert_int_equal(call.revoked, 1);
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM stockade_resource"), 2);
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM stockade_resource WHERE state = 1"), 0);
    /* So that their receipts are removed one day. */
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM stockade_retired"), 1);
}

SQLITE_TEST(a_restore_lifts_the_floor_above_the_tokens_of_the_store_it_replaces)
{
    struct set set = prepare(rig);
    struct restore_call call;
    int64_t token = INT64_C(8000000000000000); /* far beyond the microseconds since 1970 */
    char sql[96];

    assert_true(back_up(&set, false));
    snprintf(sql, sizeof sql, "UPDATE stockade_resource SET token = %lld WHERE state = 1",
             (long long)token);
    rig_sql(rig, sql);
    assert_true(restore(&set, &call));
    assert_in_range(call.floor, token + 1, token + TOKEN_STEPS_MAX);
    assert_int_equal(rig_number(rig, "SELECT value FROM stockade_meta WHERE key = 'floor'"),
                     call.floor);
}

/* Tokens presented in programs, and what daemons remember, belong to the file that was there. */
SQLITE_TEST(a_restored_file_is_another_one_with_a_later_session)
{
    static const char session[] = "SELECT value FROM stockade_meta WHERE key = 'session'",
                      mark[] = "SELECT sum(unicode(substr(hex(value), n, 1)) * n * n * n) FROM"
                               " stockade_meta, (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL"
                               " SELECT n + 1 FROM c LIMIT 32) SELECT n FROM c)"
                               " WHERE key = 'file'";
    struct set set = prepare(rig);
    struct restore_call call;

    assert_true(back_up(&set, false));
    for (int i = 0; i < 3; i++) /* three more daemons, one after the other */
        rig_reopen(rig);
    int64_t last = rig_number(rig, session), before = rig_number(rig, mark);
    assert_true(restore(&set, &call));
    assert_true(rig_number(rig, session) > last);
    assert_int_not_equal(rig_number(rig, mark), before);
}
