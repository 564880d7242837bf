/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite store's writer and an operation that spoils its batch: by failing after it has changed
 * something, or by ending the transaction from inside, as SQL can. */
#include "store/sqlite/transaction.h"
#include "tests/unit/store/rig.h"

static enum stk_error add_one(struct store_txn *txn, void *arg)
{
    char text[64] = "";
    const char *name = arg;

    snprintf(text, sizeof text, "%sx",
             strcmp(rig_get(txn, name), "(none)") != 0 ? rig_get(txn, name) : "");
    rig_set(txn, name, text);
    rig_grant(txn, name, "o");
    return STK_OK;
}

/* Ways to spoil a batch. */
static enum stk_error change_and_fail(struct store_txn *txn, void *arg)
{
    (void)add_one(txn, "bad");
    (void)add_one(txn, arg);
    return STK_RANGE;
}

static void end_the_transaction(struct store_txn *txn)
{
    sqlite3 *db = ((struct transaction *)txn)->db;
    plain_run(db, "ROLLBACK");
}

static enum stk_error end_and_say_so(struct store_txn *txn, void *arg)
{
    (void)add_one(txn, "bad");
    assert_ok(txn_savepoint(txn));
    (void)add_one(txn, arg);
    end_the_transaction(txn);
    assert_int_equal(txn_savepoint_undo(txn), STK_ERR);
    return STK_GUARDED;
}

static enum stk_error end_and_overlook_it(struct store_txn *txn, void *arg)
{
    struct resource resource = rig_grant(txn, "bad", "o");
    bool found;

    (void)arg;
    end_the_transaction(txn);
    /* Nothing works any more; above all, nothing commits by itself. */
    assert_int_equal(txn_string_put(txn, &resource, BYTES_LITERAL("v")), STK_STORE);
    assert_int_equal(txn_field_remove(txn, &resource, BYTES_LITERAL("f"), &found), STK_STORE);
    assert_int_equal(txn_savepoint(txn), STK_STORE);
    return STK_OK;
}

/* DDL is not counted by sqlite3_total_changes. */
static enum stk_error define_and_fail(struct store_txn *txn, void *arg)
{
    struct transaction *own = (struct transaction *)txn;

    (void)arg;
    plain_run(own->db, "CREATE TABLE bad(x)");
    own->touched = true;
    return STK_ERR;
}

static enum stk_error refuse(struct store_txn *txn, void *arg)
{
    rig_find(txn, arg);
    return STK_STALE;
}

static enum stk_error look(struct store_txn *txn, void *arg)
{
    int64_t *xs = arg;

    assert_int_equal(rig_find(txn, "bad").id, 0);
    *xs = strcmp(rig_get(txn, "a"), "(none)") == 0 ? 0 : (int64_t)strlen(rig_get(txn, "a"));
    assert_int_equal(rig_find(txn, "a").fence.token, *xs);
    return STK_OK;
}

static void expect(struct rig *rig, int64_t xs)
{
    int64_t seen = -1;

    assert_ok(rig_write(rig, look, &seen));
    assert_int_equal(seen, xs);
    assert_ok(rig_read(rig, look, &seen));
    assert_int_equal(seen, xs);
}

static uint64_t commits(const struct rig *rig)
{
    return store_stats(rig->store).commits;
}

struct spoiler {
    rig_body body;
    enum stk_error error;
};

static const struct spoiler spoilers[] = {
    {change_and_fail, STK_RANGE},
    {end_and_say_so, STK_GUARDED},
    {end_and_overlook_it, STK_ERR},
    {define_and_fail, STK_ERR},
};
enum { SPOILERS = COUNT(spoilers) };

SQLITE_TEST(what_is_around_a_spoiler_commits_in_two_groups_and_it_runs_once)
{
    int64_t xs = 0;

    for (int i = 0; i < SPOILERS; i++) {
        struct rig_op ops[] = {rig_op(true, add_one, "a"), rig_op(true, refuse, "a"),
                               rig_op(true, add_one, "a"), rig_op(true, spoilers[i].body, "a"),
                               rig_op(true, add_one, "a"), rig_op(true, add_one, "a")};
        static const int runs[] = {2, 2, 2, 1, 1, 1};
        uint64_t before = commits(rig);
        rig_batch(rig, ops, 6);
        for (int n = 0; n < 6; n++) {
            assert_int_equal(ops[n].done, 1);
            assert_int_equal(ops[n].runs, runs[n]);
            assert_int_equal(ops[n].base.error, n == 3   ? spoilers[i].error
                                                : n == 1 ? STK_STALE
                                                         : STK_OK);
        }
        assert_int_equal(commits(rig) - before, 2);
        expect(rig, xs += 4);
    }
    assert_null(strstr(rig_log(rig), "error"));
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM sqlite_schema WHERE name = 'bad'"), 0);
}

SQLITE_TEST(spoilers_at_the_ends_and_next_to_each_other_cost_no_empty_commit)
{
    int64_t xs = 0;

    for (int i = 0; i < SPOILERS; i++) {
        struct rig_op ops[] = {
            rig_op(true, spoilers[i].body, "a"), rig_op(true, add_one, "a"),
            rig_op(true, spoilers[i].body, "a"), rig_op(true, spoilers[i].body, "a"),
            rig_op(true, add_one, "a"),          rig_op(true, spoilers[i].body, "a")};
        uint64_t before = commits(rig);
        rig_batch(rig, ops, 6);
        for (int n = 0; n < 6; n++) {
            bool good = n == 1 || n == 4;
            assert_int_equal(ops[n].base.error, good ? STK_OK : spoilers[i].error);
            assert_int_equal(ops[n].runs, good ? 2 : 1);
        }
        assert_int_equal(commits(rig) - before, 2);
        expect(rig, xs += 2);
    }
}

SQLITE_TEST(a_batch_of_spoilers_commits_nothing)
{
    struct rig_op ops[RIG_BATCH_MAX];

    for (int n = 0; n < RIG_BATCH_MAX; n++)
        ops[n] = rig_op(true, spoilers[n % SPOILERS].body, "a");
    rig_batch(rig, ops, RIG_BATCH_MAX);
    for (int n = 0; n < RIG_BATCH_MAX; n++)
        assert_true(ops[n].runs == 1 && ops[n].base.error == spoilers[n % SPOILERS].error);
    assert_int_equal(commits(rig), 0);
    expect(rig, 0);
}

SQLITE_TEST(where_the_commit_before_a_spoiler_fails_its_answer_is_void_too)
{
    struct rig_op ops[] = {rig_op(true, add_one, "a"), rig_op(true, change_and_fail, "a"),
                           rig_op(true, add_one, "a")};

    rig_fail_commit(rig);
    rig_batch(rig, ops, 3);
    for (int n = 0; n < 3; n++)
        assert_true(ops[n].done == 1 && ops[n].base.error == STK_STORE);
    rig_heal(rig);
    expect(rig, 0);
}

SQLITE_TEST(a_write_lock_held_elsewhere_after_a_spoiler_is_waited_for_once)
{
    struct rig_op ops[] = {rig_op(true, change_and_fail, "a"), rig_op(true, add_one, "a"),
                           rig_op(true, add_one, "a")};

    fault_vfs_hurry(rig->vfs);
    sqlite3 *db = rig_foreign(rig);
    plain_run(db, "BEGIN IMMEDIATE");
    rig_batch(rig, ops, 3);
    for (int n = 0; n < 3; n++)
        assert_true(ops[n].runs == 0 && ops[n].base.error == STK_STORE);
    sqlite3_close(db);
    expect(rig, 0);
}

/* A read that ends the reader's transaction in the middle of an operation. */
static enum stk_error end_a_read(struct store_txn *txn, void *arg)
{
    end_the_transaction(txn);
    return txn_count_keys(txn, arg);
}

SQLITE_TEST(a_read_that_loses_its_snapshot_fails_alone)
{
    int64_t xs[3] = {-1, -1, -1};
    struct rig_op ops[] = {rig_op(false, look, &xs[0]), rig_op(false, end_a_read, &xs[1]),
                           rig_op(false, look, &xs[2])};

    assert_ok(rig_write(rig, add_one, "a"));
    rig_batch(rig, ops, 3);
    assert_ok(ops[0].base.error);
    assert_int_equal(ops[1].base.error, STK_STORE);
    assert_ok(ops[2].base.error);
    assert_int_equal(xs[0], 1);
    assert_int_equal(xs[2], 1);
    expect(rig, 1);
}

static enum stk_error claims_are_gone(struct store_txn *txn, void *arg)
{
    struct transaction *own = (struct transaction *)txn;
    static const struct claim claim = {.token = 1};

    assert_true(own->claims == NULL && own->claims_count == 0 && !own->in_savepoint);
    own->claims = &claim;
    own->claims_count = 1;
    (void)add_one(txn, arg);
    return STK_OK;
}

SQLITE_TEST(claims_end_with_their_operation_and_do_not_survive_a_second_run)
{
    struct rig_op ops[] = {rig_op(true, claims_are_gone, "a"), rig_op(true, claims_are_gone, "a"),
                           rig_op(true, change_and_fail, "a"), rig_op(true, claims_are_gone, "a")};

    rig_batch(rig, ops, 4);
    assert_int_equal(ops[0].runs, 2);
    expect(rig, 3);
}
