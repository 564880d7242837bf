/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "tests/unit/store/rig.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "store/kinds.h"
#include "tests/twins/memory_store.h"
#include "tests/unit/deadline.h"
#include "tests/unit/folder.h"

static void on_wake(void *context)
{
    const struct rig *rig = context;
    assert_int_equal(write(rig->woken[1], "w", 1), 1);
}

static int64_t count_ms(const struct clock *clock)
{
    return ((const struct rig *)clock->context)->now_ms;
}

static int64_t wall_us(const struct clock *clock)
{
    return (count_ms(clock) + ((const struct rig *)clock->context)->wall_ahead_ms) * 1000;
}

static void boot_id(const struct clock *clock, char id[CLOCK_BOOT_SIZE])
{
    snprintf(id, CLOCK_BOOT_SIZE, "%s", ((const struct rig *)clock->context)->boot);
}

static struct store_options options_of(struct rig *rig, bool threads)
{
    return (struct store_options){
        .path = rig->path,
        .threads = threads,
        .queue_ops_max = RIG_QUEUE_MAX,
        .batch_ops_max = RIG_BATCH_MAX,
        .checkpoint_pages = rig->checkpoint_pages,
        .wake = on_wake,
        .context = rig,
        .log = &rig->log,
        .clock = &rig->clock,
    };
}

void rig_open(struct rig *rig, bool threads)
{
    char why[256] = "";
    struct store_options options = options_of(rig, threads);

    if (store_is_in_network(rig->path))
        rig->store = store_postgresql_open(&options, why, sizeof why);
    else
        rig->store =
            rig->sqlite ? store_sqlite_open(&options, why, sizeof why) : store_memory_new(&options);
    if (rig->store == NULL)
        fail_msg("%s", why);
    if (!rig->sqlite && !threads)
        store_memory_run_once(rig->store); /* operations in these tests assert what they get */
}

void rig_close(struct rig *rig)
{
    if (rig->store != NULL)
        store_close(rig->store);
    rig->store = NULL;
}

void rig_reopen(struct rig *rig)
{
    rig_close(rig);
    rig_open(rig, false);
}

const char *rig_refusal(struct rig *rig)
{
    static char why[256];
    struct store_options options = options_of(rig, false);

    assert_null(rig->store);
    why[0] = '\0';
    struct store *store = store_sqlite_open(&options, why, sizeof why);
    if (store != NULL) {
        store_close(store);
        fail_msg("the store opened");
    }
    assert_true(why[0] != '\0' && strchr(why, '\n') == NULL);
    return why;
}

static struct rig *rig_new(bool sqlite)
{
    struct rig *rig = mem_zalloc(sizeof *rig);
    char log_path[96];

    rig->sqlite = sqlite;
    list_init(&rig->ops);
    rig->clock =
        (struct clock){.now_ms = count_ms, .wall_us = wall_us, .boot = boot_id, .context = rig};
    rig->boot = "first boot";
    rig->now_ms = INT64_C(1700000000000);
    folder_make(rig->folder, sizeof rig->folder);
    snprintf(rig->path, sizeof rig->path, "%s/store.db", rig->folder);
    snprintf(log_path, sizeof log_path, "%s/log", rig->folder);
    rig->log_file = LOG_FILE(open(log_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    assert_true(rig->log_file.fd >= 0);
    rig->log.file = &rig->log_file;
    assert_int_equal(pipe2(rig->woken, O_CLOEXEC), 0);
    if (sqlite)
        rig->vfs = fault_vfs_add();
    rig_open(rig, false);
    return rig;
}

int rig_memory(void **state)
{
    *state = rig_new(false);
    return 0;
}

int rig_sqlite(void **state)
{
    *state = rig_new(true);
    return 0;
}

int rig_threaded(void **state)
{
    rig_sqlite(state);
    rig_close(*state);
    rig_open(*state, true);
    return 0;
}

int rig_postgresql(void **state)
{
    const char *uri = getenv("STOCKADE_TEST_POSTGRESQL");

    if (uri == NULL)
        return 0;
    rig_memory(state);
    struct rig *rig = *state;
    rig_close(rig);
    assert_true((size_t)snprintf(rig->path, sizeof rig->path, "%s", uri) < sizeof rig->path);
    rig_open(rig, true);
    return 0;
}

int rig_end(void **state)
{
    struct rig *rig = *state;
    struct list *link;

    if (rig == NULL)
        return 0;
    rig_close(rig);
    while ((link = list_pop(&rig->ops)) != NULL)
        free(list_entry(link, struct rig_op, link));
    fault_vfs_remove(rig->vfs);
    close(rig->woken[0]);
    close(rig->woken[1]);
    close(rig->log_file.fd);
    folder_remove(rig->folder);
    free(rig);
    return 0;
}

static enum stk_error op_run(struct store_op *base, struct store_txn *txn)
{
    struct rig_op *op = (struct rig_op *)base;
    op->runs++;
    op->thread = pthread_self();
    return op->body(txn, op->arg);
}

static void op_done(struct store_op *base)
{
    struct rig_op *op = (struct rig_op *)base;
    op->done++;
    if (op->order != NULL)
        op->place = (*op->order)++;
}

struct rig_op rig_op(bool writes, rig_body body, void *arg)
{
    return (struct rig_op){
        /* A name that many tests use and some do not: what an operation is about must not matter.
         */
        .base = {.writes = writes, .about = BYTES_LITERAL("a"), .run = op_run, .done = op_done},
        .body = body,
        .arg = arg,
    };
}

struct rig_op *rig_op_new(struct rig *rig, bool writes, rig_body body, void *arg)
{
    struct rig_op *op = mem_alloc(sizeof *op);

    *op = rig_op(writes, body, arg);
    list_append(&rig->ops, &op->link);
    return op;
}

void rig_submit(struct rig *rig, struct rig_op *op)
{
    assert_int_equal(store_submit(rig->store, &op->base), STK_OK);
    store_flush(rig->store);
}

void rig_settle(struct rig *rig)
{
    while (store_step(rig->store))
        store_collect(rig->store);
}

void rig_wait(struct rig *rig)
{
    struct pollfd woken = {.fd = rig->woken[0], .events = POLLIN};
    struct deadline deadline = deadline_in(HANG_MS);
    char bytes[256];

    while (poll(&woken, 1, 100) != 1)
        deadline_keep(&deadline);
    assert_true(read(rig->woken[0], bytes, sizeof bytes) > 0);
    store_collect(rig->store);
}

void rig_await(struct rig *rig, const struct rig_op *op)
{
    store_collect(rig->store);
    while (op->done == 0)
        rig_wait(rig);
}

void rig_batch(struct rig *rig, struct rig_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        rig_submit(rig, &ops[i]);
    rig_settle(rig);
}

static enum stk_error whole(struct rig *rig, bool writes, rig_body body, void *arg)
{
    struct rig_op op = rig_op(writes, body, arg);

    rig_submit(rig, &op);
    rig_settle(rig);
    assert_int_equal(op.done, 1);
    return op.base.error;
}

enum stk_error rig_write(struct rig *rig, rig_body body, void *arg)
{
    return whole(rig, true, body, arg);
}

enum stk_error rig_read(struct rig *rig, rig_body body, void *arg)
{
    return whole(rig, false, body, arg);
}

static enum stk_error run_block(struct store_txn *txn, void *block)
{
    (*(rig_block *)block)(txn);
    return STK_OK;
}

void rig_in_write(struct rig *rig, rig_block block)
{
    assert_ok(rig_write(rig, run_block, &block));
}

void rig_in_read(struct rig *rig, rig_block block)
{
    assert_ok(rig_read(rig, run_block, &block));
}

void rig_in_both(struct rig *rig, rig_block block)
{
    rig_in_write(rig, block);
    rig_in_read(rig, block);
}
