/* SPDX-License-Identifier: Apache-2.0 */
/* Guards in the store: made whole or not at all, and checked whenever the schema may have changed.
 */
#include "store/sql.h"
#include "tests/unit/store/rig.h"

struct ask {
    const char *table, *column, *prefix;
    bool drop;
    enum stk_error error;
    char why[SQL_WHY_MAX];
};

static enum stk_error change(struct store_txn *txn, void *arg)
{
    struct ask *ask = arg;

    ask->error = ask->drop
                     ? txn_guard_drop(txn, bytes_of(ask->table), ask->why)
                     : txn_guard_create(txn,
                                        &(struct table_guard){.table = bytes_of(ask->table),
                                                              .column = bytes_of(ask->column),
                                                              .prefix = bytes_of(ask->prefix)},
                                        ask->why);
    return STK_OK;
}

/* Return why it fails, "" where it succeeds. Static storage. */
static const char *done(struct rig *rig, struct ask asked)
{
    static struct ask ask;

    ask = asked;
    assert_ok(rig_write(rig, change, &ask));
    assert_true((ask.error == STK_OK) == (ask.why[0] == '\0'));
    return ask.why;
}

static const char *create(struct rig *rig, const char *table, const char *column,
                          const char *prefix)
{
    return done(rig, (struct ask){.table = table, .column = column, .prefix = prefix});
}

static const char *drop(struct rig *rig, const char *table)
{
    return done(rig, (struct ask){.table = table, .drop = true});
}

static void list_one(void *context, const struct table_guard *guard, struct bytes flaw)
{
    char *text = context;
    size_t used = strlen(text);

    snprintf(text + used, 256 - used, "%.*s.%.*s=%.*s%s;", (int)guard->table.len, guard->table.data,
             (int)guard->column.len, guard->column.data, (int)guard->prefix.len, guard->prefix.data,
             flaw.len > 0 ? " broken" : "");
}

static enum stk_error list_all(struct store_txn *txn, void *arg)
{
    *(char *)arg = '\0';
    return txn_guards(txn, list_one, arg);
}

/* "table.column=prefix;" for each guard, " broken" before the semicolon where it is. */
static const char *list(struct rig *rig)
{
    static char text[256];
    assert_ok(rig_write(rig, list_all, text));
    return text;
}

static int64_t parts(const struct rig *rig)
{
    return rig_number(rig, "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'stockade_guard__%'"
                           " AND type IN ('trigger', 'index')");
}

static void expect_guards(struct rig *rig, const char *listed, int64_t parts_there)
{
    assert_string_equal(list(rig), listed);
    assert_int_equal(parts(rig), parts_there);
}

/* Run another program's statements, and expect this list. */
static void expect_after(struct rig *rig, const char *sql, const char *listed)
{
    rig_sql(rig, sql);
    assert_string_equal(list(rig), listed);
}

SQLITE_TEST(a_guard_is_listed_and_lasts)
{
    rig_sql(rig, "CREATE TABLE inventory(sku TEXT PRIMARY KEY, left INT);"
                 "INSERT INTO inventory VALUES('a', 1), (7, 2)");
    assert_string_equal(create(rig, "inventory", "sku", "sku:"), "");
    expect_guards(rig, "inventory.sku=sku:;", 6);
    rig_reopen(rig);
    assert_string_equal(list(rig), "inventory.sku=sku:;");
    assert_null(strstr(rig_log(rig), "broken"));
    assert_string_equal(drop(rig, "inventory"), "");
    expect_guards(rig, "", 0);
    assert_int_equal(rig_number(rig, "SELECT count(*) FROM stockade_guard"), 0);
}

SQLITE_TEST(names_are_found_in_any_case_and_kept_as_the_schema_spells_them)
{
    rig_sql(rig, "CREATE TABLE Inventory(Sku TEXT)");
    assert_string_equal(create(rig, "INVENTORY", "sKU", "Sku:"), "");
    assert_string_equal(list(rig), "Inventory.Sku=Sku:;");
    assert_contains(create(rig, "inventory", "sku", "Sku:"), "guarded already");
    assert_string_equal(drop(rig, "inventorY"), "");
    assert_int_equal(parts(rig), 0);
}

SQLITE_TEST(names_may_hold_anything)
{
    rig_sql(rig, "CREATE TABLE \"my \"\"table'; --\"(\"a'b\"\"c\" TEXT, x);"
                 "CREATE TABLE \"t\303\244\"(\"select\");"
                 "INSERT INTO \"t\303\244\" VALUES(1)");
    assert_string_equal(create(rig, "my \"table'; --", "a'b\"c", "it's:"), "");
    assert_string_equal(create(rig, "t\303\244", "select", ""), "");
    assert_string_equal(list(rig), "my \"table'; --.a'b\"c=it's:;t\303\244.select=;");
    assert_string_equal(drop(rig, "my \"table'; --"), "");
    assert_string_equal(drop(rig, "t\303\244"), "");
    assert_int_equal(parts(rig), 0);
}

SQLITE_TEST(only_the_users_own_tables_can_be_guarded)
{
    rig_sql(rig, "CREATE TABLE t(k, g AS (k || 'x') STORED); CREATE VIEW v AS SELECT k FROM t;"
                 "CREATE VIRTUAL TABLE f USING fts5(k); CREATE TABLE a(k INTEGER PRIMARY KEY "
                 "AUTOINCREMENT)");
    assert_contains(create(rig, "nosuch", "k", "t:"), "there is no table nosuch");
    assert_contains(create(rig, "t", "nosuch", "t:"), "has no column nosuch");
    assert_contains(create(rig, "t", "rowid", "t:"), "has no column rowid");
    assert_contains(create(rig, "v", "k", "t:"), "v is a view");
    assert_contains(create(rig, "f", "k", "t:"), "f is a virtual");
    assert_contains(create(rig, "f_content", "c0", "t:"), "f_content is a shadow");
    assert_contains(create(rig, "sqlite_sequence", "name", "t:"), "not one of your own");
    assert_contains(create(rig, "sqlite_schema", "name", "t:"), "not one of your own");
    assert_contains(create(rig, "STOCKADE_meta", "key", "t:"), "not one of your own");
    assert_contains(drop(rig, "t"), "not guarded");
    assert_int_equal(parts(rig), 0);
    assert_string_equal(list(rig), "");
    assert_string_equal(create(rig, "t", "g", "t:"), "");
    assert_string_equal(create(rig, "a", "k", "t:"), "");
}

static void create_with_zero(struct store_txn *txn)
{
    struct bytes bad = {"t\0t", 3}, good = BYTES_LITERAL("t");
    char why[SQL_WHY_MAX] = "";

    assert_int_equal(
        txn_guard_create(txn, &(struct table_guard){.table = bad, .column = good, .prefix = good},
                         why),
        STK_ERR);
    assert_int_equal(
        txn_guard_create(txn, &(struct table_guard){.table = good, .column = bad, .prefix = good},
                         why),
        STK_ERR);
    assert_int_equal(
        txn_guard_create(txn, &(struct table_guard){.table = good, .column = good, .prefix = bad},
                         why),
        STK_ERR);
    assert_contains(why, "no zero bytes");
}

SQLITE_TEST(a_name_with_a_zero_byte_is_refused)
{
    rig_sql(rig, "CREATE TABLE t(t)");
    rig_in_write(rig, create_with_zero);
    assert_string_equal(list(rig), "");
}

SQLITE_TEST(rows_whose_key_names_no_resource_are_counted_and_refuse_the_guard)
{
    rig_sql(rig, "CREATE TABLE t(k);"
                 "INSERT INTO t VALUES(1), ('a'), (NULL), (1.5), (x'00'), (printf('%600c', 'x'))");
    assert_contains(create(rig, "t", "k", "t:"), "4 rows of t have a k that names no resource");
    assert_int_equal(parts(rig), 0);
    rig_sql(rig, "DELETE FROM t WHERE typeof(k) NOT IN ('integer', 'text') OR length(k) > 500");
    assert_string_equal(create(rig, "t", "k", "t:"), "");
    rig_sql(rig, "CREATE TABLE e(k); INSERT INTO e VALUES('')");
    assert_contains(create(rig, "e", "k", ""), "1 rows of e");
    assert_string_equal(create(rig, "e", "k", "e:"), "");
}

static void make_guarded_t(struct rig *rig)
{
    rig_sql(rig, "CREATE TABLE t(a, b)");
    assert_string_equal(create(rig, "t", "a", "t:"), "");
}

SQLITE_TEST(a_table_has_one_guard)
{
    make_guarded_t(rig);
    assert_contains(create(rig, "t", "a", "t:"), "guarded already, by column a and prefix t:");
    assert_contains(create(rig, "t", "b", "u:"), "guarded already");
    assert_string_equal(list(rig), "t.a=t:;");
}

SQLITE_TEST(our_own_changes_are_not_taken_for_foreign_ones)
{
    expect_after(rig, "CREATE TABLE t(a)", "");
    assert_contains(rig_log(rig), "another program has changed the schema");
    size_t logged = strlen(rig_log(rig));
    assert_string_equal(create(rig, "t", "a", "t:"), "");
    assert_string_equal(drop(rig, "t"), "");
    assert_string_equal(create(rig, "t", "a", "t:"), "");
    expect_after(rig, "INSERT INTO stockade_meta VALUES('foreign', 'commit')", "t.a=t:;");
    assert_int_equal(strlen(rig_log(rig)), logged);
}

static const char *const part_names[] = {
    "TRIGGER stockade_guard_insert_t", "TRIGGER stockade_guard_inserted_t",
    "TRIGGER stockade_guard_update_t", "TRIGGER stockade_guard_updated_t",
    "TRIGGER stockade_guard_delete_t", "INDEX stockade_guard_blob_t"};

SQLITE_TEST(each_lost_part_breaks_a_guard_and_the_same_again_restores_it)
{
    char sql[128];

    rig_sql(rig, "CREATE TABLE t(a, b); INSERT INTO t VALUES('x', 1)");
    assert_string_equal(create(rig, "t", "a", "t:"), "");
    for (size_t i = 0; i < COUNT(part_names); i++) {
        snprintf(sql, sizeof sql, "DROP %s", part_names[i]);
        rig_sql(rig, sql);
        assert_string_equal(list(rig), "t.a=t: broken;");
        assert_contains(rig_log(rig), strchr(part_names[i], ' ') + 1);
        assert_contains(create(rig, "t", "b", "t:"), "guarded already");
        assert_contains(create(rig, "t", "a", "u:"), "guarded already");
        assert_string_equal(create(rig, "t", "a", "t:"), "");
        assert_string_equal(list(rig), "t.a=t:;");
        assert_int_equal(parts(rig), 6);
    }
    assert_contains(rig_log(rig), "the guard of table \"t\" is whole again");
}

SQLITE_TEST(each_altered_part_breaks_a_guard)
{
    char sql[256];

    rig_sql(rig, "CREATE TABLE t(a, b); CREATE TABLE other(a)");
    assert_string_equal(create(rig, "t", "a", "t:"), "");
    for (size_t i = 0; i < COUNT(part_names); i++) {
        const char *name = strchr(part_names[i], ' ') + 1;
        bool index = strncmp(part_names[i], "INDEX", 5) == 0;
        snprintf(sql, sizeof sql, "DROP %s; CREATE %s %s", part_names[i], part_names[i],
                 index ? "ON other(a)" : "BEFORE INSERT ON t BEGIN SELECT 1; END");
        rig_sql(rig, sql);
        assert_string_equal(list(rig), "t.a=t: broken;");
        assert_contains(rig_log(rig), name);
        assert_string_equal(create(rig, "t", "a", "t:"), "");
        assert_string_equal(list(rig), "t.a=t:;");
    }
}

SQLITE_TEST(a_table_that_is_renamed_dropped_or_altered_is_noticed)
{
    make_guarded_t(rig);
    expect_after(rig, "ALTER TABLE t ADD COLUMN c", "t.a=t:;");
    expect_after(rig, "ALTER TABLE t RENAME COLUMN a TO aa", "t.a=t: broken;");
    assert_contains(create(rig, "t", "a", "t:"), "has no column a");
    expect_after(rig, "ALTER TABLE t RENAME COLUMN aa TO a", "t.a=t:;");
    expect_after(rig, "ALTER TABLE t RENAME TO old; CREATE TABLE t(a, b)", "t.a=t: broken;");
    expect_after(rig, "DROP TABLE t; ALTER TABLE old RENAME TO t", "t.a=t:;");
    expect_after(rig, "DROP TABLE t", "t.a=t: broken;");
    assert_contains(create(rig, "t", "a", "t:"), "no table t");
    make_guarded_t(rig);
    assert_string_equal(list(rig), "t.a=t:;");
}

SQLITE_TEST(a_broken_guard_can_be_dropped)
{
    rig_sql(rig, "CREATE TABLE t(a); CREATE TABLE u(a)");
    assert_string_equal(create(rig, "t", "a", "t:"), "");
    assert_string_equal(create(rig, "u", "a", "u:"), "");
    expect_after(rig, "DROP TRIGGER stockade_guard_delete_t; DROP TABLE u",
                 "t.a=t: broken;u.a=u: broken;");
    assert_string_equal(drop(rig, "t"), "");
    assert_string_equal(drop(rig, "u"), "");
    expect_guards(rig, "", 0);
}

SQLITE_TEST(a_guard_lost_while_the_store_was_closed_is_reported_at_its_opening)
{
    make_guarded_t(rig);
    rig_close(rig);
    rig_sql(rig, "DROP TRIGGER stockade_guard_updated_t");
    rig_open(rig, false);
    assert_contains(rig_log(rig), "the guard of table \"t\" is broken");
    assert_string_equal(list(rig), "t.a=t: broken;");
}

SQLITE_TEST(guards_of_another_program_are_seen)
{
    char before[512];

    make_guarded_t(rig);
    expect_after(rig, "DELETE FROM stockade_guard; CREATE TABLE news(a)", "");
    assert_contains(rig_log(rig), "another program has removed the guard of table \"t\"");
    snprintf(before, sizeof before, "%s", rig_log(rig));
    expect_after(rig, "INSERT INTO stockade_guard VALUES('t', 'a', 't:'); CREATE TABLE more(a)",
                 "t.a=t:;");
    assert_contains(rig_log(rig) + strlen(before), "another program has guarded table \"t\"");
}

static enum stk_error create_and_fail(struct store_txn *txn, void *arg)
{
    (void)change(txn, arg);
    return STK_ERR;
}

SQLITE_TEST(a_guard_whose_operation_or_commit_fails_is_not_there)
{
    struct ask ask = {.table = "t", .column = "a", .prefix = "t:"};

    rig_sql(rig, "CREATE TABLE t(a)");
    assert_int_equal(rig_write(rig, create_and_fail, &ask), STK_ERR);
    assert_int_equal(ask.error, STK_OK);
    expect_guards(rig, "", 0);

    rig_fail_commit(rig);
    assert_int_equal(rig_write(rig, change, &ask), STK_STORE);
    rig_heal(rig);
    expect_guards(rig, "", 0);
    assert_string_equal(create(rig, "t", "a", "t:"), "");
    assert_string_equal(list(rig), "t.a=t:;");
}

SQLITE_TEST(a_refused_guard_does_not_disturb_the_rest_of_its_operation)
{
    struct ask good = {.table = "t", .column = "a", .prefix = "t:"},
               bad = {.table = "u", .column = "a", .prefix = "u:"};
    struct rig_op ops[] = {rig_op(true, change, &good), rig_op(true, change, &bad)};

    rig_sql(rig, "CREATE TABLE t(a); CREATE TABLE u(a); INSERT INTO u VALUES(NULL)");
    rig_batch(rig, ops, 2);
    assert_int_equal(good.error, STK_OK);
    assert_int_equal(bad.error, STK_ERR);
    assert_int_equal(ops[0].runs, 1);
    expect_guards(rig, "t.a=t:;", 6);
}

MEMORY_TEST(the_memory_store_has_no_guards)
{
    struct ask ask = {.table = "t", .column = "a", .prefix = "t:"};

    assert_ok(rig_write(rig, change, &ask));
    assert_int_equal(ask.error, STK_ERR);
    assert_contains(ask.why, "no SQL");
    assert_string_equal(list(rig), "");
}
