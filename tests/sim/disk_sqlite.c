/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite kind of disk: the product's store, without threads, over the simulated file system. A
 * batch goes through it within one event; what happens in between is the file system's business. */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/open.h"
#include "store/sqlite/sql_memory.h"
#include "tests/disk/fault_vfs.h"
#include "tests/disk/ramdisk_vfs.h"
#include "tests/sim/daemon.h"
#include "tests/sim/disk_impl.h"

static const char path[] = "sim.db";

/* An operation of the engine's, as the store gets it. */
struct shadow {
    struct store_op op;
    struct store_op *real;
};

static enum stk_error shadow_run(struct store_op *op, struct store_txn *txn)
{
    struct shadow *shadow = (struct shadow *)op;
    return shadow->real->run(shadow->real, txn);
}

static void shadow_done(struct store_op *op)
{
    ((struct shadow *)op)->real->error = op->error;
}

void sqlite_disk_new(struct disk *disk)
{
    sql_memory_install();
    disk->power = rng_of(disk->world->plan->seed, 'v', 0);
    disk->ramdisk = ramdisk_new();
    disk->ramdisk->now_ms = 1700000000000;
    disk->at_power_on = ramdisk_clone(disk->ramdisk);
    disk->vfs = ramdisk_vfs_add();
    ramdisk_vfs_mount(disk->vfs, disk->ramdisk);
    disk->faults = fault_vfs_add();
}

static void reader_close(struct disk *disk)
{
    sqlite3_finalize(disk->reads);
    sqlite3_close(disk->reader);
    disk->reads = NULL;
    disk->reader = NULL;
}

void sqlite_disk_free(struct disk *disk)
{
    reader_close(disk);
    fault_vfs_remove(disk->faults);
    ramdisk_vfs_remove(disk->vfs);
    ramdisk_free(disk->ramdisk);
    ramdisk_free(disk->at_power_on);
}

/* There is no room for writes until further notice, or there is again. */
static void fill_up(struct disk *disk)
{
    bool full = disk->full_until_us > disk->world->now_us;
    fault_vfs_set(disk->faults, FAULT_WRITE, "", full ? FAULT_FOR_EVER : 0, SQLITE_FULL);
}

bool sqlite_open(struct handle *handle)
{
    char why[200];

    fill_up(handle->disk);
    handle->inner = store_sqlite_open(&(struct store_options){.path = path,
                                                              .queue_ops_max = 5000,
                                                              .batch_ops_max = 5000,
                                                              .clock = &handle->disk->machine},
                                      why, sizeof why);
    if (handle->inner == NULL) {
        world_tell(handle->disk->world, "the store cannot be opened: %s", why);
        /* Where the power fails while it is being opened, everybody goes. */
        if (fault_vfs_is_broken(handle->disk->faults))
            daemon_power_off(handle->disk->world, 0);
        return false;
    }
    handle->opening = store_opening(handle->inner);
    return true;
}

static void arm(struct disk *disk)
{
    struct io_fault faults[] = {
        [DISK_FAULT_REFUSES] = {.calls = FAULT_BIT(WRITE), .times = 1, .code = SQLITE_FULL},
        [DISK_FAULT_UNSURE] = {.calls = FAULT_BIT(SYNC), .times = 1},
        [DISK_FAULT_TORN] = {.calls = FAULT_BIT(WRITE), .times = 1, .breaks_all = true},
    };

    fill_up(disk);
    faults[DISK_FAULT_TORN].passes = rng_below(&disk->power, 8);
    if (disk->next != DISK_FAULT_NONE)
        fault_vfs_set_any(disk->faults, faults[disk->next]);
    disk->next = DISK_FAULT_NONE;
}

bool sqlite_batch(struct handle *handle, struct list *batch, bool writes)
{
    struct disk *disk = handle->disk;
    size_t count = 0;

    for (const struct list *at = batch->next; at != batch; at = at->next)
        count++;
    struct shadow *shadows = mem_zalloc(count * sizeof *shadows);
    count = 0;
    if (writes)
        arm(disk);
    for (struct list *at = batch->next; at != batch; at = at->next) {
        struct shadow *shadow = &shadows[count++];
        shadow->real = list_entry(at, struct store_op, link);
        shadow->op = (struct store_op){
            .writes = writes, .slow = shadow->real->slow, .run = shadow_run, .done = shadow_done};
        list_init(&shadow->op.link);
        shadow->real->error = STK_STORE;
        if (!store_lost(handle->inner) || !writes)
            check(store_submit(handle->inner, &shadow->op) == STK_OK);
    }
    while (store_step(handle->inner))
        ;
    store_collect(handle->inner);
    free(shadows);
    bool power_gone = fault_vfs_is_broken(disk->faults);
    if (!power_gone && fault_vfs_counts(disk->faults).syncs > 0) {
        if (writes)
            disk_was_unsure(disk);
        fault_vfs_set_any(disk->faults, (struct io_fault){0});
    }
    if (power_gone) {
        if (writes)
            daemon_power_off(disk->world, 0);
        return false;
    }
    return !store_lost(handle->inner);
}

void sqlite_shut(struct handle *handle)
{
    /* A killed process does not tidy up. The oracle's connection is open as well, so this is never
     * the last one to close, which would. */
    store_close(handle->inner);
}

void sqlite_power_off(struct disk *disk)
{
    reader_close(disk);
    struct replay *replay = replay_new(disk->ramdisk, disk->at_power_on);
    enum ramdisk_mode mode = (enum ramdisk_mode)rng_below(&disk->power, RAMDISK_MODES);

    replay_to(replay, disk->ramdisk->events_count);
    struct ramdisk *left = replay_image(replay, mode, rng_next(&disk->power));
    replay_free(replay);
    ramdisk_free(disk->ramdisk);
    ramdisk_free(disk->at_power_on);
    disk->ramdisk = left;
    disk->at_power_on = ramdisk_clone(left);
    ramdisk_vfs_mount(disk->vfs, left);
    fault_vfs_clear(disk->faults);
    fault_vfs_set_any(disk->faults, (struct io_fault){0});
}

static bool reader_open(struct disk *disk)
{
    static const char query[] =
        "SELECT r.token, r.state, s.value, h.value FROM stockade_resource r"
        " LEFT JOIN stockade_string s ON s.id = r.id"
        " LEFT JOIN stockade_hash h ON h.id = r.id AND h.field = x'736f6c64' WHERE r.name = ?1";

    if (disk->reads != NULL)
        return true;
    if (sqlite3_open_v2(path, &disk->reader, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(disk->reader, query, -1, &disk->reads, NULL) == SQLITE_OK)
        return true;
    reader_close(disk);
    return false;
}

bool sqlite_read(struct disk *disk, const char *name, struct stored *stored)
{
    if (fault_vfs_is_broken(disk->faults) || !reader_open(disk))
        return false;
    sqlite3_bind_blob(disk->reads, 1, name, (int)strlen(name), SQLITE_STATIC);
    int code = sqlite3_step(disk->reads);
    if (code == SQLITE_ROW) {
        const void *text = sqlite3_column_blob(disk->reads, 2);
        struct bytes number = {sqlite3_column_blob(disk->reads, 3),
                               (size_t)sqlite3_column_bytes(disk->reads, 3)};
        stored->exists = true;
        stored->token = sqlite3_column_int64(disk->reads, 0);
        stored->live = sqlite3_column_int64(disk->reads, 1) == FENCE_LIVE;
        stored->len = (size_t)sqlite3_column_bytes(disk->reads, 2);
        buf_clear(&disk->text);
        buf_append(&disk->text, text, stored->len);
        stored->text = disk->text.data;
        if (number.len > 0)
            (void)bytes_to_int64(number, &stored->number);
    }
    sqlite3_reset(disk->reads);
    return code == SQLITE_ROW || code == SQLITE_DONE;
}
