/* SPDX-License-Identifier: Apache-2.0 */
/* A SQLite VFS over a disk in memory, for one thread: several connections of it may share files, as
 * SQLite's own does it between processes (locks, and the WAL's index in shared memory, which is
 * gone once the last connection has closed its file). It promises of writes what SQLite's own
 * promises on Linux. While it is there it is the default.
 *
 * Any call that can fail in reality can be made to: the n-th, or every one from the n-th. */
#ifndef STOCKADE_TESTS_CRASH_VFS_H
#define STOCKADE_TESTS_CRASH_VFS_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/crash/disk.h"

struct crash_vfs;

struct vfs_faults {
    int64_t first;   /* the call that fails; 0: none */
    bool lasting;    /* and all after it */
    bool full;       /* only writes count and fail: the disk is full */
    int64_t calls;   /* out: so far */
    int64_t hits;    /* out: of them failed */
    const char *hit; /* out: which call failed first */
};

struct crash_vfs *crash_vfs_new(void);
void crash_vfs_free(struct crash_vfs *vfs);
/* From now on files are on this disk; no file is open. Nothing fails. Locks and shared memory of
 * connections that were abandoned are gone. */
void crash_vfs_mount(struct crash_vfs *vfs, struct disk *disk);
struct disk *crash_vfs_disk(struct crash_vfs *vfs);
/* The first connection that is opened from now on. */
void crash_vfs_watch(struct crash_vfs *vfs);
struct sqlite3 *crash_vfs_watched(const struct crash_vfs *vfs);
/* Counts begin anew. */
void crash_vfs_fail(struct crash_vfs *vfs, struct vfs_faults faults);
const struct vfs_faults *crash_vfs_faults(const struct crash_vfs *vfs);

#endif
