/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite store and its file: made, opened again, shared with other programs, or refused. */
#include <errno.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/store/rig.h"

static enum stk_error find_damaged(struct store_txn *txn, void *arg)
{
    return txn_resource(txn, BYTES_LITERAL("b"), arg);
}

SQLITE_TEST(everything_is_there_after_a_restart)
{
    struct resource resource;
    int64_t token = rig_next_token(rig), opening = store_opening(rig->store);

    rig_write_r(rig, "kept");
    rig_close(rig);
    assert_int_equal(access(rig->path, F_OK), 0);
    rig_open(rig, false);
    assert_int_equal(store_opening(rig->store), opening + 1);
    assert_ok(rig_write(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.token, token);
    assert_int_equal(resource.fence.state, FENCE_LIVE);
    rig_expect_r(rig, "kept");
}

SQLITE_TEST(a_process_that_dies_loses_nothing_that_was_done)
{
    int status;

    rig_close(rig);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rig_open(rig, false);
        struct rig_op op = rig_op(true, rig_set_r, "done");
        rig_batch(rig, &op, 1);
        _exit(op.done == 1 && op.base.error == STK_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    rig_open(rig, false);
    rig_expect_r(rig, "done");
}

SQLITE_TEST(a_file_is_marked_and_versioned_and_has_a_wal)
{
    assert_int_equal(rig_number(rig, "PRAGMA application_id"), 0x53544b44);
    assert_int_equal(rig_number(rig, "PRAGMA user_version"), 5);
    assert_string_equal(rig_rows(rig, "PRAGMA journal_mode"), "wal");
    assert_string_equal(rig_rows(rig, "PRAGMA integrity_check"), "ok");
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM sqlite_schema"
                                     " WHERE name NOT LIKE 'stockade\\_%' ESCAPE '\\'"
                                     " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"),
                     0);
}

static void view_rows(struct store_txn *txn)
{
    struct resource resource = rig_grant(txn, "sku:1", "me");
    struct lease lease = {.owner = BYTES_LITERAL("me"), .ttl_ms = 500};

    assert_ok(txn_field_put(txn, &resource, bytes_of("stock"), BYTES_LITERAL("9")));
    resource = rig_grant(txn, "plain", "you");
    assert_ok(txn_string_put(txn, &resource, BYTES_LITERAL("text")));
    resource.fence.state = FENCE_RELEASED;
    assert_ok(txn_fence_put(txn, &resource, &lease));
}

SQLITE_TEST(the_views_show_fences_values_and_fields_and_cannot_be_written)
{
    sqlite3 *db;

    rig_in_write(rig, view_rows);
    assert_string_equal(rig_rows(rig, "SELECT * FROM stockade_fences WHERE resource = 'sku:1'"),
                        "sku:1|1|live|me|1|1000");
    assert_string_equal(rig_rows(rig, "SELECT * FROM stockade_fences WHERE resource = 'plain'"),
                        "plain|1|released|me|0|500");
    assert_string_equal(rig_rows(rig, "SELECT * FROM stockade_values"), "plain|text");
    assert_string_equal(rig_rows(rig, "SELECT * FROM stockade_fields"), "sku:1|stock|9");
    db = rig_foreign(rig);
    assert_int_equal(sqlite3_exec(db, "DELETE FROM stockade_values", NULL, NULL, NULL),
                     SQLITE_ERROR);
    sqlite3_close(db);
}

SQLITE_TEST(a_commit_by_another_program_is_noticed_and_drops_what_was_cached)
{
    struct resource resource;

    (void)rig_next_token(rig);
    assert_int_equal(store_stats(rig->store).foreign_commits, 0);
    rig_sql(rig, "UPDATE stockade_resource SET token = 100, state = 3");
    assert_ok(rig_write(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.token, 100);
    assert_int_equal(resource.fence.state, FENCE_REVOKED);
    assert_int_equal(store_stats(rig->store).foreign_commits, 1);
    rig_sql(rig, "DELETE FROM stockade_resource");
    assert_ok(rig_write(rig, rig_find_r, &resource));
    assert_int_equal(resource.id, 0);
}

SQLITE_TEST(the_store_wide_floor_lifts_every_resource)
{
    struct resource resource;

    (void)rig_next_token(rig);
    assert_ok(rig_read(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.floor, 1);
    rig_sql(rig, "UPDATE stockade_meta SET value = 5000 WHERE key = 'floor'");
    assert_ok(rig_read(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.floor, 5000);
    assert_ok(rig_write(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.token, 1);
    assert_int_equal(resource.fence.floor, 5000);
    assert_int_equal(rig_next_token(rig), 5001);
    assert_ok(rig_read(rig, rig_find_r, &resource));
    assert_int_equal(resource.fence.floor, 5001);
}

SQLITE_TEST(two_stores_on_one_file_see_each_other)
{
    struct rig other = *rig;
    struct resource resource;

    rig_open(&other, false);
    assert_true(store_opening(other.store) > store_opening(rig->store));
    for (int64_t want = 1; want <= 20; want++) {
        assert_int_equal(rig_next_token(want % 2 != 0 ? rig : &other), want);
        assert_ok(rig_read(want % 2 == 0 ? rig : &other, rig_find_r, &resource));
        assert_int_equal(resource.fence.token, want);
    }
    rig_write_r(&other, "theirs");
    rig_close(&other);
    rig_expect_r(rig, "theirs");
}

SQLITE_TEST(a_row_with_impossible_values_fails_alone)
{
    struct resource resource;
    struct rig_op ops[] = {rig_op(true, rig_set_r, "1"), rig_op(true, find_damaged, &resource),
                           rig_op(true, rig_grant_r, &(struct resource){0})};

    rig_sql(rig, "INSERT INTO stockade_resource(name, token, state) VALUES(x'62', -5, 9)");
    rig_batch(rig, ops, 3);
    assert_ok(ops[0].base.error);
    assert_int_equal(ops[1].base.error, STK_STORE);
    assert_ok(ops[2].base.error);
    assert_contains(rig_log(rig), "impossible values");
    assert_int_equal(rig_read(rig, find_damaged, &resource), STK_STORE);
    assert_ok(rig_read(rig, rig_find_r, &resource));
}

static void write_file(const struct rig *rig, const char *text)
{
    FILE *file = fopen(rig->path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Remove the store that the rig began with. */
static void start_over(struct rig *rig)
{
    rig_close(rig);
    assert_int_equal(unlink(rig->path), 0);
}

SQLITE_TEST(a_file_that_is_no_database_is_refused_and_left_alone)
{
    static const char text[] = "these are my notes, which are longer than a database's header is: "
                               "one hundred bytes, so SQLite has enough to look at here";
    char after[sizeof text];

    start_over(rig);
    write_file(rig, text);
    assert_contains(rig_refusal(rig), "is not a database");
    FILE *file = fopen(rig->path, "r");
    assert_non_null(file);
    assert_non_null(fgets(after, sizeof after, file));
    fclose(file);
    assert_string_equal(after, text);
}

SQLITE_TEST(another_programs_database_is_refused_and_left_alone)
{
    start_over(rig);
    rig_sql(rig, "CREATE TABLE theirs(x)");
    assert_contains(rig_refusal(rig), "another program's database");
    assert_string_equal(rig_rows(rig, "PRAGMA journal_mode"), "delete");
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM sqlite_schema"), 1);
    start_over(rig);
    rig_sql(rig, "PRAGMA application_id = 7; PRAGMA user_version = 1");
    assert_contains(rig_refusal(rig), "another program's database");
}

SQLITE_TEST(an_empty_file_becomes_a_store)
{
    start_over(rig);
    write_file(rig, "");
    rig_open(rig, false);
    assert_int_equal(rig_next_token(rig), 1);
}

SQLITE_TEST(a_newer_or_unknown_schema_is_refused_by_name)
{
    rig_sql(rig, "PRAGMA user_version = 99");
    rig_close(rig);
    const char *why = rig_refusal(rig);
    assert_contains(why, "schema version 99");
    assert_contains(why, rig->path);
    assert_int_equal(rig_number(rig, "SELECT value FROM stockade_meta WHERE key = 'session'"), 1);
    rig_sql(rig, "PRAGMA user_version = 0");
    assert_contains(rig_refusal(rig), "no schema version");
}

SQLITE_TEST(a_path_that_cannot_be_opened_is_refused_with_the_reason)
{
    start_over(rig);
    assert_int_equal(mkdir(rig->path, 0700), 0);
    assert_contains(rig_refusal(rig), "cannot open");
    assert_int_equal(rmdir(rig->path), 0);
    snprintf(rig->path, sizeof rig->path, "%s/missing/store.db", rig->folder);
    assert_contains(rig_refusal(rig), "there is no folder");
    rig->path[0] = '\0';
    assert_contains(rig_refusal(rig), "empty");
}

/* Root may write anywhere, so open the file as somebody else. */
static const char *refusal_as_nobody(struct rig *rig)
{
    bool root = geteuid() == 0;

    if (root)
        assert_int_equal(seteuid(65534), 0);
    const char *why = rig_refusal(rig);
    if (root)
        assert_int_equal(seteuid(0), 0);
    return why;
}

SQLITE_TEST(a_read_only_file_or_folder_is_refused)
{
    rig_close(rig);
    assert_int_equal(chmod(rig->path, 0444), 0);
    assert_int_equal(chmod(rig->folder, 0777), 0);
    assert_contains(refusal_as_nobody(rig), "read-only");
    assert_int_equal(chmod(rig->path, 0666), 0);
    assert_int_equal(chmod(rig->folder, 0555), 0);
    const char *why = refusal_as_nobody(rig);
    assert_int_equal(chmod(rig->folder, 0700), 0);
    assert_contains(why, rig->path);
    assert_true(strstr(why, "read-only") != NULL || strstr(why, strerror(EACCES)) != NULL);
    rig_open(rig, false);
}

SQLITE_TEST(a_file_that_another_program_has_locked_is_refused)
{
    fault_vfs_hurry(rig->vfs);
    rig_close(rig);
    sqlite3 *db = rig_foreign(rig);
    plain_run(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;"
                  "UPDATE stockade_meta SET value = value");
    assert_contains(rig_refusal(rig), "locked by another program");
    sqlite3_close(db);
    rig_open(rig, false);
}
