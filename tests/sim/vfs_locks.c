/* SPDX-License-Identifier: Apache-2.0 */
/* Locks and shared memory among the connections of one process, by SQLite's rules for a VFS. */
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/sim/vfs_impl.h"

int vfs_lock(sqlite3_file *base, int level)
{
    struct vfs_open_file *open = (struct vfs_open_file *)base;
    struct vfs_disk_file *file = open->file;

    if (open->lock >= level)
        return SQLITE_OK;
    if (file->exclusive != NULL && file->exclusive != open)
        return SQLITE_BUSY;
    if (level >= SQLITE_LOCK_RESERVED && file->reserved != NULL && file->reserved != open)
        return SQLITE_BUSY;
    if (level == SQLITE_LOCK_EXCLUSIVE && file->shared > (open->lock >= SQLITE_LOCK_SHARED))
        return SQLITE_BUSY;
    if (open->lock < SQLITE_LOCK_SHARED)
        file->shared++;
    if (level >= SQLITE_LOCK_RESERVED)
        file->reserved = open;
    if (level == SQLITE_LOCK_EXCLUSIVE)
        file->exclusive = open;
    open->lock = level;
    return SQLITE_OK;
}

int vfs_unlock(sqlite3_file *base, int level)
{
    struct vfs_open_file *open = (struct vfs_open_file *)base;
    struct vfs_disk_file *file = open->file;

    if (open->lock <= level)
        return SQLITE_OK;
    if (file->reserved == open)
        file->reserved = NULL;
    if (file->exclusive == open)
        file->exclusive = NULL;
    if (level == SQLITE_LOCK_NONE)
        file->shared--;
    open->lock = level;
    return SQLITE_OK;
}

int vfs_check_lock(sqlite3_file *base, int *locked)
{
    *locked = ((struct vfs_open_file *)base)->file->reserved != NULL;
    return SQLITE_OK;
}

int vfs_shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **out)
{
    struct vfs_open_file *open = (struct vfs_open_file *)base;
    struct vfs_disk_file *file = open->file;

    check(region < VFS_SHM_REGIONS_MAX);
    if (!open->has_shm) {
        open->has_shm = true;
        file->shm_users++;
    }
    if (file->regions[region] == NULL && extend)
        file->regions[region] = mem_zalloc((size_t)size);
    *out = file->regions[region];
    return SQLITE_OK;
}

static int lock_shared(struct vfs_open_file *open, int offset, int n)
{
    unsigned mask = ((1u << n) - 1) << offset;

    for (int i = offset; i < offset + n; i++)
        if (open->file->shm_exclusive[i] != NULL && open->file->shm_exclusive[i] != open)
            return SQLITE_BUSY;
    for (int i = offset; i < offset + n; i++)
        open->file->shm_shared[i] += !(open->shm_shared & (1u << i));
    open->shm_shared |= mask;
    return SQLITE_OK;
}

static int lock_exclusive(struct vfs_open_file *open, int offset, int n)
{
    const struct vfs_disk_file *file = open->file;

    for (int i = offset; i < offset + n; i++) {
        int own = (open->shm_shared & (1u << i)) != 0;
        if (file->shm_shared[i] > own ||
            (file->shm_exclusive[i] != NULL && file->shm_exclusive[i] != open))
            return SQLITE_BUSY;
    }
    for (int i = offset; i < offset + n; i++) {
        open->file->shm_exclusive[i] = open;
        open->shm_exclusive |= 1u << i;
    }
    return SQLITE_OK;
}

static void unlock(struct vfs_open_file *open, int offset, int n)
{
    for (int i = offset; i < offset + n; i++) {
        unsigned bit = 1u << i;
        open->file->shm_shared[i] -= (open->shm_shared & bit) != 0;
        if (open->shm_exclusive & bit)
            open->file->shm_exclusive[i] = NULL;
        open->shm_shared &= ~bit;
        open->shm_exclusive &= ~bit;
    }
}

int vfs_shm_lock(sqlite3_file *base, int offset, int n, int flags)
{
    struct vfs_open_file *open = (struct vfs_open_file *)base;

    if (flags & SQLITE_SHM_UNLOCK) {
        unlock(open, offset, n);
        return SQLITE_OK;
    }
    return flags & SQLITE_SHM_SHARED ? lock_shared(open, offset, n)
                                     : lock_exclusive(open, offset, n);
}

void vfs_shm_barrier(sqlite3_file *base)
{
    (void)base;
}

int vfs_shm_unmap(sqlite3_file *base, int delete)
{
    struct vfs_open_file *open = (struct vfs_open_file *)base;

    (void)delete; /* the last one to leave takes it along, as after the death of all processes */
    if (!open->has_shm)
        return SQLITE_OK;
    unlock(open, 0, SQLITE_SHM_NLOCK);
    open->has_shm = false;
    if (--open->file->shm_users > 0)
        return SQLITE_OK;
    for (int i = 0; i < VFS_SHM_REGIONS_MAX; i++) {
        free(open->file->regions[i]);
        open->file->regions[i] = NULL;
    }
    return SQLITE_OK;
}
