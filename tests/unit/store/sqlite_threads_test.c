/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite store with its own threads: order, reads after writes, closing, and a lost commit.
 * What another thread may still write to when a test fails is the rig's, or static. */
#include "fence/base/mem.h"
#include "tests/unit/store/rig.h"

enum { WRITES = 4000, WINDOW = 48 };

/* It runs on another thread, so it asserts nothing. */
static enum stk_error add_one(struct store_txn *txn, void *arg)
{
    struct resource resource;
    struct bytes value;
    char text[24];
    int64_t count = 0;
    bool found;

    if (txn_resource(txn, BYTES_LITERAL("n"), &resource) != STK_OK ||
        txn_resource_make(txn, BYTES_LITERAL("n"), &resource) != STK_OK ||
        txn_field(txn, &resource, BYTES_LITERAL("f"), &found, &value) != STK_OK ||
        (found && !bytes_to_int64(value, &count)))
        return STK_STORE;
    int len = snprintf(text, sizeof text, "%lld", (long long)count + 1);
    *(int64_t *)arg = count + 1;
    return txn_field_put(txn, &resource, BYTES_LITERAL("f"), (struct bytes){text, (size_t)len});
}

static enum stk_error get(struct store_txn *txn, void *arg)
{
    struct resource resource;
    struct bytes value;
    bool found;

    *(int64_t *)arg = 0;
    if (txn_resource(txn, BYTES_LITERAL("n"), &resource) != STK_OK ||
        txn_field(txn, &resource, BYTES_LITERAL("f"), &found, &value) != STK_OK)
        return STK_STORE;
    return !found || bytes_to_int64(value, arg) ? STK_OK : STK_ERR;
}

THREADED_TEST(writes_are_done_in_order_and_reads_see_them)
{
    struct rig_op *writes = mem_zalloc(WRITES * sizeof *writes);
    int64_t *results = mem_zalloc(WRITES * sizeof *results), seen_at_least = 0;
    static int64_t seen;
    static int order;
    struct rig_op *read = NULL;
    int submitted = 0, reads = 0;

    while (order < WRITES || read != NULL) {
        while (submitted < WRITES && submitted - order < WINDOW) {
            writes[submitted] = rig_op(true, add_one, &results[submitted]);
            writes[submitted].order = &order;
            rig_submit(rig, &writes[submitted++]);
        }
        if (read == NULL && order < WRITES) {
            seen_at_least = order;
            read = rig_op_new(rig, false, get, &seen);
            rig_submit(rig, read);
        }
        rig_wait(rig);
        if (read != NULL && read->done != 0) {
            if (read->base.error != STK_OK)
                fail_msg("a read failed: %s", rig_log(rig));
            assert_true(seen >= seen_at_least);
            read = NULL;
            reads++;
        }
    }
    for (int i = 0; i < WRITES; i++) {
        assert_ok(writes[i].base.error);
        assert_true(writes[i].place == i && results[i] == i + 1);
    }
    struct store_stats stats = store_stats(rig->store);
    assert_int_equal(stats.writes, WRITES);
    assert_int_equal(stats.reads, reads);
    assert_true(reads > 0 && stats.commits < WRITES);
    free(writes);
    free(results);
}

THREADED_TEST(closing_runs_and_delivers_what_is_queued)
{
    struct rig_op ops[RIG_QUEUE_MAX];
    int64_t results[RIG_QUEUE_MAX];
    int order = 0;

    for (int i = 0; i < RIG_QUEUE_MAX; i++) {
        ops[i] = rig_op(true, add_one, &results[i]);
        ops[i].order = &order;
        rig_submit(rig, &ops[i]);
    }
    rig_close(rig);
    assert_int_equal(order, RIG_QUEUE_MAX);
    for (int i = 0; i < RIG_QUEUE_MAX; i++)
        assert_true(ops[i].base.error == STK_OK && results[i] == i + 1);
}

THREADED_TEST(a_full_disk_fails_writes_and_not_the_thread)
{
    static int64_t result;

    for (int round = 0; round < 20; round++) {
        struct rig_op *op = rig_op_new(rig, true, add_one, &result);
        if (round % 2 == 0)
            rig_fail_commit(rig);
        else
            rig_heal(rig);
        rig_submit(rig, op);
        rig_await(rig, op);
        assert_int_equal(op->base.error, round % 2 == 0 ? STK_STORE : STK_OK);
        assert_int_equal(result, round / 2 + 1);
    }
}

THREADED_TEST(a_lost_commit_wakes_the_owner_and_answers_nothing)
{
    static int64_t result, seen;
    struct rig_op *first = rig_op_new(rig, true, add_one, &result);
    struct rig_op *second = rig_op_new(rig, true, add_one, &result);
    struct rig_op *read = rig_op_new(rig, false, get, &seen);

    rig_lose_commit(rig);
    rig_submit(rig, first);
    while (!store_lost(rig->store))
        rig_wait(rig);
    assert_int_equal(store_submit(rig->store, &second->base), STK_BUSY);
    rig_submit(rig, read);
    rig_await(rig, read);
    assert_int_equal(seen, 0);
    rig_close(rig);
    assert_int_equal(first->done + second->done, 0);
}
