/* SPDX-License-Identifier: Apache-2.0 */
/* The writer remembers the fields of hashes, and the strings, that it has read, and needs no second
 * look at them. Whatever becomes of the row, it returns no old value, nor one that was never
 * committed. */
#include "store/sqlite/fields.h"

#include "store/sqlite/transaction.h"
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

/* Put a field of "h". */
static void put(struct store_txn *txn, const char *field, const char *value)
{
    struct resource resource = rig_find(txn, "h");

    assert_ok(txn_resource_make(txn, BYTES_LITERAL("h"), &resource));
    assert_ok(txn_field_put(txn, &resource, bytes_of(field), bytes_of(value)));
}

/* Its value, "(none)" where there is none. Static storage. */
static const char *get(struct store_txn *txn, const char *field)
{
    static char text[128];
    struct resource resource = rig_find(txn, "h");
    struct bytes value;
    bool found;

    assert_ok(txn_field(txn, &resource, bytes_of(field), &found, &value));
    if (!found)
        return "(none)";
    snprintf(text, sizeof text, "%.*s", (int)value.len, value.data);
    return text;
}

/* How often the file was asked. */
static int looks(struct store_txn *txn, enum statement statement)
{
    sqlite3_stmt *stmt = ((struct transaction *)txn)->statements[statement];
    return stmt == NULL ? 0 : sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_RUN, 0);
}

/* Is f's value so, and was it remembered? */
static void remembers(struct store_txn *txn, const char *value)
{
    int before = looks(txn, STATEMENT_FIELD);

    assert_string_equal(get(txn, "f"), value);
    assert_int_equal(looks(txn, STATEMENT_FIELD), before);
}

static void looks_again(struct store_txn *txn, const char *value)
{
    int before = looks(txn, STATEMENT_FIELD);

    assert_string_equal(get(txn, "f"), value);
    assert_int_equal(looks(txn, STATEMENT_FIELD), before + 1);
}

static enum stk_error learn_f(struct store_txn *txn, void *arg)
{
    put(txn, "f", arg);
    put(txn, "g", "gee");
    assert_string_equal(get(txn, "f"), arg);
    remembers(txn, arg);
    return STK_OK;
}

static enum stk_error f_is(struct store_txn *txn, void *arg)
{
    assert_string_equal(get(txn, "f"), arg);
    remembers(txn, arg);
    return STK_OK;
}

static enum stk_error put_f_and_fail(struct store_txn *txn, void *arg)
{
    put(txn, "f", arg);
    remembers(txn, arg);
    return STK_ERR;
}

static void f_is_empty(struct store_txn *txn)
{
    assert_string_equal(get(txn, "f"), "");
}

SQLITE_TEST(a_field_that_was_read_is_remembered_and_follows_what_is_put)
{
    assert_ok(rig_write(rig, learn_f, "one"));
    assert_ok(rig_write(rig, learn_f, "another length"));
    assert_ok(rig_write(rig, learn_f, ""));
    rig_in_read(rig, f_is_empty);
}

static void put_long(struct store_txn *txn)
{
    static char value[101], field[101], *const longest = value + 100 - 53;

    memset(value, 'v', 100);
    memset(field, 'f', 100);
    put(txn, "f", longest + 1);
    remembers(txn, longest + 1);
    put(txn, "f", longest); /* the longest that is taken */
    remembers(txn, longest);
    put(txn, "f", longest - 1);
    looks_again(txn, longest - 1);
    looks_again(txn, longest - 1);
    put(txn, field, "v");
    assert_string_equal(get(txn, field), "v");
    put(txn, field, "w");
    assert_string_equal(get(txn, field), "w");
}

SQLITE_TEST(a_long_one_is_left)
{
    assert_ok(rig_write(rig, learn_f, "one"));
    rig_in_write(rig, put_long);
}

SQLITE_TEST(what_was_undone_is_not_remembered)
{
    assert_ok(rig_write(rig, learn_f, "one"));
    assert_int_equal(rig_write(rig, put_f_and_fail, "never"), STK_ERR);
    assert_ok(rig_write(rig, f_is, "one"));
    rig_fail_commit(rig);
    assert_int_equal(rig_write(rig, learn_f, "never"), STK_STORE);
    rig_heal(rig);
    assert_ok(rig_write(rig, f_is, "one"));
}

static void put_and_undo(struct store_txn *txn)
{
    assert_ok(txn_savepoint(txn));
    put(txn, "f", "never");
    remembers(txn, "never");
    assert_ok(txn_savepoint_undo(txn));
    looks_again(txn, "one");
    assert_ok(txn_savepoint(txn));
    struct resource resource = rig_find(txn, "h");
    bool found;
    assert_ok(txn_field_remove(txn, &resource, BYTES_LITERAL("f"), &found));
    assert_true(found);
    assert_string_equal(get(txn, "f"), "(none)");
    assert_ok(txn_savepoint_undo(txn));
    assert_string_equal(get(txn, "f"), "one");
}

SQLITE_TEST(nor_what_a_savepoint_took_back)
{
    assert_ok(rig_write(rig, learn_f, "one"));
    rig_in_write(rig, put_and_undo);
}

SQLITE_TEST(what_another_program_has_changed_is_read_again)
{
    assert_ok(rig_write(rig, learn_f, "one"));
    rig_sql(rig, "UPDATE stockade_hash SET value = x'74' WHERE field = x'66'");
    assert_ok(rig_write(rig, f_is, "t"));
}

static void remove_f(struct store_txn *txn)
{
    struct resource resource = rig_find(txn, "h");
    bool found;

    remembers(txn, "one");
    assert_ok(txn_field_remove(txn, &resource, BYTES_LITERAL("f"), &found));
    assert_true(found);
    looks_again(txn, "(none)");
    assert_ok(txn_field_remove(txn, &resource, BYTES_LITERAL("f"), &found));
    assert_false(found);
}

static void clear_h(struct store_txn *txn)
{
    struct resource resource = rig_find(txn, "h");

    assert_ok(txn_value_clear(txn, &resource));
    put(txn, "g", "gee"); /* the same row, again a hash */
    looks_again(txn, "(none)");
}

static void flush_all(struct store_txn *txn)
{
    assert_ok(flush_in_steps(txn));
}

SQLITE_TEST(what_was_removed_is_forgotten)
{
    assert_ok(rig_write(rig, learn_f, "one"));
    rig_in_write(rig, remove_f);
    assert_ok(rig_write(rig, learn_f, "one"));
    rig_in_write(rig, clear_h);
    assert_ok(rig_write(rig, learn_f, "one"));
    rig_in_write(rig, flush_all);
    rig_in_write(rig, clear_h);
}

/* A field of no bytes can be asked for. */
static void ask_for_nothing(struct store_txn *txn)
{
    assert_string_equal(get(txn, ""), "(none)");
}

SQLITE_TEST(no_hash_has_a_field_without_a_name)
{
    assert_ok(rig_write(rig, learn_f, "one"));
    rig_in_write(rig, ask_for_nothing);
}

static void count_looks_at_s(struct store_txn *txn)
{
    rig_set(txn, "s", "1");
    assert_string_equal(rig_get(txn, "s"), "1");
    int before = looks(txn, STATEMENT_STRING);
    rig_set(txn, "s", "2");
    assert_string_equal(rig_get(txn, "s"), "2");
    assert_int_equal(looks(txn, STATEMENT_STRING), before);
}

SQLITE_TEST(a_string_that_was_read_needs_no_second_look_either)
{
    rig_in_write(rig, count_looks_at_s);
}

/* The table itself. */

static bool has(struct fields *fields, uint32_t mark, const char *field, const char *expected)
{
    struct bytes value;

    if (!fields_find(fields, mark, bytes_of(field), &value))
        return false;
    assert_true(bytes_equal(value, bytes_of(expected)));
    return true;
}

TEST(fields_of_several_hashes_do_not_meet)
{
    struct fields *fields = fields_new();
    uint32_t a = fields_mark(fields), b = fields_mark(fields);
    char text[32];
    int kept = 0;

    assert_int_not_equal(a, b);
    for (int i = 0; i < 300000; i++) { /* more than it has places */
        snprintf(text, sizeof text, "%d", i);
        fields_put(fields, i % 2 == 0 ? a : b, bytes_of(text), bytes_of(text));
    }
    for (int i = 0; i < 300000; i++) {
        snprintf(text, sizeof text, "%d", i);
        kept += has(fields, i % 2 == 0 ? a : b, text, text);
        assert_false(has(fields, i % 2 == 0 ? b : a, text, text));
    }
    assert_in_range(kept, 100000, 1 << 17);
    fields_free(fields);
}

TEST(one_field_of_many_hashes_is_each_ones_own)
{
    enum { HASHES = 300000 };
    struct fields *fields = fields_new();
    uint32_t first = fields_mark(fields);
    char text[32];
    int kept = 0;

    for (uint32_t mark = first; mark < first + HASHES; mark++) {
        snprintf(text, sizeof text, "%u", mark);
        fields_put(fields, mark, BYTES_LITERAL("f"), bytes_of(text));
    }
    for (uint32_t mark = first; mark < first + HASHES; mark++) {
        snprintf(text, sizeof text, "%u", mark);
        kept += has(fields, mark, "f", text);
    }
    assert_in_range(kept, 100000, 1 << 17);
    fields_free(fields);
}

TEST(a_clear_forgets_all_and_gives_the_marks_anew)
{
    struct fields *fields = fields_new();
    uint32_t mark = fields_mark(fields);

    fields_put(fields, mark, BYTES_LITERAL("f"), BYTES_LITERAL("one"));
    assert_true(has(fields, mark, "f", "one"));
    fields_clear(fields);
    assert_int_equal(fields_mark(fields), mark);
    assert_false(has(fields, mark, "f", ""));
    for (uint32_t i = 1; i < FIELDS_MARKS_MAX; i++)
        assert_int_not_equal(fields_mark(fields), 0);
    assert_int_equal(fields_mark(fields), 0);
    fields_clear(fields);
    assert_int_equal(fields_mark(fields), mark);
    fields_free(fields);
}

TEST(a_cache_without_a_mark_left_begins_anew)
{
    struct cache *cache = cache_new(1 << 10);
    struct bytes name = BYTES_LITERAL("h"), field = BYTES_LITERAL("f"), value;

    for (uint32_t i = 1; i <= FIELDS_MARKS_MAX + 1; i++) {
        cache_put(cache, name, &(struct resource){.id = 1, .type = VALUE_HASH});
        cache_field_put(cache, 1, field, name);
        assert_int_equal(cache_field(cache, 1, field, &value), i <= FIELDS_MARKS_MAX);
        cache_commit(cache);
    }
    assert_false(cache_find(cache, name, &(struct resource){.id = 0}));
    cache_put(cache, name, &(struct resource){.id = 1, .type = VALUE_HASH});
    cache_field_put(cache, 1, field, name);
    assert_true(cache_field(cache, 1, field, &value));
    cache_free(cache);
}
