/* SPDX-License-Identifier: Apache-2.0 */
/* The store in PostgreSQL is a twin of the one in memory. tests/system/test_postgresql_twin.py runs
 * this with a server. Its time is the server's, and what goes past its working set runs beside what
 * is about other resources, so that such operations are batches of their own here. */
#include "tests/support/flush.h"
#include "tests/unit/store/twins.h"

enum { ROUNDS = 25, BATCH = 8, LOOK_HARD_EVERY = 8 };

/* All at once: the sooner ones are done, the fewer meet in a batch. */
static void run_all(struct rig *rig, struct rig_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        assert_ok(store_submit(rig->store, &ops[i].base));
    store_flush(rig->store);
    if (rig->store->impl->step != NULL)
        rig_settle(rig);
    for (size_t i = 0; i < count; i++)
        if (ops[i].done == 0)
            rig_await(rig, &ops[i]);
}

static void run_changes(struct rig *rig, const uint64_t *seeds, struct buf *out)
{
    struct rig_op ops[BATCH];
    struct drawing drawings[BATCH];

    for (int i = 0; i < BATCH; i++) {
        drawings[i] = (struct drawing){.seed = seeds[i], .plain = true};
        ops[i] = rig_op(true, twins_change, &drawings[i]);
    }
    run_all(rig, ops, BATCH);
    for (int i = 0; i < BATCH; i++)
        buf_printf(out, "%d ", (int)ops[i].base.error);
}

static void run_one(struct rig *rig, bool writes, rig_body body, void *arg)
{
    struct rig_op op = rig_op(writes, body, arg);

    run_all(rig, &op, 1);
    assert_ok(op.base.error);
}

/* What is about all resources: of any age, for the two stores' clocks differ. */

enum { OLDEST_MS = INT32_MAX, MANY = 100000 };

static enum stk_error flush(struct store_txn *txn, void *arg)
{
    (void)arg;
    return flush_in_steps(txn);
}

static enum stk_error sweep_receipts(struct store_txn *txn, void *arg)
{
    size_t removed;
    bool more;
    int64_t before_ms = txn_now_ms(txn) + OLDEST_MS;
    enum stk_error error = txn_sweep_receipts(txn, before_ms, MANY, &removed, &more);

    if (error == STK_OK)
        buf_printf(arg, "removed %zu, more %d", removed, more);
    return error;
}

static enum stk_error sweep_resources(struct store_txn *txn, void *arg)
{
    size_t removed;
    bool more;
    int64_t after = 0, before_ms = txn_now_ms(txn) + OLDEST_MS;
    enum stk_error error =
        txn_sweep_resources(txn, before_ms, INT64_MIN, MANY, &after, &removed, &more);

    if (error == STK_OK)
        buf_printf(arg, "removed %zu, more %d", removed, more);
    return error;
}

/* The store in memory keeps the row with the highest id, whatever it is like, as SQLite does. */
static enum stk_error make_last(struct store_txn *txn, void *arg)
{
    struct resource resource;
    char text[24];
    int len = snprintf(text, sizeof text, "last%d", *(const int *)arg);
    struct bytes name = {text, (size_t)len};
    enum stk_error error = txn_resource(txn, name, &resource);

    if (error == STK_OK)
        error = txn_resource_make(txn, name, &resource);
    return error == STK_OK ? txn_string_put(txn, &resource, name) : error;
}

/* Of a text, the line that begins there. */
static int line_len(const struct buf *text, size_t at)
{
    const char *end = memchr(text->data + at, '\n', text->len - at);
    return (int)((end != NULL ? (size_t)(end - text->data) : text->len) - at);
}

static void assert_same(const struct buf *a, const struct buf *b, int round, const char *what)
{
    size_t at = 0, line = 0;

    if (bytes_equal(buf_bytes(a), buf_bytes(b)))
        return;
    for (; at < a->len && at < b->len && a->data[at] == b->data[at]; at++)
        line = a->data[at] == '\n' ? at + 1 : line;
    fail_msg("round %d, %s:\nmemory:     %.*s\nPostgreSQL: %.*s", round, what, line_len(a, line),
             a->data + line, line_len(b, line), b->data + line);
}

static void compare(struct rig *memory, struct rig *shared, int round)
{
    struct view a = {.shared = true}, b = a;

    run_one(memory, false, twins_view, &a);
    run_one(shared, false, twins_view, &b);
    assert_same(&a.text, &b.text, round, "seen by a read");
    if (round % LOOK_HARD_EVERY == 0) {
        run_one(shared, true, twins_view, &b);
        assert_same(&a.text, &b.text, round, "seen by a write");
    }
    buf_free(&a.text);
    buf_free(&b.text);
}

TEST_WITH(rig_postgresql, rig_end, struct rig *shared,
          the_same_operations_leave_the_same_state_in_postgresql)
{
    static const rig_body about_all[] = {flush, sweep_receipts, sweep_resources};
    const char *seed = getenv("SEED"), *wanted = getenv("ROUNDS");
    int rounds = wanted != NULL ? atoi(wanted) : ROUNDS;
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) * (seed != NULL ? strtoull(seed, NULL, 10) : 1);
    void *twin = NULL;

    rig_memory(&twin);
    for (int round = 0; round < rounds; round++) {
        uint64_t seeds[BATCH];
        struct buf a = {0}, b = {0};
        for (int i = 0; i < BATCH; i++) {
            (void)twins_draw(&state, 2);
            seeds[i] = state;
        }
        if (twins_draw(&state, 8) == 0) {
            rig_body body = about_all[twins_draw(&state, COUNT(about_all))];
            run_one(twin, true, make_last, &round);
            run_one(shared, true, make_last, &round);
            run_one(twin, true, body, &a);
            run_one(shared, true, body, &b);
        } else {
            run_changes(twin, seeds, &a);
            run_changes(shared, seeds, &b);
        }
        assert_same(&a, &b, round, "outcomes");
        buf_free(&a);
        buf_free(&b);
        compare(twin, shared, round);
    }
    rig_end(&twin);
}
