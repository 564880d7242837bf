/* SPDX-License-Identifier: Apache-2.0 */
/* Where SQLite gets no memory the SQLite store returns an error, and the process goes on. */
#include "store/sql.h"
#include "store/sqlite/sql_memory.h"
#include "tests/disk/fault_memory.h"
#include "tests/unit/store/rig.h"

TESTS_HAVE_ONE_THREAD

SQLITE_TEST(a_store_that_cannot_be_opened_for_lack_of_memory_says_so)
{
    char why[256];
    int64_t at = 0;
    bool met = true;

    rig_close(rig);
    while (met) {
        at += at < 100 ? 1 : 13;
        why[0] = '\0';
        fault_memory_set(at, true);
        struct store *store = store_sqlite_open(
            &(struct store_options){
                .path = rig->path, .queue_ops_max = 4, .batch_ops_max = 4, .clock = &rig->clock},
            why, sizeof why);
        met = fault_memory_end();
        if (store != NULL)
            store_close(store);
        else
            assert_true(why[0] != '\0');
    }
    assert_true(at > 300); /* it did not give up early */
    rig_open(rig, false);
}

static void note_broken(void *context, const struct table_guard *guard, struct bytes flaw)
{
    (void)guard;
    *(int *)context += flaw.len > 0 ? 100 : 1;
}

static enum stk_error guard(struct store_txn *txn, void *arg)
{
    char why[SQL_WHY_MAX];

    (void)arg;
    return txn_guard_create(txn,
                            &(struct table_guard){.table = bytes_of("stock"),
                                                  .column = bytes_of("sku"),
                                                  .prefix = bytes_of("sku:")},
                            why);
}

static enum stk_error unguard(struct store_txn *txn, void *arg)
{
    char why[SQL_WHY_MAX];

    (void)arg;
    return txn_guard_drop(txn, bytes_of("stock"), why);
}

static enum stk_error count_guards(struct store_txn *txn, void *arg)
{
    return txn_guards(txn, note_broken, arg);
}

SQLITE_TEST(a_guard_is_made_whole_or_not_at_all_where_memory_runs_out)
{
    int64_t at = 0;
    bool met = true;

    rig_sql(rig, "CREATE TABLE stock(sku PRIMARY KEY, n)");
    while (met) {
        int guards = 0;
        at++;
        /* Where the store fails an operation of a batch, it gets a second chance. */
        fault_memory_set(at, false);
        enum stk_error error = rig_write(rig, guard, NULL);
        met = fault_memory_end();
        if (store_lost(rig->store)) /* by the COMMIT */
            rig_reopen(rig);
        assert_ok(rig_write(rig, count_guards, &guards));
        assert_true(guards == 1 || (guards == 0 && error != STK_OK));
        if (guards == 1)
            assert_ok(rig_write(rig, unguard, NULL));
    }
    assert_true(at > 300);
}

static enum stk_error set_a(struct store_txn *txn, void *arg)
{
    return rig_try_set(txn, "a", bytes_of(arg));
}

/* As long as it was: the string is overwritten. */
static enum stk_error set_r(struct store_txn *txn, void *arg)
{
    return rig_try_set(txn, "r", bytes_of(arg));
}

SQLITE_TEST(a_string_is_overwritten_or_left_where_memory_runs_out)
{
    int64_t at = 0;
    bool met = true;
    char expected[16] = "r-000", value[16], found[16];

    assert_ok(rig_write(rig, set_a, "a"));
    rig_write_r(rig, expected);
    while (met) {
        struct rig_op first = rig_op(true, set_a, "a");
        struct rig_op second = rig_op(true, set_r, value);
        at++;
        assert_ok(rig_write(rig, set_r, expected)); /* its length is known */
        snprintf(value, sizeof value, "r-%03d", (int)(at % 1000));
        rig_submit(rig, &first);
        rig_submit(rig, &second);
        fault_memory_set(at, false);
        rig_settle(rig);
        met = fault_memory_end();
        bool lost = store_lost(rig->store); /* by the COMMIT */
        if (lost)
            rig_reopen(rig);
        assert_ok(rig_write(rig, rig_get_r, found));
        if (lost ? strcmp(found, value) == 0 : second.base.error == STK_OK)
            snprintf(expected, sizeof expected, "%s", value);
        assert_string_equal(found, expected);
    }
    assert_true(at > 5);
}

static int install(void **state)
{
    (void)state;
    sql_memory_install();
    fault_memory_install();
    return 0;
}

AROUND_ALL_TESTS(install, NULL);
