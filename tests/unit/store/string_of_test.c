/* SPDX-License-Identifier: Apache-2.0 */
/* A shortcut from a name to its string: the reader remembers the ids of names and needs one
 * look-up, the writer remembers the strings that it has read and written and needs none. Whatever
 * becomes of the row and of the file, neither returns another key's value, an old one, or one that
 * was never committed. */
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

static enum stk_error set_a_and_b(struct store_txn *txn, void *arg)
{
    rig_set(txn, "a", arg);
    rig_set(txn, "b", "bee");
    return STK_OK;
}

/* The shortcut's answer, "(none)" where it has none. Static storage. */
static const char *of_name(struct store_txn *txn, const char *name)
{
    static char text[64];
    struct bytes value;
    bool found;

    assert_ok(txn_string_of(txn, bytes_of(name), &found, &value));
    if (!found)
        return "(none)";
    snprintf(text, sizeof text, "%.*s", (int)value.len, value.data);
    return text;
}

static enum stk_error a_is(struct store_txn *txn, void *arg)
{
    assert_string_equal(of_name(txn, "a"), arg);
    return STK_OK;
}

/* Look it up as GET does, which makes it be remembered. */
static enum stk_error get_a(struct store_txn *txn, void *arg)
{
    if (strcmp(of_name(txn, "a"), "(none)") == 0)
        assert_string_equal(rig_get(txn, "a"), arg);
    else
        assert_string_equal(of_name(txn, "a"), arg);
    return STK_OK;
}

static void remember_a(struct rig *rig)
{
    assert_ok(rig_write(rig, set_a_and_b, "one"));
    assert_ok(rig_read(rig, get_a, "one"));
    assert_ok(rig_read(rig, a_is, "one")); /* by the shortcut now */
}

/* By another program. */
static const char set_a_to_t[] =
    "UPDATE stockade_string SET value = x'74'"
    " WHERE id = (SELECT id FROM stockade_resource WHERE name = x'61')";

SQLITE_TEST(it_is_the_newest)
{
    remember_a(rig);
    assert_ok(rig_write(rig, set_a_and_b, "two"));
    assert_ok(rig_read(rig, a_is, "two"));
    rig_sql(rig, set_a_to_t);
    assert_ok(rig_read(rig, a_is, "t"));
}

/* The writer. */

static void let_the_writer_remember_a(struct rig *rig)
{
    assert_ok(rig_write(rig, set_a_and_b, "one"));
    assert_ok(rig_write(rig, a_is, "(none)")); /* it was not asked for */
    assert_ok(rig_write(rig, get_a, "one"));
    assert_ok(rig_write(rig, a_is, "one"));
}

SQLITE_TEST(a_writer_remembers_what_it_read_and_what_it_writes_over_it)
{
    let_the_writer_remember_a(rig);
    assert_ok(rig_write(rig, set_a_and_b, "two"));
    assert_ok(rig_write(rig, a_is, "two"));
}

SQLITE_TEST(a_writer_forgets_what_another_program_has_changed)
{
    let_the_writer_remember_a(rig);
    rig_sql(rig, set_a_to_t);
    assert_ok(rig_write(rig, a_is, "(none)"));
    assert_ok(rig_write(rig, get_a, "t"));
    assert_ok(rig_write(rig, a_is, "t"));
}

static enum stk_error set_a_and_fail(struct store_txn *txn, void *arg)
{
    rig_set(txn, "a", arg);
    assert_string_equal(of_name(txn, "a"), arg);
    return STK_ERR;
}

static enum stk_error set_a_and_undo(struct store_txn *txn, void *arg)
{
    assert_ok(txn_savepoint(txn));
    (void)set_a_and_fail(txn, arg);
    return txn_savepoint_undo(txn);
}

SQLITE_TEST(a_writer_does_not_remember_what_was_undone)
{
    let_the_writer_remember_a(rig);
    assert_int_equal(rig_write(rig, set_a_and_fail, "never"), STK_ERR);
    assert_ok(rig_write(rig, get_a, "one"));
    assert_ok(rig_write(rig, set_a_and_undo, "never"));
    assert_ok(rig_write(rig, get_a, "one"));
    rig_fail_commit(rig);
    assert_int_equal(rig_write(rig, set_a_and_b, "never"), STK_STORE);
    rig_heal(rig);
    assert_ok(rig_write(rig, get_a, "one"));
}

static enum stk_error clear_a(struct store_txn *txn, void *arg)
{
    struct resource resource = rig_find(txn, "a");

    assert_ok(txn_value_clear(txn, &resource));
    assert_string_equal(of_name(txn, "a"), "(none)");
    return arg == NULL ? STK_OK : txn_field_put(txn, &resource, BYTES_LITERAL("f"), bytes_of(arg));
}

static void flush_all(struct store_txn *txn)
{
    assert_ok(flush_in_steps(txn));
}

SQLITE_TEST(a_writer_forgets_what_was_removed)
{
    let_the_writer_remember_a(rig);
    assert_ok(rig_write(rig, clear_a, NULL));
    assert_ok(rig_write(rig, a_is, "(none)"));
    let_the_writer_remember_a(rig);
    assert_ok(rig_write(rig, clear_a, "a hash now"));
    assert_ok(rig_write(rig, a_is, "(none)"));
    assert_ok(rig_write(rig, clear_a, NULL));
    let_the_writer_remember_a(rig);
    rig_in_write(rig, flush_all);
    assert_ok(rig_write(rig, a_is, "(none)"));
}

/* The reader again. */

SQLITE_TEST(a_row_that_went_and_came_back_is_another)
{
    remember_a(rig);
    rig_sql(rig, "DELETE FROM stockade_string"
                 " WHERE id = (SELECT id FROM stockade_resource WHERE name = x'61');"
                 "DELETE FROM stockade_resource WHERE name = x'61'");
    assert_ok(rig_read(rig, a_is, "(none)"));
    assert_ok(rig_write(rig, set_a_and_b, "three"));
    assert_ok(rig_read(rig, get_a, "three"));
    assert_ok(rig_read(rig, a_is, "three"));
}

/* The restored file gave a's id to b; a restore always raises the floor. */
SQLITE_TEST(a_restored_file_has_other_ids)
{
    remember_a(rig);
    rig_sql(rig, "BEGIN;"
                 "UPDATE stockade_resource SET name = x'78' WHERE name = x'61';"
                 "UPDATE stockade_resource SET name = x'61' WHERE name = x'62';"
                 "UPDATE stockade_resource SET name = x'62' WHERE name = x'78';"
                 "UPDATE stockade_meta SET value = value + 1000 WHERE key = 'floor';"
                 "COMMIT");
    assert_ok(rig_read(rig, get_a, "bee"));
    assert_ok(rig_read(rig, a_is, "bee"));
}
