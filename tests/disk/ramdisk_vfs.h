/* SPDX-License-Identifier: Apache-2.0 */
/* A SQLite VFS over a RAM disk, for one thread. Several connections may share its files, as they
 * share real ones: by locks, and by the WAL's index in shared memory, which is gone once the last
 * connection has closed its file. It promises of writes what SQLite's own VFS promises on Linux.
 * Nothing fails here; put a fault VFS in front of it. */
#ifndef STOCKADE_TESTS_RAMDISK_VFS_H
#define STOCKADE_TESTS_RAMDISK_VFS_H

#include "tests/disk/ramdisk.h"

struct ramdisk_vfs;

/* The file control that tells it that a sync has failed in the VFS in front. */
enum { RAMDISK_SYNC_HAS_FAILED = 0x52414d };

/* Make it SQLite's default. Mount a disk before a file is opened. */
struct ramdisk_vfs *ramdisk_vfs_add(void);
/* Remove it, when no file is open any more. */
void ramdisk_vfs_remove(struct ramdisk_vfs *vfs);
/* Put files on this disk from now on; NULL: on none. Locks and shared memory of connections that
 * were abandoned are gone. */
void ramdisk_vfs_mount(struct ramdisk_vfs *vfs, struct ramdisk *disk);
struct ramdisk *ramdisk_vfs_disk(const struct ramdisk_vfs *vfs);

#endif
