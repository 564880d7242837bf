/* SPDX-License-Identifier: Apache-2.0 */
/* A file system in memory, for SQLite: one machine's, shared by the simulated daemons. It knows
 * what was synced; when the power goes, of the rest any part is kept, dropped or torn. */
#ifndef STOCKADE_TESTS_SIM_VFS_H
#define STOCKADE_TESTS_SIM_VFS_H

#include <sqlite3.h>

#include "tests/sim/chance.h"

#define VFS_FILES_MAX 8

enum vfs_fault {
    VFS_NO_FAULT,
    VFS_FULL,       /* the next write finds no room */
    VFS_SYNC_FAILS, /* the next sync fails */
    VFS_POWER,      /* after some more writes everything fails: the power is gone */
};

struct vfs_disk_file;

struct vfs {
    sqlite3_vfs base;
    struct rng rng;
    struct vfs_disk_file *files[VFS_FILES_MAX];
    int open; /* files that are */
    enum vfs_fault fault;
    int writes_left; /* until the power goes */
    bool full;       /* until further notice */
    bool power_gone, sync_failed;
};

/* Becomes SQLite's default. */
struct vfs *vfs_new(struct rng rng);
void vfs_free(struct vfs *vfs);
void vfs_set_fault(struct vfs *vfs, enum vfs_fault fault);
/* No file is open. What was not synced is lost, or some of it; then the power is back. */
void vfs_power_cycle(struct vfs *vfs);

#endif
