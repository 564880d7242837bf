/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens open a guarded row: the current one of its own resource, and no other. */
#include "tests/unit/store/sql_rig.h"

static enum stk_error furnish(struct store_txn *txn, void *arg)
{
    char why[SQL_WHY_MAX];

    (void)arg;
    rig_grant(txn, "sku:1", "a");
    rig_grant(txn, "sku:1", "b");
    rig_grant(txn, "sku:2", "c");
    rig_grant(txn, "sku:2", "d");
    return txn_guard_create(txn, bytes_of("guarded"), bytes_of("sku"), bytes_of("sku:"), why);
}

static void release(struct store_txn *txn)
{
    rig_release(txn, "sku:1");
}

static int set_up(void **state)
{
    rig_sqlite(state);
    rig_sql(*state, "CREATE TABLE guarded(sku, n); INSERT INTO guarded VALUES('1', 5);");
    assert_ok(rig_write(*state, furnish, NULL));
    return 0;
}

#define RIG_TEST(name) TEST_WITH(set_up, rig_end, struct rig *rig, name)

static const char *change(struct rig *rig, const char *resource, int64_t token, const char *sql)
{
    static struct ask ask;

    ask = ask_of(SQL_MAY_WRITE, sql);
    ask.claim = (struct claim){.resource = bytes_of(resource), .token = token};
    return sql_do(rig, &ask);
}

RIG_TEST(only_the_current_token_of_its_own_resource_opens_a_row)
{
    static const char update[] = "UPDATE guarded SET n = n - 1";

    sql_expect(change(rig, "sku:2", 2, update), "GUARDED ", "sku:1");
    sql_expect(change(rig, "sku:1", 1, update), "GUARDED ", "sku:1");
    sql_expect(change(rig, "sku:1", 3, update), "GUARDED ", "sku:1");
    assert_string_equal(change(rig, "sku:1", 2, update), "");
    assert_string_equal(sql_ask(rig, "SELECT n FROM guarded"), "4;");
}

RIG_TEST(a_row_cannot_be_taken_over_by_giving_it_another_key)
{
    sql_expect(change(rig, "sku:2", 2, "UPDATE guarded SET sku = '2'"), "GUARDED ", "sku:1");
    sql_expect(change(rig, "sku:1", 2, "UPDATE guarded SET sku = '2'"), "GUARDED ", "sku:2");
    assert_string_equal(sql_ask(rig, "SELECT sku, n FROM guarded"), "'1',5;");
}

RIG_TEST(a_retired_token_opens_no_row)
{
    rig_in_write(rig, release);
    sql_expect(change(rig, "sku:1", 2, "DELETE FROM guarded"), "GUARDED ", "nobody holds");
    assert_string_equal(sql_ask(rig, "SELECT sku, n FROM guarded"), "'1',5;");
}
