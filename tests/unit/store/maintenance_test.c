/* SPDX-License-Identifier: Apache-2.0 */
/* Backup, restore, check and move while the disk fails at each call that they make, and while their
 * caller gives up, and a move that its old store refuses: they say so, and what was there stays as
 * it was. Of a move there may be half, and the same call does the rest. (With daemons at work:
 * tests/system.) */
#include <dirent.h>
#include <unistd.h>

#include "fence/base/clock.h"
#include "fence/base/uri.h"
#include "store/maintenance.h"
#include "store/transfer.h"
#include "tests/unit/store/rig.h"

TESTS_HAVE_ONE_THREAD

enum { VALUES = 4, VALUE_BYTES = 3000, CALLS_MAX = 20000 };

enum work { BACKUP, RESTORE, CHECK };

static void furnish(struct store_txn *txn)
{
    char name[16], value[VALUE_BYTES];

    memset(value, 'x', sizeof value);
    value[sizeof value - 1] = '\0';
    for (int i = 0; i < VALUES; i++) {
        snprintf(name, sizeof name, "key:%d", i);
        rig_grant(txn, name, "owner");
        rig_set(txn, name, value);
        rig_receipt_put(txn, name, "id");
    }
    rig_set(txn, "when", "then");
}

/* Return the value of the key "when" in the store at the path. Static storage. */
static const char *when(const char *path)
{
    static char text[16];
    sqlite3 *db = plain_open(path);
    char *rows = plain_rows(db, "SELECT value FROM stockade_values WHERE key = 'when'");

    snprintf(text, sizeof text, "%s", rows);
    free(rows);
    sqlite3_close(db);
    return text;
}

struct set {
    struct rig *rig;
    char backup[96];
    int findings;
    int silent;     /* checks that met a failing disk and found nothing */
    int steps_left; /* until the caller gives up; negative: never */
    char why[MAINTENANCE_WHY_MAX];
};

/* A store that says "now", and a backup that says "then". */
static struct set prepare(struct rig *rig)
{
    struct set set = {.rig = rig, .steps_left = -1};
    struct backup_call call = {.store = set.rig->path, .file = set.backup};

    snprintf(set.backup, sizeof set.backup, "%s/backup.db", set.rig->folder);
    rig_in_write(rig, furnish);
    rig_close(set.rig);
    fault_vfs_hurry(set.rig->vfs);
    assert_true(store_sqlite_backup(&call, set.why, sizeof set.why));
    assert_true(call.size_bytes > VALUES * VALUE_BYTES);
    return set;
}

static void say_now(struct set *set)
{
    rig_sql(set->rig, "UPDATE stockade_string SET value = CAST('now' AS BLOB) WHERE id ="
                      " (SELECT id FROM stockade_resource WHERE name = CAST('when' AS BLOB))");
    assert_string_equal(when(set->rig->path), "now");
}

static void on_finding(void *context, const char *kind, const char *text)
{
    assert_true(kind[0] != '\0' && strchr(text, '\n') == NULL);
    ((struct set *)context)->findings++;
}

static bool on_step(void *context, const char *doing, int64_t done, int64_t total)
{
    struct set *set = context;

    assert_true(doing[0] != '\0' && done <= total);
    return set->steps_left < 0 || set->steps_left-- > 0;
}

static bool perform(struct set *set, enum work work)
{
    struct maintenance_watch watch = {on_step, set};
    struct backup_call backup = {
        .store = set->rig->path, .file = set->backup, .replace = true, .watch = watch};
    struct restore_call restore = {.file = set->backup, .store = set->rig->path, .watch = watch};
    struct check_call check = {.store = set->rig->path, .found = on_finding, .watch = watch};

    set->findings = 0;
    set->why[0] = '\0';
    switch (work) {
    case BACKUP: return store_sqlite_backup(&backup, set->why, sizeof set->why);
    case RESTORE: return store_sqlite_restore(&restore, set->why, sizeof set->why);
    default: return store_sqlite_check(&check, set->why, sizeof set->why);
    }
}

/* No scratch file is left behind. */
static void assert_tidy(const struct set *set)
{
    DIR *folder = opendir(set->rig->folder);
    struct dirent *entry;

    assert_non_null(folder);
    while ((entry = readdir(folder)) != NULL)
        if (strstr(entry->d_name, ".tmp") != NULL || strstr(entry->d_name, ".restore") != NULL)
            fail_msg("%s was left behind", entry->d_name);
    closedir(folder);
}

static void assert_told(const struct set *set)
{
    assert_true(set->why[0] != '\0');
    assert_null(strchr(set->why, '\n'));
}

/* Let the disk fail after so many calls. Return whether it has come to that. */
static bool fails_after(struct set *set, enum work work, int calls, bool once)
{

    say_now(set);
    fault_vfs_set_any(set->rig->vfs, (struct io_fault){.calls = FAULT_BITS_IO,
                                                       .passes = calls,
                                                       .times = once ? 1 : FAULT_FOR_EVER,
                                                       .code = SQLITE_IOERR});
    bool done = perform(set, work);
    fault_vfs_clear(set->rig->vfs);
    bool failed = fault_vfs_counts(set->rig->vfs).hits > 0;
    if (!failed)
        assert_true(done);
    if (!done)
        assert_told(set);
    assert_tidy(set);
    /* Where it has failed all is as before, unless a restore failed after its commit. */
    const char *now = when(set->rig->path), *due = work == RESTORE && done ? "then" : "now";
    if (strcmp(now, due) != 0 && !(work == RESTORE && !done && strcmp(now, "then") == 0))
        fail_msg("work %d, call %d: the store says %s", (int)work, calls, now);
    assert_string_equal(when(set->backup), work == BACKUP && done ? "now" : "then");
    if (work == CHECK && done && !failed)
        assert_int_equal(set->findings, 0);
    set->silent += work == CHECK && done && failed && !once && set->findings == 0;
    if (work == BACKUP && done) { /* the old one, for the next round */
        sqlite3 *db = plain_open(set->backup);
        plain_run(db, "UPDATE stockade_string SET value = CAST('then' AS BLOB)"
                      " WHERE value = CAST('now' AS BLOB)");
        sqlite3_close(db);
    }
    return failed;
}

static void fails_everywhere(struct rig *rig, enum work work)
{
    struct set set = prepare(rig);

    for (int once = 0; once < 2; once++) {
        int calls = 0;
        while (fails_after(&set, work, calls, once == 1)) {
            calls++;
            assert_true(calls < CALLS_MAX);
        }
        assert_true(calls > 10);
    }
    assert_true(set.silent <= 2); /* when all was looked through, and the file is closed */
}

SQLITE_TEST(a_backup_whose_disk_fails_leaves_all_as_it_was)
{
    fails_everywhere(rig, BACKUP);
}

SQLITE_TEST(a_restore_whose_disk_fails_leaves_a_whole_store)
{
    fails_everywhere(rig, RESTORE);
}

SQLITE_TEST(an_audit_whose_disk_fails_says_so)
{
    fails_everywhere(rig, CHECK);
}

SQLITE_TEST(who_watches_can_give_up_at_each_step)
{
    struct set set = prepare(rig);

    /* So large that it is copied in several steps. */
    rig_sql(set.rig, "CREATE TABLE large(x); INSERT INTO large VALUES(zeroblob(17500000));");
    assert_true(perform(&set, BACKUP));
    for (enum work work = BACKUP; work <= RESTORE; work++) {
        int steps = 0;
        for (;; steps++) {
            say_now(&set);
            set.steps_left = steps;
            if (perform(&set, work))
                break;
            assert_string_equal(set.why, "interrupted");
            assert_string_equal(when(set.rig->path), "now");
            assert_string_equal(when(set.backup), "then");
            assert_tidy(&set);
        }
        set.steps_left = -1;
        if (work == BACKUP)
            assert_string_equal(when(set.backup), "now");
        assert_true(steps > 0);
        /* The backup says "then" again. */
        set.steps_left = -1;
        rig_sql(set.rig, "UPDATE stockade_string SET value = CAST('then' AS BLOB)"
                         " WHERE value = CAST('now' AS BLOB)");
        assert_true(perform(&set, BACKUP));
    }
}

/* Checking a large file takes several steps, too. */
SQLITE_TEST(who_watches_can_give_up_while_a_file_is_checked)
{
    struct set set = prepare(rig);

    rig_sql(set.rig, "CREATE TABLE many(a PRIMARY KEY, b);"
                     "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 60000)"
                     " INSERT INTO many SELECT x, x FROM n;");
    for (enum work work = BACKUP; work <= CHECK; work += CHECK - BACKUP) {
        set.steps_left = 0;
        assert_false(perform(&set, work));
        assert_string_equal(set.why, "interrupted");
        assert_string_equal(when(set.backup), "then");
        assert_tidy(&set);
    }
    set.steps_left = -1;
    assert_true(perform(&set, CHECK));
    assert_int_equal(set.findings, 0);
}

/* Return a URI of SQLite. The caller frees it with sqlite3_free. */
static char *uri_of(const struct rig *rig, const char *suffix)
{
    return sqlite3_mprintf("sqlite:%s%s", rig->path, suffix);
}

/* An index of another program stands in the way of ending the leases. */
SQLITE_TEST(a_move_that_cannot_close_the_old_store_leaves_both_open)
{
    char why[MAINTENANCE_WHY_MAX], *from = uri_of(rig, ""), *to = uri_of(rig, ".new");
    struct move_call call = {.from = from, .to = to};

    rig_in_write(rig, furnish);
    rig_close(rig);
    rig_sql(rig, "CREATE INDEX no ON stockade_resource(CASE state WHEN 3 THEN"
                 " abs(-9223372036854775807 - 1) END)");
    assert_false(store_move(&call, why, sizeof why));
    assert_contains(why, "integer overflow");
    assert_false(call.closed);
    sqlite3 *new = plain_open(to + strlen("sqlite:"));
    assert_int_equal(
        plain_number(new, "SELECT count(*) FROM stockade_meta WHERE key GLOB 'move_*'"), 0);
    sqlite3_close(new);
    rig_sql(rig, "DROP INDEX no");
    assert_true(store_move(&call, why, sizeof why));
    assert_int_equal(call.leases, VALUES);
    sqlite3_free(from);
    sqlite3_free(to);
}

/* What a file holds, to be put back. */
struct image {
    char *bytes;
    size_t len;
};

static struct image image_of(const char *path)
{
    struct image image = {.bytes = malloc(1 << 20)};
    FILE *file = fopen(path, "rb");

    assert_true(image.bytes != NULL && file != NULL);
    image.len = fread(image.bytes, 1, 1 << 20, file);
    assert_true(feof(file) != 0);
    fclose(file);
    return image;
}

static void forget(const char *path, bool main)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char name[160];

    for (size_t i = main ? 0 : 1; i < COUNT(suffixes); i++) {
        snprintf(name, sizeof name, "%s%s", path, suffixes[i]);
        (void)unlink(name);
    }
}

/* Into the same file: another one would be a copy, which does not move. */
static void put_back(const struct image *image, const char *path)
{
    forget(path, false);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(image->bytes, 1, image->len, file), image->len);
    fclose(file);
}

/* Return the part that the store at the path has in a move. */
static enum transfer_part part_of(const char *path)
{
    sqlite3 *db = plain_open(path);
    int64_t part = TRANSFER_NONE;

    if (plain_number(db, "SELECT count(*) FROM sqlite_master WHERE name = 'stockade_meta'") == 1 &&
        plain_number(db, "SELECT count(*) FROM stockade_meta WHERE key = 'move_part'") == 1)
        part = plain_number(db, "SELECT value FROM stockade_meta WHERE key = 'move_part'");
    sqlite3_close(db);
    return (enum transfer_part)part;
}

/* Let the disk fail after so many calls of a move. Return whether it has come to that. */
static bool move_fails_after(struct rig *rig, struct move_call *call, int calls, bool once)
{
    char why[MAINTENANCE_WHY_MAX] = "";
    const char *from = uri_after(call->from, "sqlite:"), *to = uri_after(call->to, "sqlite:");

    fault_vfs_set_any(rig->vfs, (struct io_fault){.calls = FAULT_BITS_IO,
                                                  .passes = calls,
                                                  .times = once ? 1 : FAULT_FOR_EVER,
                                                  .code = SQLITE_IOERR});
    bool done = store_move(call, why, sizeof why), failed = fault_vfs_counts(rig->vfs).hits > 0;
    fault_vfs_clear(rig->vfs);
    enum transfer_part old = part_of(from), new = part_of(to);
    assert_true(done || (failed && why[0] != '\0' && strchr(why, '\n') == NULL));
    /* Never do both take writes, and the old one has the rows in any case. */
    assert_true(old == TRANSFER_GONE || (old == TRANSFER_NONE && new != TRANSFER_CAME));
    assert_true(old == TRANSFER_NONE || done || call->closed);
    assert_string_equal(when(from), "then");
    if (!done && !store_move(call, why, sizeof why))
        fail_msg("call %d: the same move again: %s", calls, why);
    assert_int_equal(part_of(from), TRANSFER_GONE);
    assert_int_equal(part_of(to), TRANSFER_CAME);
    assert_string_equal(when(to), "then");
    return failed;
}

SQLITE_TEST(a_move_whose_disk_fails_is_ended_by_the_same_move)
{
    char *from = uri_of(rig, ""), *to = uri_of(rig, ".new");

    rig_in_write(rig, furnish);
    rig_close(rig);
    fault_vfs_hurry(rig->vfs);
    struct image image = image_of(rig->path);
    for (int once = 0; once < 2; once++) {
        bool failed = true;
        int calls = 0;
        for (; failed; calls++) {
            struct move_call call = {.from = from, .to = to};
            put_back(&image, rig->path);
            forget(uri_after(to, "sqlite:"), true);
            failed = move_fails_after(rig, &call, calls, once == 1);
            assert_true(calls < CALLS_MAX);
        }
        assert_true(calls > 100);
    }
    free(image.bytes);
    sqlite3_free(from);
    sqlite3_free(to);
}

struct patience {
    int asked;
    int64_t asked_ms[3];
};

static bool has_enough(void *context, const char *doing, int64_t done, int64_t total)
{
    struct patience *patience = context;

    (void)doing, (void)done, (void)total;
    patience->asked_ms[patience->asked++] = clock_now_ms(&clock_monotonic);
    return patience->asked < 3;
}

/* It tries a millisecond later each time, or it would give up long before it should. */
SQLITE_TEST(a_move_that_waits_for_a_writer_can_be_interrupted)
{
    char why[MAINTENANCE_WHY_MAX], *from = uri_of(rig, ""), *to = uri_of(rig, ".new");
    struct patience patience = {0};
    struct move_call call = {.from = from, .to = to, .watch = {has_enough, &patience}};
    sqlite3 *writer = rig_foreign(rig);

    rig_close(rig);
    plain_run(writer, "BEGIN IMMEDIATE");
    assert_false(store_move(&call, why, sizeof why));
    assert_string_equal(why, "interrupted");
    assert_false(call.closed);
    assert_int_equal(patience.asked, 3);
    assert_true(patience.asked_ms[2] - patience.asked_ms[0] >= 2);
    sqlite3_close(writer);
    sqlite3_free(from);
    sqlite3_free(to);
}

SQLITE_TEST(what_cannot_be_read_is_named)
{
    struct set set = prepare(rig);
    struct check_call check = {.store = "/nowhere/store.db", .found = on_finding};
    struct backup_call backup = {.store = "/nowhere/store.db", .file = set.backup};
    struct restore_call restore = {.file = set.rig->path, .store = set.rig->path};
    char in_a_file[128];

    assert_false(store_sqlite_check(&check, set.why, sizeof set.why));
    assert_string_equal(set.why, "there is no /nowhere/store.db");
    assert_false(store_sqlite_backup(&backup, set.why, sizeof set.why));
    assert_contains(set.why, "is there already");
    backup.replace = true;
    assert_false(store_sqlite_backup(&backup, set.why, sizeof set.why));
    assert_string_equal(set.why, "there is no /nowhere/store.db");
    snprintf(in_a_file, sizeof in_a_file, "%s/x", set.rig->path);
    check.store = in_a_file;
    assert_false(store_sqlite_check(&check, set.why, sizeof set.why));
    assert_contains(set.why, "Not a directory");
    assert_false(store_sqlite_restore(&restore, set.why, sizeof set.why));
    assert_contains(set.why, "is the store itself");
    assert_string_equal(when(set.backup), "then");
}
