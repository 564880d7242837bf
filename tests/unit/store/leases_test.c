/* SPDX-License-Identifier: Apache-2.0 */
/* The writer remembers leases that it has read or written, and which tokens have no receipts: it
 * needs no second look at them.
 * Whatever becomes of the row, what it tells is what the file says. */
#include "store/sqlite/leases.h"

#include "store/sqlite/transaction.h"
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

enum { HOUR_MS = 3600 * 1000, OWNER_ROOM = 128 };

static int runs(struct store_txn *txn, enum statement statement)
{
    sqlite3_stmt *stmt = ((struct transaction *)txn)->statements[statement];
    return stmt == NULL ? 0 : sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0);
}

/* How often the file was asked for a lease. */
static int looks(struct store_txn *txn)
{
    return runs(txn, STATEMENT_LEASE);
}

/* All that the row tells of the lease of "r", as text. Static storage. */
static const char *told(const struct lease *lease)
{
    static char text[OWNER_ROOM + 160];

    snprintf(text, sizeof text, "%.*s %d holds %lld ttl %lld by %lld.%lld at %lld %lld gone %lld",
             (int)lease->owner.len, lease->owner.data, lease->anonymous, (long long)lease->holds,
             (long long)lease->ttl_ms, (long long)lease->opening, (long long)lease->connection,
             (long long)lease->changed_ms, (long long)lease->change,
             (long long)lease->receipts_gone);
    assert_int_equal(lease->age_ms, -1);
    return text;
}

/* What is remembered is what the file says. It was asked so often. */
static void knows(struct store_txn *base, const char *name, int times)
{
    struct transaction *txn = (struct transaction *)base;
    struct cache *cache = txn->cache;
    char text[OWNER_ROOM + 160];
    int before = looks(base);

    struct lease lease = rig_lease(base, name);
    snprintf(text, sizeof text, "%s", told(&lease));
    assert_int_equal(looks(base), before + times);
    txn->cache = NULL; /* as a reader has none */
    lease = rig_lease(base, name);
    txn->cache = cache;
    assert_string_equal(text, told(&lease));
}

static void grant_r(struct store_txn *txn)
{
    rig_grant(txn, "r", "one");
}

static void renew(struct store_txn *txn, const char *owner)
{
    struct resource r = rig_find(txn, "r");
    struct lease lease = {.owner = bytes_of(owner),
                          .anonymous = true,
                          .holds = 3,
                          .ttl_ms = 7000,
                          .opening = 9,
                          .connection = -4};

    assert_ok(txn_fence_put(txn, &r, &lease));
}

static void live_through_it(struct store_txn *txn)
{
    knows(txn, "r", 0);
    renew(txn, "two");
    knows(txn, "r", 0);
    rig_release(txn, "r");
    knows(txn, "r", 0);
    rig_grant(txn, "r", "three");
    knows(txn, "r", 0);
}

static void know_r(struct store_txn *txn)
{
    knows(txn, "r", 0);
}

static void read_r(struct store_txn *txn)
{
    knows(txn, "r", 1);
    knows(txn, "r", 0);
    renew(txn, "later");
    knows(txn, "r", 0);
}

SQLITE_TEST(a_lease_is_read_once_and_follows_what_is_put)
{
    rig_in_write(rig, grant_r);
    rig->now_ms += 10;
    rig_in_write(rig, know_r);
    rig_in_write(rig, live_through_it);
    rig->now_ms += 10;
    rig_in_write(rig, know_r);
    rig_reopen(rig);
    rig_in_write(rig, read_r);
}

static void put_unseen(struct store_txn *txn)
{
    renew(txn, "unseen");
    knows(txn, "r", 1);
}

SQLITE_TEST(a_lease_that_is_put_over_one_that_nobody_has_read_is_told_whole)
{
    rig_sql(rig, "INSERT INTO stockade_resource(name, token, state, receipts_gone)"
                 " VALUES(x'72', 5, 1, 4)");
    rig_in_write(rig, put_unseen);
}

/* What is undone. */

static enum stk_error renew_and_fail(struct store_txn *txn, void *arg)
{
    renew(txn, "never");
    knows(txn, "r", 0);
    return *(enum stk_error *)arg;
}

static void owner_is_one(struct store_txn *txn)
{
    assert_true(bytes_equal(rig_lease(txn, "r").owner, BYTES_LITERAL("one")));
    assert_int_equal(rig_lease(txn, "r").holds, 1);
}

SQLITE_TEST(a_lease_that_was_not_committed_is_not_told)
{
    enum stk_error how = STK_ERR;

    rig_in_write(rig, grant_r);
    assert_int_equal(rig_write(rig, renew_and_fail, &how), STK_ERR);
    rig_in_both(rig, owner_is_one);
    how = STK_OK;
    rig_fail_commit(rig);
    assert_int_equal(rig_write(rig, renew_and_fail, &how), STK_STORE);
    rig_heal(rig);
    rig_in_both(rig, owner_is_one);
}

static void renew_in_vain(struct store_txn *txn)
{
    assert_ok(txn_savepoint(txn));
    renew(txn, "never");
    assert_ok(txn_savepoint_undo(txn));
    owner_is_one(txn);
    knows(txn, "r", 0);
    assert_ok(txn_savepoint(txn));
    rig_set(txn, "r", "value"); /* an undo of something else costs no look */
    assert_ok(txn_savepoint_undo(txn));
    knows(txn, "r", 0);
}

SQLITE_TEST(a_savepoint_that_is_undone_brings_the_lease_back)
{
    rig_in_write(rig, grant_r);
    rig_in_write(rig, renew_in_vain);
    rig_in_both(rig, owner_is_one);
}

static enum stk_error grant_and_fail(struct store_txn *txn, void *arg)
{
    *(int64_t *)arg = rig_grant(txn, "failed", "never").id;
    return STK_ERR;
}

static enum stk_error make_other(struct store_txn *txn, void *arg)
{
    struct resource other = rig_find(txn, "other");

    assert_ok(txn_resource_make(txn, BYTES_LITERAL("other"), &other));
    assert_int_equal(other.id, *(int64_t *)arg);
    assert_int_equal(rig_lease(txn, "other").owner.len, 0);
    assert_int_equal(rig_lease(txn, "other").holds, 0);
    return STK_OK;
}

SQLITE_TEST(an_id_that_is_given_again_brings_no_lease_along)
{
    int64_t id = 0;

    assert_int_equal(rig_write(rig, grant_and_fail, &id), STK_ERR);
    assert_ok(rig_write(rig, make_other, &id));
}

/* What else changes a lease. */

SQLITE_TEST(P1_what_another_program_makes_of_a_lease_is_told)
{
    rig_in_write(rig, grant_r);
    rig_in_write(rig, know_r);
    rig_sql(rig, "UPDATE stockade_resource SET owner = x'78', holds = 9, receipts_gone = 1");
    rig_in_write(rig, read_r);
}

static void clean_up(struct store_txn *txn)
{
    size_t removed;
    int64_t after = 0;
    bool more;

    knows(txn, "r", 0);
    assert_ok(txn_sweep_receipts(txn, INT64_MAX, 100, &removed, &more));
    assert_int_equal(removed, 1);
    knows(txn, "r", 1);
    assert_int_equal(rig_lease(txn, "r").receipts_gone, 1);
    knows(txn, "held", 0);
    assert_ok(txn_sweep_resources(txn, INT64_MAX, INT64_MAX, 100, &after, &removed, &more));
    assert_int_equal(removed, 1);
    knows(txn, "held", 1); /* it was revoked */
    assert_int_equal(rig_lease(txn, "held").holds, 0);
    assert_int_equal(rig_lease(txn, "r").changed_ms, 0);
}

static void make_old(struct store_txn *txn)
{
    rig_grant(txn, "r", "one");
    rig_receipt_put(txn, "r", "id");
    rig_release(txn, "r");
    rig_grant(txn, "held", "two");
    rig_receipt_put(txn, "held", "id");
}

SQLITE_TEST(a_sweep_leaves_no_older_lease)
{
    rig_in_write(rig, make_old);
    rig->now_ms += HOUR_MS;
    rig_in_write(rig, clean_up);
}

static void flush(struct store_txn *txn)
{
    knows(txn, "r", 0);
    assert_ok(flush_in_steps(txn));
    knows(txn, "r", 1);
    assert_int_equal(rig_lease(txn, "r").holds, 0);
}

SQLITE_TEST(a_flush_leaves_no_older_lease)
{
    rig_in_write(rig, grant_r);
    rig->now_ms += HOUR_MS;
    rig_in_write(rig, flush);
}

/* One below, at and above what is taken. */
static void owners_of_any_length(struct store_txn *txn)
{
    static const struct {
        size_t len;
        int looks;
    } owners[] = {{0, 0}, {56, 0}, {57, 0}, {58, 1}, {1, 1}, {1, 0}};
    char owner[OWNER_ROOM];

    rig_grant(txn, "r", "one");
    for (size_t i = 0; i < COUNT(owners); i++) {
        memset(owner, 'o', owners[i].len);
        owner[owners[i].len] = '\0';
        renew(txn, owner);
        knows(txn, "r", owners[i].looks);
        knows(txn, "r", owners[i].len > 57);
    }
}

SQLITE_TEST(a_long_owner_is_left)
{
    rig_in_write(rig, owners_of_any_length);
}

/* Which tokens have no receipts. */

/* End the live token of "r", or renew it. The file was asked so often for its receipts. */
static void ends(struct store_txn *txn, void (*how)(struct store_txn *txn), int times)
{
    int before = runs(txn, STATEMENT_RECEIPTS_ANY);

    how(txn);
    assert_int_equal(runs(txn, STATEMENT_RECEIPTS_ANY), before + times);
}

static void release_r(struct store_txn *txn)
{
    rig_release(txn, "r");
}

static void renew_r(struct store_txn *txn)
{
    renew(txn, "again");
}

static void renew_long(struct store_txn *txn)
{
    char owner[OWNER_ROOM];

    memset(owner, 'o', 100);
    owner[100] = '\0';
    renew(txn, owner);
}

static void end_without_receipts(struct store_txn *txn)
{
    ends(txn, renew_r, 0);
    ends(txn, grant_r, 0); /* over the one before */
    ends(txn, renew_long, 0);
    ends(txn, release_r, 0);
    ends(txn, grant_r, 0);
    ends(txn, release_r, 0);
}

static void end_with_receipts(struct store_txn *txn)
{
    grant_r(txn);
    rig_receipt_put(txn, "r", "one");
    ends(txn, renew_r, 0);
    ends(txn, grant_r, 1);
    ends(txn, grant_r, 0); /* it has none itself */
    rig_receipt_put(txn, "r", "two");
    ends(txn, release_r, 1);
}

static int64_t logged(struct rig *rig)
{
    return rig_number(rig, "SELECT count(*) FROM stockade_retired");
}

SQLITE_TEST(a_token_without_receipts_ends_without_a_look_for_them)
{
    rig_in_write(rig, grant_r);
    rig_in_write(rig, end_without_receipts);
    assert_int_equal(logged(rig), 0);
    rig_in_write(rig, end_with_receipts);
    assert_int_equal(logged(rig), 2);
}

static void put_receipt(struct store_txn *txn)
{
    rig_receipt_put(txn, "r", "id");
}

static enum stk_error grant_in_vain(struct store_txn *txn, void *arg)
{
    (void)arg;
    grant_r(txn);
    return STK_ERR;
}

static void receipt_in_vain(struct store_txn *txn)
{
    assert_ok(txn_savepoint(txn));
    rig_receipt_put(txn, "r", "id");
    assert_ok(txn_savepoint_undo(txn));
    release_r(txn);
}

SQLITE_TEST(P6_the_end_of_a_token_with_receipts_is_logged_whatever_was_undone)
{
    rig_in_write(rig, grant_r);
    rig_in_write(rig, put_receipt);
    assert_int_equal(rig_write(rig, grant_in_vain, NULL), STK_ERR);
    rig_in_write(rig, release_r);
    assert_int_equal(logged(rig), 1);
    rig_in_write(rig, grant_r);
    rig_in_write(rig, receipt_in_vain);
    assert_int_equal(logged(rig), 1);
}

SQLITE_TEST(P6_receipts_that_another_program_puts_are_seen)
{
    rig_in_write(rig, grant_r);
    rig_sql(rig, "INSERT INTO stockade_receipt VALUES(1, x'6964', 1, 0, 0, 0, x'2b4f4b')");
    rig_in_write(rig, release_r);
    assert_int_equal(logged(rig), 1);
}

/* The memory itself. */

static void put(struct leases *leases, int64_t id, int64_t holds)
{
    leases_put(leases, id, &(struct lease){.owner = BYTES_LITERAL("o"), .holds = holds});
}

static int64_t holds(const struct leases *leases, int64_t id)
{
    struct lease lease;
    return leases_find(leases, id, &lease) ? lease.holds : 0;
}

TEST(leases_push_each_other_out_and_none_is_taken_for_another)
{
    enum { PLACES = 1 << 13 };
    struct leases *leases = leases_new();

    assert_int_equal(holds(leases, 0), 0);
    for (int64_t id = 1; id <= PLACES + 2; id++)
        put(leases, id, id);
    for (int64_t id = 1; id <= PLACES + 2; id++)
        assert_int_equal(holds(leases, id), id <= 2 ? 0 : id);
    assert_int_equal(holds(leases, 0), 0);
    leases_forget(leases, 3 + PLACES); /* another's place */
    assert_int_equal(holds(leases, 3), 3);
    leases_forget(leases, 3);
    assert_int_equal(holds(leases, 3), 0);
    leases_clear(leases);
    assert_int_equal(holds(leases, 4), 0);
    put(leases, 4, 7);
    assert_int_equal(holds(leases, 4), 7);
    leases_free(leases);
    leases_free(NULL);
}

TEST(a_token_without_receipts_is_remembered_with_and_without_the_lease)
{
    enum { PLACES = 1 << 13 };
    struct leases *leases = leases_new();

    assert_false(leases_has_no_receipts(leases, 1, 0));
    leases_no_receipts_put(leases, 1, 5);
    assert_true(leases_has_no_receipts(leases, 1, 5));
    assert_false(leases_has_no_receipts(leases, 1, 4));
    assert_int_equal(holds(leases, 1), 0);
    put(leases, 1, 7);
    assert_true(leases_has_no_receipts(leases, 1, 5));
    leases_no_receipts_forget(leases, 1 + PLACES); /* another's place */
    assert_false(leases_has_no_receipts(leases, 1 + PLACES, 5));
    assert_true(leases_has_no_receipts(leases, 1, 5));
    leases_no_receipts_forget(leases, 1);
    assert_false(leases_has_no_receipts(leases, 1, 5) || leases_has_no_receipts(leases, 1, 0));
    assert_int_equal(holds(leases, 1), 7);
    leases_no_receipts_put(leases, 1, 5);
    put(leases, 1 + PLACES, 8); /* comes to the same place */
    assert_false(leases_has_no_receipts(leases, 1 + PLACES, 5));
    leases_no_receipts_put(leases, 1, 5);
    assert_int_equal(holds(leases, 1) + holds(leases, 1 + PLACES), 0);
    leases_clear(leases);
    assert_false(leases_has_no_receipts(leases, 1, 5));
    leases_free(leases);
}
