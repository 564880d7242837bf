/* SPDX-License-Identifier: Apache-2.0 */
/* SQLite fails a statement, at every place where it can: interrupted, or not even prepared. What
 * the operation did until then is undone, in the file and in the cache, and the store goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "store/sqlite/sql.h"
#include "store/sqlite/transaction.h"
#include "tests/support/flush.h"
#include "tests/unit/store/rig.h"

TESTS_HAVE_ONE_THREAD

enum { STEPS = 8, PLACES_MAX = 5000 };

/* Makes SQLite fail at the n-th permission that it asks for, or after n times eight steps, and from
 * then on. */
struct trap {
    bool denies; /* else it interrupts */
    int left;
    bool sprung;
    rig_body body;
};

static int spring(struct trap *trap)
{
    if (trap->left > 0) {
        trap->left--;
        return 0;
    }
    trap->sprung = true;
    return 1;
}

static int interrupt(void *context)
{
    return spring(context);
}

static int deny(void *context, int action, const char *a, const char *b, const char *file,
                const char *inside)
{
    (void)action, (void)a, (void)b, (void)file, (void)inside;
    return spring(context) ? SQLITE_DENY : SQLITE_OK;
}

/* Run the body with the trap set. */
static enum stk_error trapped(struct store_txn *base, void *arg)
{
    struct transaction *txn = (struct transaction *)base;
    struct trap *trap = arg;
    int left = trap->left;

    if (trap->denies)
        sqlite3_set_authorizer(txn->db, deny, trap);
    else
        sqlite3_progress_handler(txn->db, STEPS, interrupt, trap);
    enum stk_error error = trap->body(base, NULL);
    if (trap->denies)
        sqlite3_set_authorizer(txn->db, sql_authorize, txn->sql);
    else
        sqlite3_progress_handler(txn->db, 0, NULL, NULL);
    trap->left = left; /* it gets a second chance, and fails there too */
    return error;
}

/* What operations do. Each passes on what fails, as those of the engine do. */

static enum stk_error write_strings(struct store_txn *txn, void *arg)
{
    enum stk_error error;
    struct resource row;
    struct bytes value;
    bool found;

    (void)arg;
    if (txn_failed(error = txn_resource(txn, bytes_of("new"), &row)) ||
        txn_failed(error = txn_resource_make(txn, bytes_of("new"), &row)) ||
        txn_failed(error = txn_string_put(txn, &row, bytes_of("1"))) ||
        txn_failed(error = txn_resource(txn, bytes_of("string"), &row)) ||
        txn_failed(error = txn_string(txn, &row, &found, &value)) ||
        txn_failed(error = txn_string_put(txn, &row, bytes_of("2"))) ||
        txn_failed(error = txn_resource(txn, bytes_of("hash"), &row)) ||
        txn_failed(error = txn_value_clear(txn, &row)) ||
        txn_failed(error = txn_string_put(txn, &row, bytes_of("3"))))
        return error;
    return txn_value_clear(txn, &row);
}

static bool each_field(void *context, struct bytes field, struct bytes value)
{
    (void)context, (void)field, (void)value;
    return true;
}

static enum stk_error write_fields(struct store_txn *txn, void *arg)
{
    enum stk_error error;
    struct resource row;
    struct bytes value;
    int64_t count;
    bool found;

    (void)arg;
    if (txn_failed(error = txn_resource(txn, bytes_of("hash"), &row)) ||
        txn_failed(error = txn_field(txn, &row, bytes_of("f"), &found, &value)) ||
        txn_failed(error = txn_field_put(txn, &row, bytes_of("f"), bytes_of("2"))) ||
        txn_failed(error = txn_field_put(txn, &row, bytes_of("g"), bytes_of("2"))) ||
        txn_failed(error = txn_count_fields(txn, &row, &count)) ||
        txn_failed(error = txn_each_field_from(txn, &row, bytes_of(""), each_field, NULL)) ||
        txn_failed(error = txn_field_remove(txn, &row, bytes_of("f"), &found)))
        return error;
    return txn_field_remove(txn, &row, bytes_of("g"), &found);
}

static bool each_name(void *context, int64_t id, struct bytes name, enum value_type type)
{
    (void)context, (void)id, (void)name, (void)type;
    return true;
}

static enum stk_error grant(struct store_txn *txn, void *arg)
{
    static const char *const names[] = {"live", "free", "fresh"};
    enum stk_error error;
    struct resource row;
    struct lease lease;
    int64_t count;

    (void)arg;
    for (size_t i = 0; i < 3; i++) {
        if (txn_failed(error = txn_resource(txn, bytes_of(names[i]), &row)) ||
            txn_failed(error = txn_lease(txn, &row, &lease)))
            return error;
        lease.owner = bytes_of("somebody");
        row.fence.token = row.fence.floor + 1;
        row.fence.state = FENCE_LIVE;
        if (txn_failed(error = txn_fence_make(txn, bytes_of(names[i]), &row, &lease)))
            return error;
    }
    if (txn_failed(error = txn_each_live(txn, 0, each_name, NULL)) ||
        txn_failed(error = txn_each_key(txn, 0, each_name, NULL)) ||
        txn_failed(error = txn_count_live(txn, &count)))
        return error;
    return txn_count_keys(txn, &count);
}

static enum stk_error put_receipts(struct store_txn *txn, void *arg)
{
    enum stk_error error;
    struct resource row;
    struct receipt receipt = {.token = 1, .reply = bytes_of("+OK\r\n")}, old;
    bool found;

    (void)arg;
    if (txn_failed(error = txn_resource(txn, bytes_of("live"), &row)) ||
        txn_failed(error = txn_receipt(txn, &row, bytes_of("id"), &found, &old)) ||
        txn_failed(error = txn_receipt_put(txn, &row, bytes_of("other"), &receipt)) ||
        txn_failed(error = txn_resource(txn, bytes_of("free"), &row)) ||
        txn_failed(error = txn_receipt_put(txn, &row, bytes_of("other"), &receipt)))
        return error;
    return txn_savepoint(txn);
}

static enum stk_error use_savepoints(struct store_txn *txn, void *arg)
{
    enum stk_error error;
    struct resource row;

    (void)arg;
    if (txn_failed(error = txn_savepoint(txn)) ||
        txn_failed(error = txn_resource(txn, bytes_of("string"), &row)) ||
        txn_failed(error = txn_string_put(txn, &row, bytes_of("undone"))) ||
        txn_failed(error = txn_savepoint_undo(txn)) || txn_failed(error = txn_savepoint(txn)) ||
        txn_failed(error = txn_resource(txn, bytes_of("string"), &row)) ||
        txn_failed(error = txn_string_put(txn, &row, bytes_of("kept"))))
        return error;
    return txn_savepoint_keep(txn);
}

static enum stk_error sweep(struct store_txn *txn, void *arg)
{
    int64_t after = 0, late_ms = txn_now_ms(txn) + 1;
    enum stk_error error;
    size_t removed;
    bool more;

    (void)arg;
    if (txn_failed(error = txn_sweep_receipts(txn, late_ms, 10, &removed, &more)))
        return error;
    return txn_sweep_resources(txn, late_ms, late_ms, 100, &after, &removed, &more);
}

static enum stk_error flush(struct store_txn *txn, void *arg)
{
    (void)arg;
    return flush_in_steps(txn);
}

static void each_guard(void *context, const struct table_guard *guard, struct bytes flaw)
{
    (void)context, (void)guard, (void)flaw;
}

static enum stk_error guard(struct store_txn *txn, void *arg)
{
    enum stk_error error;
    char why[SQL_WHY_MAX] = "";

    (void)arg;
    if (txn_failed(error = txn_guard_create(txn,
                                            &(struct table_guard){.table = bytes_of("wares"),
                                                                  .column = bytes_of("sku"),
                                                                  .prefix = bytes_of("sku:")},
                                            why)) ||
        txn_failed(error = txn_guards(txn, each_guard, NULL)))
        return error;
    return txn_guard_drop(txn, bytes_of("guarded"), why);
}

/* What is there before. */

static void furnish(struct store_txn *txn)
{
    static const char *const retired[] = {"free", "past", "gone"};
    struct resource row;
    char why[SQL_WHY_MAX] = "";

    rig_grant(txn, "live", "owner");
    rig_receipt_put(txn, "live", "id");
    for (size_t i = 0; i < 3; i++) {
        rig_grant(txn, retired[i], "owner");
        if (i < 2)
            rig_receipt_put(txn, retired[i], "id");
        rig_release(txn, retired[i]);
    }
    rig_set(txn, "string", "value");
    row = rig_find(txn, "hash");
    assert_ok(txn_resource_make(txn, bytes_of("hash"), &row));
    assert_ok(txn_field_put(txn, &row, bytes_of("f"), bytes_of("1")));
    assert_ok(txn_guard_create(txn,
                               &(struct table_guard){.table = bytes_of("guarded"),
                                                     .column = bytes_of("sku"),
                                                     .prefix = bytes_of("g:")},
                               why));
}

/* What another program sees in the file. */
static const char all_rows[] = "SELECT type, name, sql FROM sqlite_schema ORDER BY name;"
                               "SELECT * FROM stockade_meta ORDER BY key;"
                               "SELECT * FROM stockade_resource ORDER BY id;"
                               "SELECT * FROM stockade_string ORDER BY id;"
                               "SELECT * FROM stockade_hash ORDER BY id, field;"
                               "SELECT * FROM stockade_receipt ORDER BY resource, id;"
                               "SELECT * FROM stockade_retired ORDER BY number;"
                               "SELECT * FROM stockade_clock;"
                               "SELECT * FROM stockade_guard ORDER BY name";

/* The store's own view, with its cache. */
static void look(struct store_txn *txn)
{
    assert_int_equal(rig_find(txn, "live").fence.token, 1);
    assert_int_equal(rig_find(txn, "live").fence.state, FENCE_LIVE);
    assert_int_equal(rig_find(txn, "free").fence.state, FENCE_RELEASED);
    assert_int_equal(rig_find(txn, "hash").type, VALUE_HASH);
    assert_int_equal(rig_find(txn, "new").id, 0);
    assert_string_equal(rig_get(txn, "string"), "value");
    assert_string_equal(rig_receipt(txn, "live", "id"), "reply to id");
    assert_string_equal(rig_receipt(txn, "live", "other"), "(none)");
}

/* Let the body fail at one place after the other, until it succeeds because there is none left. */
static void fails_everywhere(struct rig *rig, rig_body body, bool denies)
{
    int place = 0;

    rig_sql(rig, "CREATE TABLE wares(sku TEXT PRIMARY KEY, n);"
                 "CREATE TABLE guarded(sku TEXT PRIMARY KEY, n);");
    rig_in_write(rig, furnish);
    rig_close(rig); /* no statement is prepared yet, and nothing is in the cache */
    rig_open(rig, false);
    sqlite3 *db = rig_foreign(rig);
    char *before = plain_rows(db, all_rows);
    for (;; place++) {
        struct trap trap = {.denies = denies, .left = place, .body = body};
        enum stk_error error = rig_write(rig, trapped, &trap);
        assert_false(store_lost(rig->store));
        if (!trap.sprung) {
            assert_ok(error);
            break;
        }
        assert_int_not_equal(error, STK_OK);
        char *after = plain_rows(db, all_rows);
        assert_string_equal(after, before);
        free(after);
        rig_in_both(rig, look);
        assert_true(place < PLACES_MAX);
    }
    assert_true(place > 2);
    char *after = plain_rows(db, all_rows);
    assert_string_not_equal(after, before);
    free(before);
    free(after);
    sqlite3_close(db);
}

#define TESTS_OF(body)                                                                             \
    SQLITE_TEST(body##_interrupted)                                                                \
    {                                                                                              \
        fails_everywhere(rig, body, false);                                                        \
    }                                                                                              \
    SQLITE_TEST(body##_denied)                                                                     \
    {                                                                                              \
        fails_everywhere(rig, body, true);                                                         \
    }

TESTS_OF(write_strings)
TESTS_OF(write_fields)
TESTS_OF(grant)
TESTS_OF(put_receipts)
TESTS_OF(use_savepoints)
TESTS_OF(sweep)
TESTS_OF(flush)
TESTS_OF(guard)
