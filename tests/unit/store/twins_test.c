/* SPDX-License-Identifier: Apache-2.0 */
/* The two stores are twins: the same operations, drawn from a seed, leave the same state in both,
 * through operations that fail, commits that fail, and commits by another program. */
#include "tests/unit/store/twins.h"

TESTS_HAVE_ONE_THREAD

enum { SEEDS = 12, ROUNDS = 60, BATCH = 8 };

/* Run the batch on one store, and add its outcome as text. */
static void run_batch(struct rig *rig, const uint64_t *seeds, struct buf *out)
{
    struct rig_op ops[BATCH];
    struct drawing drawings[BATCH] = {0};

    for (int i = 0; i < BATCH; i++) {
        drawings[i].seed = seeds[i];
        ops[i] = rig_op(true, twins_change, &drawings[i]);
    }
    rig_batch(rig, ops, BATCH);
    for (int i = 0; i < BATCH; i++) {
        assert_int_equal(ops[i].done, 1);
        buf_printf(out, "%d:%lld ", (int)ops[i].base.error, (long long)drawings[i].outcome);
    }
}

static void compare(struct rig *memory, struct rig *sqlite, uint64_t seed, int round)
{
    struct view a = {0}, b = {0}, c = {0};

    assert_ok(rig_write(memory, twins_view, &a));
    assert_ok(rig_write(sqlite, twins_view, &b));
    assert_ok(rig_read(sqlite, twins_view, &c));
    if (!bytes_equal(buf_bytes(&a.text), buf_bytes(&b.text)) ||
        !bytes_equal(buf_bytes(&b.text), buf_bytes(&c.text)))
        fail_msg("seed %llu, round %d:\nmemory:\n%.*s\nsqlite, writer:\n%.*s\nreader:\n%.*s",
                 (unsigned long long)seed, round, (int)a.text.len, a.text.data, (int)b.text.len,
                 b.text.data, (int)c.text.len, c.text.data);
    buf_free(&a.text);
    buf_free(&b.text);
    buf_free(&c.text);
}

static void run_seed(struct rig *memory, struct rig *sqlite, uint64_t seed)
{
    uint64_t state = seed;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t seeds[BATCH];
        struct buf a = {0}, b = {0};
        unsigned event = twins_draw(&state, 12);
        memory->now_ms += (int64_t)twins_draw(&state, TWINS_KEEP_MS);
        memory->wall_ahead_ms =
            twins_draw(&state, 10) == 0 ? -9 * TWINS_KEEP_MS : 9 * TWINS_KEEP_MS;
        sqlite->now_ms = memory->now_ms;
        sqlite->wall_ahead_ms = memory->wall_ahead_ms;
        for (int i = 0; i < BATCH; i++) {
            (void)twins_draw(&state, 2);
            seeds[i] = state;
        }
        if (event == 0)
            rig_sql(sqlite, "UPDATE stockade_meta SET value = value WHERE key = 'floor'");
        if (event == 1) { /* its operations are not drawn by either: nothing may be left of them */
            rig_fail_commit(sqlite);
            run_batch(sqlite, seeds, &b);
            rig_heal(sqlite);
        } else if (event == 2) {
            rig_fail_commit(memory);
            run_batch(memory, seeds, &a);
        } else {
            run_batch(memory, seeds, &a);
            run_batch(sqlite, seeds, &b);
            assert_true(bytes_equal(buf_bytes(&a), buf_bytes(&b)));
        }
        buf_free(&a);
        buf_free(&b);
        compare(memory, sqlite, seed, round);
    }
}

TEST(the_same_operations_leave_the_same_state)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        void *memory = NULL, *sqlite = NULL;
        rig_memory(&memory);
        rig_sqlite(&sqlite);
        run_seed(memory, sqlite, seed * UINT64_C(0x9e3779b97f4a7c15));
        rig_end(&sqlite);
        rig_end(&memory);
    }
}
