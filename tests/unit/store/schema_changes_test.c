/* SPDX-License-Identifier: Apache-2.0 */
/* What other programs do to Stockade's own tables and views: it is noticed and named, at the start
 * and while the store is at work, and where it could change what is written, nothing is. */
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/store/rig.h"

static const struct kind {
    const char *does, *undoes; /* %s: the table or view; NULL: only another file helps */
    const char *named;         /* what says so */
    bool harms;
} on_tables[] =
    {
        {"CREATE TRIGGER veto BEFORE UPDATE ON %s BEGIN SELECT RAISE(IGNORE); END",
         "DROP TRIGGER veto", "trigger veto on", true},
        {"CREATE TRIGGER veto BEFORE INSERT ON %s BEGIN SELECT RAISE(IGNORE); END",
         "DROP TRIGGER veto", "trigger veto on", true},
        {"CREATE TRIGGER after AFTER DELETE ON %s BEGIN SELECT RAISE(ABORT, 'no'); END",
         "DROP TRIGGER after", "trigger after on", true},
        {"CREATE TRIGGER stockade_guard_x AFTER INSERT ON %s BEGIN SELECT 1; END",
         "DROP TRIGGER stockade_guard_x", "trigger stockade_guard_x on", true},
        {"CREATE UNIQUE INDEX lone ON %s(1) WHERE 0", "DROP INDEX lone", "index lone on", true},
        {"CREATE INDEX plain ON %s(1)", "DROP INDEX plain", "index plain on", false},
        {"ALTER TABLE %s ADD COLUMN extra CHECK(extra IS NULL)", "ALTER TABLE %s DROP COLUMN extra",
         "was altered", true},
        {"ALTER TABLE %s RENAME TO away", NULL, "is gone", true},
        {"DROP TABLE %s", NULL, "is gone", true},
},
  on_views[] =
      {
          {"CREATE TRIGGER veto INSTEAD OF DELETE ON %s BEGIN SELECT 1; END", "DROP TRIGGER veto",
           "trigger veto on", true},
},
  elsewhere[] = {
      {"CREATE TABLE stockade_mine(a)%.0s", "DROP TABLE stockade_mine", "stockade_mine", false},
      {"CREATE VIEW stockade_mine AS SELECT 1%.0s", "DROP VIEW stockade_mine", "stockade_mine",
       false},
      {"DROP VIEW stockade_guards%.0s",
       "CREATE VIEW stockade_guards(\"table\", \"column\", prefix, token_column) AS"
       "  SELECT g.name, key, prefix, token FROM stockade_guard AS g"
       "  LEFT JOIN stockade_token_column AS t ON t.name = g.name",
       "stockade_guards is gone", false},
      {"DROP VIEW stockade_guards; CREATE VIEW stockade_guards AS SELECT 1%.0s",
       "DROP VIEW stockade_guards; CREATE VIEW stockade_guards(\"table\", \"column\", prefix, "
       "token_column) AS"
       "  SELECT g.name, key, prefix, token FROM stockade_guard AS g"
       "  LEFT JOIN stockade_token_column AS t ON t.name = g.name",
       "stockade_guards was altered", false},
      {"DROP INDEX stockade_keys%.0s",
       "CREATE INDEX stockade_keys ON stockade_resource(id, type) WHERE type <> 0",
       "stockade_keys is gone", false},
};

static void do_sql(const struct rig *rig, const char *format, const char *table)
{
    char sql[512];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(sql, sizeof sql, format, table);
#pragma GCC diagnostic pop
    rig_sql(rig, sql);
}

static bool is_named_since(const struct rig *rig, size_t from, const char *named)
{
    return strstr(rig_log(rig) + from, named) != NULL;
}

static void expect_write(struct rig *rig, const struct kind *kind)
{
    struct rig_op op = rig_op(true, rig_grant_r, &(struct resource){.id = 0});
    rig_batch(rig, &op, 1);
    assert_int_equal(op.done, 1);
    assert_int_equal(op.base.error, kind != NULL && kind->harms ? STK_STORE : STK_OK);
    if (op.base.error == STK_STORE) {
        assert_contains(op.base.why, kind->named);
        assert_contains(store_stats(rig->store).why, kind->named);
    }
}

/* Leave the store as it was, or another one, and closed. */
static void undo(struct rig *rig, const struct kind *kind, const char *table)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char name[128];

    rig_close(rig);
    if (kind->undoes != NULL) {
        do_sql(rig, kind->undoes, table);
        return;
    }
    for (size_t i = 0; i < COUNT(suffixes); i++) {
        snprintf(name, sizeof name, "%s%s", rig->path, suffixes[i]);
        (void)unlink(name);
    }
    rig_open(rig, false);
    rig_close(rig);
}

/* While the store is at work, and at its next start. */
static void expect_noticed(struct rig *rig, const struct kind *kind, const char *table)
{
    size_t from = strlen(rig_log(rig));
    do_sql(rig, kind->does, table);
    expect_write(rig, kind);
    assert_true(is_named_since(rig, from, kind->named));
    if (kind->undoes != NULL) {
        do_sql(rig, kind->undoes, table);
        expect_write(rig, NULL);
        rig_close(rig);
    } else {
        undo(rig, kind, table);
    }
    do_sql(rig, kind->does, table);
    from = strlen(rig_log(rig));
    if (kind->harms) {
        assert_contains(rig_refusal(rig), kind->named);
    } else {
        rig_open(rig, false);
        assert_true(is_named_since(rig, from, kind->named));
        rig_close(rig);
    }
    undo(rig, kind, table);
    rig_open(rig, false);
    expect_write(rig, NULL);
}

/* Each of a kind ("table" or "view") that the file has, so that a new one is among them. */
static void each_of(struct rig *rig, const char *type, const struct kind *kinds, size_t count)
{
    char sql[160], *names, *rest;
    snprintf(sql, sizeof sql,
             "SELECT name FROM sqlite_schema WHERE type = '%s' AND name GLOB 'stockade_*'", type);
    names = strdup(rig_rows(rig, sql));
    assert_non_null(names);
    for (char *name = strtok_r(names, "\n;", &rest); name != NULL;
         name = strtok_r(NULL, "\n;", &rest))
        for (size_t i = 0; i < count; i++)
            expect_noticed(rig, &kinds[i], name);
    free(names);
}

SQLITE_TEST(what_is_put_on_any_table_of_stockade_s_stops_writes_and_is_named)
{
    each_of(rig, "table", on_tables, COUNT(on_tables));
}

SQLITE_TEST(what_is_put_on_any_view_of_stockade_s_stops_writes_and_is_named)
{
    each_of(rig, "view", on_views, COUNT(on_views));
}

SQLITE_TEST(what_harms_nobody_is_named_and_stops_nothing)
{
    for (size_t i = 0; i < COUNT(elsewhere); i++)
        expect_noticed(rig, &elsewhere[i], "");
}

SQLITE_TEST(users_own_tables_and_triggers_are_none_of_it)
{
    size_t from = strlen(rig_log(rig));
    rig_sql(rig, "CREATE TABLE mine(a); CREATE UNIQUE INDEX mine_a ON mine(a);"
                 "CREATE TRIGGER t AFTER INSERT ON mine BEGIN SELECT 1; END; ANALYZE");
    expect_write(rig, NULL);
    assert_false(is_named_since(rig, from, "Stockade's"));
    rig_reopen(rig);
    expect_write(rig, NULL);
}

SQLITE_TEST(the_one_that_harms_is_named_before_those_that_do_not)
{
    rig_sql(rig, "CREATE VIEW stockade_aaa AS SELECT 1;"
                 "CREATE INDEX plain ON stockade_resource(token);"
                 "CREATE TRIGGER zzz BEFORE INSERT ON stockade_meta BEGIN SELECT 1; END");
    struct kind kind = {.named = "trigger zzz on stockade_meta", .harms = true};
    expect_write(rig, &kind);
    rig_sql(rig, "DROP TRIGGER zzz");
    expect_write(rig, NULL);
    assert_contains(rig_log(rig), "2 differ");
}
