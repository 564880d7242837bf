/* SPDX-License-Identifier: Apache-2.0 */
/* A SQLite VFS in front of the usual one, through which the disk fails on demand. While it is there
 * it is the default, and waiting for locks takes no time. */
#ifndef STOCKADE_TESTS_FAULT_VFS_H
#define STOCKADE_TESTS_FAULT_VFS_H

#include <stdbool.h>

struct fault_vfs;

enum fault_place { FAULT_WRITE, FAULT_SYNC, FAULT_PLACES };

/* Registers it; fault_vfs_remove when no file is open any more. */
struct fault_vfs *fault_vfs_add(void);
void fault_vfs_remove(struct fault_vfs *vfs);
/* From now on writes to, or syncs of, files whose path ends in `suffix` (static storage) give
 * `code`, after the first `spared` calls; SQLITE_OK ends it. */
void fault_vfs_set(struct fault_vfs *vfs, enum fault_place place, const char *suffix, int spared,
                   int code);
/* Calls that were failed so far. */
int fault_vfs_hits(struct fault_vfs *vfs);

#endif
