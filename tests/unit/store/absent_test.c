/* SPDX-License-Identifier: Apache-2.0 */
/* The writer looks for a name that has no row once. Whatever becomes of the name, what it remembers
 * is never other than what the file says. */
#include "store/sqlite/absent.h"

#include "store/sqlite/transaction.h"
#include "tests/unit/store/rig.h"

/* How often the file was asked for a name. */
static int looks(struct store_txn *txn)
{
    sqlite3_stmt *stmt = ((struct transaction *)txn)->statements[STATEMENT_FIND];
    return stmt == NULL ? 0 : sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0);
}

/* It is not there, and the file was asked so often. */
static void misses(struct store_txn *txn, const char *name, int times)
{
    int before = looks(txn);

    assert_int_equal(rig_find(txn, name).id, 0);
    assert_int_equal(looks(txn), before + times);
}

static void miss_and_make(struct store_txn *txn)
{
    misses(txn, "r", 1);
    misses(txn, "s", 1);
    misses(txn, "r", 0);
    rig_set(txn, "r", "1");
    assert_string_equal(rig_get(txn, "r"), "1");
    misses(txn, "s", 0);
}

static void look_on(struct store_txn *txn)
{
    assert_string_equal(rig_get(txn, "r"), "1");
    misses(txn, "s", 0);
}

SQLITE_TEST(a_name_is_absent_until_its_row_is_made)
{
    rig_in_write(rig, miss_and_make);
    rig_in_write(rig, look_on);
    rig_expect_r(rig, "1");
}

static void miss_r(struct store_txn *txn)
{
    assert_int_equal(rig_find(txn, "r").id, 0);
}

SQLITE_TEST(P1_what_another_program_makes_is_not_absent)
{
    rig_in_write(rig, miss_r);
    rig_sql(rig, "INSERT INTO stockade_resource(id, name, token, state) VALUES(7, x'72', 9, 1)");
    struct resource r;
    assert_ok(rig_write(rig, rig_find_r, &r));
    assert_int_equal(r.id, 7);
    assert_int_equal(r.fence.token, 9);
    rig_sql(rig, "DELETE FROM stockade_resource");
    rig_in_write(rig, miss_r);
}

/* A sweep takes the row away, and for the rest of the transaction it is absent. */

static void make_old(struct store_txn *txn)
{
    rig_grant(txn, "r", "o");
    rig_grant(txn, "r", "o");
    rig_release(txn, "r");
    rig_grant(txn, "last", "o");
}

static void sweep_and_miss(struct store_txn *txn)
{
    int64_t after = 0;
    size_t removed;
    bool more;

    assert_ok(txn_sweep_resources(txn, INT64_MAX, 0, 100, &after, &removed, &more));
    assert_int_equal(removed, 1);
    misses(txn, "r", 1);
    misses(txn, "r", 0);
}

static enum stk_error sweep_miss_and_fail(struct store_txn *txn, void *arg)
{
    sweep_and_miss(txn);
    return *(enum stk_error *)arg;
}

static void has_2(struct store_txn *txn)
{
    assert_int_equal(rig_find(txn, "r").fence.token, 2);
    assert_int_equal(rig_find(txn, "r").fence.state, FENCE_RELEASED);
}

SQLITE_TEST(P2_a_row_whose_removal_was_undone_is_not_absent)
{
    enum stk_error how = STK_ERR;

    rig_in_write(rig, make_old);
    assert_int_equal(rig_write(rig, sweep_miss_and_fail, &how), STK_ERR);
    rig_in_both(rig, has_2);
    how = STK_OK;
    rig_fail_commit(rig);
    assert_int_equal(rig_write(rig, sweep_miss_and_fail, &how), STK_STORE);
    rig_heal(rig);
    rig_in_both(rig, has_2);
}

static void sweep_in_vain(struct store_txn *txn)
{
    misses(txn, "other", 1);
    assert_ok(txn_savepoint(txn));
    sweep_and_miss(txn);
    assert_ok(txn_savepoint_undo(txn));
    has_2(txn);
    assert_ok(txn_savepoint(txn)); /* one that learns of no name undoes nothing of that */
    misses(txn, "other", 1);
    assert_ok(txn_savepoint_keep(txn));
    assert_ok(txn_savepoint(txn));
    rig_set(txn, "last", "1");
    assert_ok(txn_savepoint_undo(txn));
    misses(txn, "other", 0);
}

SQLITE_TEST(P2_a_savepoint_that_is_undone_brings_absent_rows_back)
{
    rig_in_write(rig, make_old);
    rig_in_write(rig, sweep_in_vain);
    rig_in_both(rig, has_2);
}

/* One below, at and above what is taken, and what the cache does not even take as a row. */
static void names_of_any_length(struct store_txn *txn)
{
    static const struct {
        size_t len;
        int looks;
    } names[] = {{1, 0}, {57, 0}, {58, 0}, {59, 1}, {128, 1}, {129, 1}, {RESOURCE_NAME_MAX, 1}};
    char name[RESOURCE_NAME_MAX + 1];

    for (size_t i = 0; i < COUNT(names); i++) {
        memset(name, 'n', names[i].len);
        name[names[i].len] = '\0';
        misses(txn, name, 1);
        misses(txn, name, names[i].looks);
        rig_set(txn, name, "1");
        assert_string_equal(rig_get(txn, name), "1");
    }
}

SQLITE_TEST(a_long_one_is_left)
{
    rig_in_write(rig, names_of_any_length);
}

/* The memory itself. */

static struct bytes name_of(char text[16], int number)
{
    int len = snprintf(text, 16, "n%d", number);
    return (struct bytes){text, (size_t)len};
}

TEST(names_push_each_other_out_and_none_is_taken_for_another)
{
    enum { MANY = 100000 };
    struct absent *absent = absent_new();
    char text[16];
    int kept = 0;

    assert_false(absent_has(absent, BYTES_LITERAL("")));
    for (int i = 0; i < MANY; i++)
        absent_put(absent, name_of(text, i));
    for (int i = 0; i < 2 * MANY; i++) {
        bool has = absent_has(absent, name_of(text, i));
        kept += has;
        assert_false(has && i >= MANY);
    }
    assert_in_range(kept, 4000, 4096);
    absent_free(absent);
    absent_free(NULL);
}

TEST(a_name_is_forgotten_alone_and_with_all)
{
    struct absent *absent = absent_new();

    absent_put(absent, BYTES_LITERAL("a"));
    absent_put(absent, BYTES_LITERAL("b"));
    absent_forget(absent, BYTES_LITERAL("a"));
    absent_forget(absent, BYTES_LITERAL("never put"));
    assert_false(absent_has(absent, BYTES_LITERAL("a")));
    assert_true(absent_has(absent, BYTES_LITERAL("b")));
    absent_clear(absent);
    assert_false(absent_has(absent, BYTES_LITERAL("b")));
    absent_put(absent, BYTES_LITERAL("b"));
    assert_true(absent_has(absent, BYTES_LITERAL("b")));
    absent_free(absent);
}
