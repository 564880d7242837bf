/* SPDX-License-Identifier: Apache-2.0 */
/* See lasting.h. */
#include "tests/fuzz/lasting.h"

#include "fence/base/check.h"
#include "store/txn.h"
#include "tests/fuzz/store_file.h"
#include "tests/support/flush.h"

enum { INPUTS_PER_FILE = 500 };

static struct {
    struct store *store;
    const struct world *world;
    int64_t before_ms; /* that worlds took which are over */
    unsigned inputs;
} the;

static int64_t now_ms(const struct clock *clock)
{
    (void)clock;
    return the.before_ms + (the.world == NULL ? 0 : the.world->now_ms);
}

static int64_t wall_us(const struct clock *clock)
{
    return now_ms(clock) * 1000;
}

static const struct clock clock_of_worlds = {.now_ms = now_ms, .wall_us = wall_us};

struct store *lasting_open(void)
{
    if (the.store != NULL && the.inputs < INPUTS_PER_FILE)
        return the.store;
    the.inputs = 0;
    the.store = store_file_open((struct store_options){
        .queue_ops_max = 1000, .batch_ops_max = 100, .clock = &clock_of_worlds});
    return the.store;
}

void lasting_set_world(const struct world *world)
{
    if (world == NULL)
        the.before_ms = now_ms(&clock_of_worlds);
    the.world = world;
}

unsigned lasting_number(void)
{
    return the.inputs;
}

static enum stk_error flush_run(struct store_op *op, struct store_txn *txn)
{
    (void)op;
    return flush_in_steps(txn);
}

static void flush_done(struct store_op *op)
{
    check(op->error == STK_OK);
}

void lasting_end_input(void)
{
    struct store_op op = {.writes = true, .run = flush_run, .done = flush_done};

    store_perform(the.store, &op);
    the.inputs++;
}
