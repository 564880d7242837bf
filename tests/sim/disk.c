/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of a daemon's store, and the memory kind of disk. A step takes a batch of writes or of
 * reads, at a time of its own; what it has finished is collected later still, so that a crash can
 * fall between any two of these. */
#include "tests/sim/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/sim/daemon.h"
#include "tests/sim/disk_impl.h"
#include "tests/sim/oracle.h"

#define QUEUE_MAX 2000

static struct handle *of(struct store *store)
{
    return (struct handle *)store;
}

/* Steps. */

static void run_wake(void *context, struct event *event)
{
    struct handle *handle = context;

    (void)event;
    handle->wake_due = false;
    handle->wake(handle->context);
}

/* Drawn anew from the time: what others do, or leave, does not shift it. */
static struct rng now_rng(const struct handle *handle, uint64_t what)
{
    const struct world *world = handle->disk->world;
    return rng_of(world->plan->seed, what + ((uint64_t)handle->number << 8),
                  (uint64_t)world->now_us);
}

static void wake_soon(struct handle *handle)
{
    struct world *world = handle->disk->world;
    struct rng rng = now_rng(handle, 'w');

    if (handle->wake_due)
        return;
    handle->wake_due = true;
    world_at(world, world->now_us + rng_between(&rng, 5, 150), handle->party, run_wake, handle);
}

static size_t take(struct list *queue, size_t *queued, size_t max, struct list *batch)
{
    size_t count = 0;
    struct list *link;

    list_init(batch);
    for (; count < max && (link = list_pop(queue)) != NULL; count++)
        list_append(batch, link);
    *queued -= count;
    return count;
}

static void step_soon(struct handle *handle, bool writes);

/* As where the database is shared: others have made the batch fail, and it runs once more later, on
 * what there is then. */
static bool comes_to_nothing(struct handle *handle, struct list *batch, bool writes)
{
    struct disk *disk = handle->disk;
    struct rng rng = now_rng(handle, writes ? 'A' : 'a');

    if (disk->rows == NULL || !rng_per_mille(&rng, disk->world->plan->again_per_mille))
        return false;
    memory_rows_run(disk->rows, batch, writes, store_clock_now_ms(&disk->clock));
    memory_rows_undo(disk->rows, 0);
    return true;
}

static void step(struct handle *handle, bool writes)
{
    struct disk *disk = handle->disk;
    struct list batch;
    struct list *queue = writes ? &handle->writes : &handle->reads;
    size_t *queued = writes ? &handle->writes_count : &handle->reads_count;
    size_t count = take(queue, queued, (size_t)disk->world->plan->batch_max, &batch);

    if (count == 0)
        return;
    if (comes_to_nothing(handle, &batch, writes)) {
        list_splice(&batch, queue);
        list_splice(queue, &batch);
        *queued += count;
        step_soon(handle, writes);
        return;
    }
    bool known = disk->world->plan->disk == DISK_MEMORY ? memory_batch(handle, &batch, writes)
                                                        : sqlite_batch(handle, &batch, writes);
    if (known) {
        list_splice(&handle->done, &batch);
    } else {
        handle->lost = true;
        list_splice(queue, &batch); /* failed when the daemon is gone */
        *queued += count;
    }
    if (writes)
        oracle_committed(disk->world->oracle);
    wake_soon(handle);
    if (*queued > 0 && !handle->lost)
        step_soon(handle, writes);
}

static void run_writes(void *context, struct event *event)
{
    struct handle *handle = context;

    (void)event;
    handle->writes_due = false;
    step(handle, true);
}

static void run_reads(void *context, struct event *event)
{
    struct handle *handle = context;

    (void)event;
    handle->reads_due = false;
    step(handle, false);
}

static void step_soon(struct handle *handle, bool writes)
{
    struct disk *disk = handle->disk;
    struct world *world = disk->world;
    bool *due = writes ? &handle->writes_due : &handle->reads_due;
    struct rng rng = now_rng(handle, writes ? 'W' : 'R');
    int64_t slow_us = rng_per_mille(&rng, 10) ? rng_between(&rng, 5000, 80000) : 0;

    if (*due)
        return;
    *due = true;
    int64_t us = rng_between(&rng, writes ? 100 : 20, writes ? 1200 : 150);
    world_at(world, world->now_us + us + (world->calm ? 0 : slow_us), handle->party,
             writes ? run_writes : run_reads, handle);
}

/* The store. */

static enum stk_error disk_submit(struct store *base, struct store_op *op)
{
    struct handle *handle = of(base);
    size_t *count = op->writes ? &handle->writes_count : &handle->reads_count;

    if (handle->cut_off || handle->lost || *count >= QUEUE_MAX)
        return STK_BUSY;
    list_append(op->writes ? &handle->writes : &handle->reads, &op->link);
    (*count)++;
    step_soon(handle, op->writes);
    return STK_OK;
}

static void disk_collect(struct store *base)
{
    struct handle *handle = of(base);
    struct list done, *link;

    list_init(&done);
    list_splice(&done, &handle->done);
    while ((link = list_pop(&done)) != NULL) {
        struct store_op *op = list_entry(link, struct store_op, link);
        op->done(op);
    }
}

static bool disk_step(struct store *base)
{
    (void)base;
    return false; /* steps are events */
}

static bool disk_lost(const struct store *base)
{
    return ((const struct handle *)base)->lost;
}

static int64_t disk_opening(const struct store *base)
{
    return ((const struct handle *)base)->opening;
}

static struct store_stats disk_stats(const struct store *base)
{
    return ((const struct handle *)base)->stats;
}

static void disk_close(struct store *base)
{
    struct handle *handle = of(base);

    check(list_empty(&handle->writes) && list_empty(&handle->reads) && list_empty(&handle->done));
    if (handle->disk->world->plan->disk == DISK_SQLITE)
        sqlite_shut(handle);
    free(handle);
}

static const struct store_impl disk_impl = {
    .submit = disk_submit,
    .collect = disk_collect,
    .step = disk_step,
    .lost = disk_lost,
    .opening = disk_opening,
    .stats = disk_stats,
    .close = disk_close,
};

struct store *disk_open(struct disk *disk, int number, struct party *party,
                        void (*wake)(void *context), void *context)
{
    struct handle *handle = mem_zalloc(sizeof *handle);

    handle->base.impl = &disk_impl;
    handle->disk = disk;
    handle->number = number;
    handle->party = party;
    handle->wake = wake;
    handle->context = context;
    list_init(&handle->writes);
    list_init(&handle->reads);
    list_init(&handle->done);
    if (disk->world->plan->disk == DISK_MEMORY) {
        struct store_clock_note kept = disk->clock.note;
        handle->opening = ++disk->openings;
        (void)store_clock_resume(&disk->clock, &kept);
    } else if (!sqlite_open(handle)) {
        free(handle);
        return NULL;
    }
    oracle_committed(disk->world->oracle);
    return &handle->base;
}

static void fail(struct list *ops)
{
    struct list *link;

    while ((link = list_pop(ops)) != NULL) {
        struct store_op *op = list_entry(link, struct store_op, link);
        op->error = STK_STORE;
        op->done(op);
    }
}

void disk_cut_off(struct store *base)
{
    struct handle *handle = of(base);

    handle->cut_off = true;
    fail(&handle->done);
    fail(&handle->writes);
    fail(&handle->reads);
    handle->writes_count = handle->reads_count = 0;
}

void disk_was_unsure(struct disk *disk)
{
    if (disk->power_follows)
        daemon_power_off(disk->world, rng_between(&disk->rng, 1, 2000));
    disk->power_follows = false;
}

/* The memory kind. */

bool memory_batch(struct handle *handle, struct list *batch, bool writes)
{
    struct disk *disk = handle->disk;
    struct memory_rows *rows = disk->rows;
    enum disk_fault fault = disk->next;
    struct store_clock_note note;
    struct rng rng = now_rng(handle, writes ? 'T' : 't');

    rows->chance = (uint64_t)rng_between(&rng, 1, 1000000);
    memory_rows_run(rows, batch, writes, store_clock_now_ms(&disk->clock));
    if (!writes)
        return true;
    if (fault == DISK_FAULT_NONE && disk->full_until_us > disk->world->now_us)
        fault = DISK_FAULT_REFUSES;
    else
        disk->next = DISK_FAULT_NONE;
    bool kept =
        fault == DISK_FAULT_NONE || (fault != DISK_FAULT_REFUSES && rng_below(&disk->rng, 2) == 0);
    if (kept && store_clock_due(&disk->clock, &note))
        disk->clock.note = note;
    if (kept)
        memory_rows_commit(rows);
    else
        memory_rows_undo(rows, 0);
    for (struct list *at = batch->next; fault == DISK_FAULT_REFUSES && at != batch; at = at->next)
        list_entry(at, struct store_op, link)->error = STK_STORE;
    if (fault == DISK_FAULT_UNSURE || fault == DISK_FAULT_TORN)
        world_tell(disk->world, "disk: the outcome of a commit is unknown; it was %s",
                   kept ? "kept" : "lost");
    if (fault == DISK_FAULT_UNSURE)
        disk_was_unsure(disk);
    if (fault == DISK_FAULT_TORN)
        daemon_power_off(disk->world, 0);
    return fault == DISK_FAULT_NONE || fault == DISK_FAULT_REFUSES;
}

static bool memory_read(struct disk *disk, const char *name, struct stored *stored)
{
    struct row *row;

    HASH_FIND(hh, disk->rows->by_name, name, strlen(name), row);
    if (row == NULL)
        return true;
    const struct content *now = &row->now;
    stored->exists = true;
    stored->token = now->resource.fence.token;
    stored->live = now->resource.fence.state == FENCE_LIVE;
    stored->text = now->string.data;
    stored->len = now->resource.type == VALUE_STRING ? now->string.len : 0;
    if (now->resource.type == VALUE_HASH)
        (void)bytes_to_int64(buf_bytes(&now->fields[0].value), &stored->number);
    return true;
}

/* The disk. */

/* Its count begins anew with each boot; the daemons' own clocks run at other rates. */
static int64_t machine_now_ms(const struct clock *clock)
{
    const struct world *world = clock->context;
    return (world->now_us - world->booted_us) / 1000;
}

static int64_t machine_wall_us(const struct clock *clock)
{
    return world_wall_us(clock->context);
}

static void machine_boot(const struct clock *clock, char id[CLOCK_BOOT_SIZE])
{
    snprintf(id, CLOCK_BOOT_SIZE, "boot %d", ((const struct world *)clock->context)->boots);
}

struct disk *disk_new(struct world *world)
{
    struct disk *disk = mem_zalloc(sizeof *disk);

    disk->world = world;
    disk->rng = rng_of(world->plan->seed, 'd', 0);
    disk->machine = (struct clock){.now_ms = machine_now_ms,
                                   .wall_us = machine_wall_us,
                                   .boot = machine_boot,
                                   .context = world};
    store_clock_init(&disk->clock, &disk->machine);
    if (world->plan->disk == DISK_MEMORY)
        disk->rows = memory_rows_new(&memory_txn_impl);
    else
        sqlite_disk_new(disk);
    return disk;
}

void disk_free(struct disk *disk)
{
    if (disk->rows != NULL)
        memory_rows_free(disk->rows);
    else
        sqlite_disk_free(disk);
    buf_free(&disk->text);
    free(disk);
}

bool disk_read(struct disk *disk, const char *name, struct stored *stored)
{
    *stored = (struct stored){0};
    return disk->rows != NULL ? memory_read(disk, name, stored) : sqlite_read(disk, name, stored);
}

void disk_set_full(struct disk *disk, int64_t ms)
{
    disk->full_until_us = disk->world->now_us + ms * 1000;
}

void disk_refuse_next(struct disk *disk)
{
    disk->next = DISK_FAULT_REFUSES;
}

void disk_unsure_next(struct disk *disk, bool power_follows)
{
    disk->next = DISK_FAULT_UNSURE;
    disk->power_follows = power_follows;
}

void disk_tear_next(struct disk *disk)
{
    disk->next = DISK_FAULT_TORN;
}

void disk_power_off(struct disk *disk)
{
    if (disk->rows == NULL)
        sqlite_power_off(disk);
}
