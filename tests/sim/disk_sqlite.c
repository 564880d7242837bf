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
#include "tests/sim/daemon.h"
#include "tests/sim/disk_impl.h"
#include "tests/sim/vfs.h"

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
    disk->vfs = vfs_new(rng_of(disk->world->plan->seed, 'v', 0));
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
    vfs_free(disk->vfs);
}

bool sqlite_open(struct handle *handle)
{
    struct vfs *vfs = handle->disk->vfs;
    char why[200];

    vfs->full = handle->disk->full_until_us > handle->disk->world->now_us;
    handle->inner = store_sqlite_open(&(struct store_options){.path = path,
                                                              .queue_ops_max = 5000,
                                                              .batch_ops_max = 5000,
                                                              .clock = &handle->disk->machine},
                                      why, sizeof why);
    if (handle->inner == NULL) {
        world_tell(handle->disk->world, "the store cannot be opened: %s", why);
        /* Where the power fails while it is being opened, everybody goes. */
        if (vfs->power_gone)
            daemon_power_off(handle->disk->world, 0);
        return false;
    }
    handle->session = store_session(handle->inner);
    return true;
}

static void arm(struct disk *disk)
{
    static const enum vfs_fault faults[] = {[DISK_FAULT_REFUSES] = VFS_FULL,
                                            [DISK_FAULT_UNSURE] = VFS_SYNC_FAILS,
                                            [DISK_FAULT_TORN] = VFS_POWER};

    disk->vfs->full = disk->full_until_us > disk->world->now_us;
    if (disk->next != DISK_FAULT_NONE)
        vfs_set_fault(disk->vfs, faults[disk->next]);
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
    if (writes && disk->vfs->sync_failed)
        disk_was_unsure(disk);
    disk->vfs->sync_failed = false;
    if (disk->vfs->power_gone) {
        if (writes)
            daemon_power_off(disk->world, 0);
        return false;
    }
    return !store_lost(handle->inner);
}

void sqlite_shut(struct handle *handle)
{
    /* A killed process does not tidy up. The auditor's connection is open as well, so this is never
     * the last one to close, which would. */
    store_close(handle->inner);
}

void sqlite_power_off(struct disk *disk)
{
    reader_close(disk);
    vfs_power_cycle(disk->vfs);
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

bool sqlite_look(struct disk *disk, const char *name, struct look *look)
{
    if (disk->vfs->power_gone || !reader_open(disk))
        return false;
    sqlite3_bind_blob(disk->reads, 1, name, (int)strlen(name), SQLITE_STATIC);
    int code = sqlite3_step(disk->reads);
    if (code == SQLITE_ROW) {
        const void *text = sqlite3_column_blob(disk->reads, 2);
        struct bytes number = {sqlite3_column_blob(disk->reads, 3),
                               (size_t)sqlite3_column_bytes(disk->reads, 3)};
        look->exists = true;
        look->token = sqlite3_column_int64(disk->reads, 0);
        look->live = sqlite3_column_int64(disk->reads, 1) == FENCE_LIVE;
        look->len = (size_t)sqlite3_column_bytes(disk->reads, 2);
        buf_clear(&disk->text);
        buf_append(&disk->text, text, look->len);
        look->text = disk->text.data;
        if (number.len > 0)
            (void)bytes_to_int64(number, &look->number);
    }
    sqlite3_reset(disk->reads);
    return code == SQLITE_ROW || code == SQLITE_DONE;
}
