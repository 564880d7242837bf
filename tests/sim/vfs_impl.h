/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated file system's inside. */
#ifndef STOCKADE_TESTS_SIM_VFS_IMPL_H
#define STOCKADE_TESTS_SIM_VFS_IMPL_H

#include "fence/base/bytes.h"
#include "tests/sim/vfs.h"

#define VFS_SHM_REGIONS_MAX 64

/* A write or truncation (data empty) that is not synced. */
struct vfs_change {
    size_t at, len;
    char *data; /* NULL: truncated to `at` */
};

struct vfs_disk_file {
    char *path;
    struct buf now, synced;
    struct vfs_change *changes;
    size_t changes_count, changes_room;
    int opens;
    /* Locks, by connections. */
    int shared;
    struct vfs_open_file *reserved, *exclusive;
    void *regions[VFS_SHM_REGIONS_MAX];
    int shm_users;
    int shm_shared[SQLITE_SHM_NLOCK];
    struct vfs_open_file *shm_exclusive[SQLITE_SHM_NLOCK];
};

struct vfs_open_file {
    sqlite3_file base;
    struct vfs *vfs;
    struct vfs_disk_file *file;
    bool temporary, has_shm;
    int lock;
    unsigned shm_shared, shm_exclusive; /* bits */
};

/* vfs_locks.c */
int vfs_lock(sqlite3_file *base, int level);
int vfs_unlock(sqlite3_file *base, int level);
int vfs_check_lock(sqlite3_file *base, int *locked);
int vfs_shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **out);
int vfs_shm_lock(sqlite3_file *base, int offset, int n, int flags);
void vfs_shm_barrier(sqlite3_file *base);
int vfs_shm_unmap(sqlite3_file *base, int delete);

#endif
