/* SPDX-License-Identifier: Apache-2.0 */
/* The file is in memory where there is such a folder, and goes when the process exits. */
#include "tests/fuzz/lasting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "store/txn.h"
#include "tests/fuzz/fuzz.h"

enum { INPUTS_PER_FILE = 500 };

static struct {
    char folder[64];
    struct store *store;
    const struct world *world;
    int64_t before_ms; /* that worlds took which are over */
    struct clock clock;
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

static void end_file(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[128];

    if (the.store != NULL)
        store_close(the.store);
    the.store = NULL;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/db%s", the.folder, suffixes[i]);
        (void)unlink(path);
    }
}

static void end_all(void)
{
    end_file();
    (void)rmdir(the.folder);
}

static void begin_all(void)
{
    strcpy(the.folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/stockade-fuzz-XXXXXX"
                                                     : "/tmp/stockade-fuzz-XXXXXX");
    check(mkdtemp(the.folder) != NULL);
    check(atexit(end_all) == 0);
    the.clock = (struct clock){.now_ms = now_ms, .wall_us = wall_us};
}

struct store *lasting_open(void)
{
    char path[128], why[256] = "";

    if (the.store != NULL && the.inputs < INPUTS_PER_FILE)
        return the.store;
    if (the.folder[0] == '\0')
        begin_all();
    end_file();
    the.inputs = 0;
    snprintf(path, sizeof path, "%s/db", the.folder);
    the.store = store_sqlite_open(
        &(struct store_options){
            .path = path, .queue_ops_max = 1000, .batch_ops_max = 100, .clock = &the.clock},
        why, sizeof why);
    if (the.store == NULL)
        fuzz_wrong("%s", why);
    return the.store;
}

void lasting_set_world(const struct world *world)
{
    if (world == NULL)
        the.before_ms = now_ms(&the.clock);
    the.world = world;
}

unsigned lasting_number(void)
{
    return the.inputs;
}

static enum stk_error flush_run(struct store_op *op, struct store_txn *txn)
{
    (void)op;
    return txn_flush(txn);
}

static void flush_done(struct store_op *op)
{
    check(op->error == STK_OK);
}

void lasting_end_input(void)
{
    struct store_op op = {.writes = true, .run = flush_run, .done = flush_done};

    check(store_submit(the.store, &op) == STK_OK);
    while (store_step(the.store))
        store_collect(the.store);
    the.inputs++;
}
