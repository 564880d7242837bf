/* SPDX-License-Identifier: Apache-2.0 */
/* Files of earlier versions can be opened, and everything in them is still there. */
#include <unistd.h>

#include "tests/support/version_1.h"
#include "tests/unit/store/rig.h"

static const char version_1_rows[] =
    "UPDATE stockade_meta SET value = 7 WHERE key = 'session';"
    "UPDATE stockade_meta SET value = 40 WHERE key = 'floor';"
    "INSERT INTO stockade_resource VALUES"
    "  (1, x'6c697665', 50, 1, 2, 2, 30000, 6, 11, 0, x'6d65'),"       /* live, a hash, of "me" */
    "  (2, x'72656c6561736564', 45, 2, 1, 0, 1000, 5, 0, 1, x'00ff')," /* released, a string */
    "  (3, x'7265766f6b6564', 9007199254740991, 3, 0, 0, 1, 1, 0, 0, x'')," /* revoked */
    "  (9, x'62617265', 0, 0, 1, 0, 0, 0, 0, 0, x'');"                      /* bare, a string */
    "INSERT INTO stockade_hash VALUES(1, x'73746f636b', x'3132'), (1, x'00', x'');"
    "INSERT INTO stockade_string VALUES(2, x'74657874'), (9, x'6e616b6564');"
    "CREATE TABLE theirs(x); INSERT INTO theirs VALUES(42);";

/* What 0.2.0 made of that, or made anew. */
static const char version_2[] =
    "ALTER TABLE stockade_resource ADD COLUMN changed_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE stockade_resource ADD COLUMN receipts_gone INTEGER NOT NULL DEFAULT 0;"
    "CREATE TABLE stockade_receipt("
    "  resource INTEGER NOT NULL, id BLOB NOT NULL, token INTEGER NOT NULL,"
    "  fingerprint INTEGER NOT NULL, resp3 INTEGER NOT NULL, written_ms INTEGER NOT NULL,"
    "  reply BLOB NOT NULL, PRIMARY KEY(resource, id)) WITHOUT ROWID;"
    "CREATE INDEX stockade_receipt_token ON stockade_receipt(resource, token);"
    "CREATE TABLE stockade_retired("
    "  number INTEGER PRIMARY KEY, resource INTEGER NOT NULL, token INTEGER NOT NULL,"
    "  retired_ms INTEGER NOT NULL);"
    "CREATE TABLE stockade_guard("
    "  name TEXT PRIMARY KEY COLLATE NOCASE, key TEXT NOT NULL, prefix TEXT NOT NULL)"
    "  WITHOUT ROWID;"
    "INSERT INTO stockade_meta VALUES('file', randomblob(16));"
    "CREATE VIEW stockade_receipts(resource, id, token, written, reply) AS"
    "  SELECT CAST(name AS TEXT), CAST(stockade_receipt.id AS TEXT), stockade_receipt.token,"
    "    datetime(written_ms / 1000, 'unixepoch'), CAST(reply AS TEXT)"
    "  FROM stockade_receipt JOIN stockade_resource ON stockade_resource.id = resource;"
    "CREATE VIEW stockade_guards(\"table\", \"column\", prefix) AS"
    "  SELECT name, key, prefix FROM stockade_guard;"
    "PRAGMA user_version = 2;";

/* Ends of tokens, by wall clocks that were right, far behind, far ahead and, as was noticed then,
 * set back. */
static const char version_2_rows[] =
    "INSERT INTO stockade_resource(id, name, token, state, changed_ms) VALUES"
    "  (20, x'61', 3, 2, 1699999990000), (21, x'62', 1, 2, 5),"
    "  (22, x'63', 1, 2, 4000000000000), (23, x'6c617374', 1, 2, 5);"
    "INSERT INTO stockade_receipt VALUES"
    "  (20, x'31', 1, 1, 0, 1699999990000, x'2b0d0a'), (20, x'32', 2, 1, 0, 5, x'2b0d0a'),"
    "  (20, x'33', 3, 1, 0, 4000000000000, x'2b0d0a');"
    "INSERT INTO stockade_retired(resource, token, retired_ms) VALUES"
    "  (20, 1, 4000000000000), (20, 2, 5), (20, 3, 1699999990000);"
    "INSERT INTO stockade_meta VALUES('retired_cap', 1), ('retired_cap_ms', 1699999990000);";

static int rig_version_1(void **state)
{
    rig_sqlite(state);
    struct rig *rig = *state;
    rig_close(rig);
    assert_int_equal(unlink(rig->path), 0);
    rig_sql(rig, version_1);
    rig_sql(rig, version_1_rows);
    return 0;
}

#define VERSION_1_TEST(name) TEST_WITH(rig_version_1, rig_end, struct rig *rig, name)

static int rig_version_2(void **state)
{
    rig_version_1(state);
    rig_sql(*state, version_2);
    rig_sql(*state, version_2_rows);
    return 0;
}

#define VERSION_2_TEST(name) TEST_WITH(rig_version_2, rig_end, struct rig *rig, name)

/* Where tokens go on: the version did not note which file it is, so it may be a copy. */
#define ANEW INT64_C(1700000000000000) /* the rig's time, in microseconds */

static void expect_fence(struct store_txn *txn, const char *name, int64_t token, int64_t floor,
                         enum fence_state fence_state)
{
    struct fence fence = rig_find(txn, name).fence;

    assert_int_equal(fence.token, token);
    assert_int_equal(fence.floor, floor);
    assert_int_equal(fence.state, fence_state);
}

static void expect_all(struct store_txn *txn)
{
    struct resource live = rig_find(txn, "live");
    struct lease lease;
    struct bytes value;
    bool found;

    expect_fence(txn, "live", 50, ANEW, FENCE_LIVE);
    expect_fence(txn, "released", 45, ANEW, FENCE_RELEASED);
    expect_fence(txn, "revoked", TOKEN_MAX, TOKEN_MAX, FENCE_REVOKED);
    expect_fence(txn, "bare", 0, ANEW, FENCE_NONE);
    assert_ok(txn_lease(txn, &live, &lease));
    assert_true(bytes_equal(lease.owner, BYTES_LITERAL("me")));
    assert_true(lease.holds == 2 && lease.ttl_ms == 30000 && lease.opening == 6 &&
                lease.connection == 11 && !lease.anonymous);
    assert_true(lease.changed_ms > INT64_C(1600000000000)); /* as of the migration */
    assert_int_equal(lease.receipts_gone, 0);
    lease = rig_lease(txn, "released");
    assert_true(bytes_equal(lease.owner, BYTES_LITERAL("\x00\xff")) && lease.anonymous);
    assert_ok(txn_field(txn, &live, BYTES_LITERAL("stock"), &found, &value));
    assert_true(found && bytes_equal(value, BYTES_LITERAL("12")));
    assert_ok(txn_field(txn, &live, BYTES_LITERAL("\0"), &found, &value));
    assert_true(found && value.len == 0);
    assert_string_equal(rig_get(txn, "released"), "text");
    assert_string_equal(rig_get(txn, "bare"), "naked");
}

static void use_what_is_new(struct store_txn *txn)
{
    size_t removed;
    int64_t after = 0;
    bool more;

    rig_receipt_put(txn, "live", "id");
    assert_string_equal(rig_receipt(txn, "live", "id"), "reply to id");
    assert_int_equal(rig_grant(txn, "live", "next").fence.token, ANEW + 1);
    assert_ok(txn_sweep_receipts(txn, INT64_MAX, 100, &removed, &more));
    assert_int_equal(removed, 1);
    assert_int_equal(rig_lease(txn, "live").receipts_gone, 50);
    /* Nothing counts as old because it comes from an old version. */
    assert_ok(txn_sweep_resources(txn, INT64_C(1600000000000), 0, 100, &after, &removed, &more));
    assert_int_equal(removed, 0);
}

VERSION_1_TEST(a_file_of_version_1_keeps_its_tokens_data_and_leases)
{
    rig_open(rig, false);
    assert_int_equal(rig_number(rig, "PRAGMA user_version"), 5);
    assert_int_equal(store_opening(rig->store), 8);
    rig_in_both(rig, expect_all);
    rig_in_write(rig, use_what_is_new);
    assert_int_equal(rig_number(rig, "SELECT x FROM theirs"), 42);
    rig_reopen(rig);
    assert_int_equal(store_opening(rig->store), 9);
    assert_string_equal(rig_rows(rig, "PRAGMA integrity_check"), "ok");
}

struct clean_up {
    int64_t keep_ms;
    size_t receipts, resources;
};

static enum stk_error clean_up(struct store_txn *txn, void *arg)
{
    struct clean_up *done = arg;
    int64_t before_ms = txn_now_ms(txn) - done->keep_ms, after = 0;
    bool more;

    assert_ok(txn_sweep_receipts(txn, before_ms, 100, &done->receipts, &more));
    return txn_sweep_resources(txn, before_ms, before_ms, 100, &after, &done->resources, &more);
}

VERSION_2_TEST(P6_what_a_file_of_version_2_dated_is_new_whatever_its_date)
{
    struct clean_up done = {.keep_ms = 3600 * 1000};

    rig_open(rig, false);
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM stockade_meta WHERE key LIKE '%cap%'"),
                     0);
    rig->now_ms += done.keep_ms;
    assert_ok(rig_write(rig, clean_up, &done));
    assert_int_equal(done.receipts, 0);
    assert_int_equal(done.resources, 0);
    /* From then on it ages. */
    rig->now_ms++;
    assert_ok(rig_write(rig, clean_up, &done));
    assert_int_equal(done.receipts, 3);
    assert_int_equal(
        rig_number(rig, "SELECT count(*) FROM stockade_resource WHERE id IN (20,21,22)"), 0);
}

VERSION_1_TEST(a_migrated_file_has_the_tables_and_views_of_a_fresh_one)
{
    static const char columns[] =
        "SELECT m.type, m.name, c.name, c.type, c.\"notnull\", c.dflt_value, c.pk"
        " FROM sqlite_schema m LEFT JOIN pragma_table_xinfo(m.name) c"
        " WHERE m.name <> 'theirs' ORDER BY m.name, c.cid";
    char migrated[16384];
    struct rig other = *rig;

    snprintf(other.path, sizeof other.path, "%s/fresh.db", rig->folder);
    rig_open(rig, false);
    rig_open(&other, false);
    snprintf(migrated, sizeof migrated, "%s", rig_rows(rig, columns));
    assert_true(strlen(migrated) > 500);
    assert_string_equal(migrated, rig_rows(&other, columns));
    rig_close(&other);
}

VERSION_1_TEST(a_migration_that_fails_leaves_the_file_as_it_was)
{
    fault_vfs_set(rig->vfs, FAULT_WRITE, "-wal", 1, SQLITE_FULL);
    assert_contains(rig_refusal(rig), "the disk is full");
    fault_vfs_clear(rig->vfs);
    assert_int_equal(rig_number(rig, "PRAGMA user_version"), 1);
    assert_int_equal(rig_number(rig, "SELECT value FROM stockade_meta WHERE key = 'session'"), 7);
    assert_int_equal(
        rig_number(rig, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '%receipt%'"), 0);
    rig_open(rig, false);
    rig_in_write(rig, expect_all);
}
