/* SPDX-License-Identifier: Apache-2.0 */
/* A SQLite VFS in front of the usual one, through which the disk fails on demand. While it is there
 * it is the default. */
#ifndef STOCKADE_TESTS_FAULT_VFS_H
#define STOCKADE_TESTS_FAULT_VFS_H

#include <stdbool.h>

struct fault_vfs;

enum fault_place { FAULT_WRITE, FAULT_SYNC, FAULT_PLACES };

/* Registers it; fault_vfs_remove when no file is open any more. */
struct fault_vfs *fault_vfs_add(void);
void fault_vfs_remove(struct fault_vfs *vfs);
/* From now on writes to, or syncs of, files whose path ends in `suffix` (static storage) give
 * `code`, `times` times. */
void fault_vfs_set(struct fault_vfs *vfs, enum fault_place place, const char *suffix, int times,
                   int code);
/* Of the calls from now on that open, read, write, truncate, sync or lock a file, those behind the
 * first `calls` give `code`: all of them, or only the next one. */
void fault_vfs_fail_after(struct fault_vfs *vfs, int calls, int code, bool once);
/* From now on waiting for a lock takes no time, and nothing is really synced: for tests of a single
 * thread. */
void fault_vfs_hurry(struct fault_vfs *vfs);
/* From now on syncs of files whose path ends in `suffix` (static storage) wait; NULL: no more. */
void fault_vfs_hold(struct fault_vfs *vfs, const char *suffix);
/* Does one wait? */
bool fault_vfs_holds(struct fault_vfs *vfs);
/* From now on each sync of a file whose path ends in `suffix` (static storage; NULL: none) calls
 * `call` first. While nothing else runs. */
void fault_vfs_on_sync(struct fault_vfs *vfs, const char *suffix, void (*call)(void *context),
                       void *context);
/* Nothing fails any more. */
void fault_vfs_clear(struct fault_vfs *vfs);
/* Calls that were failed so far. */
int fault_vfs_hits(struct fault_vfs *vfs);

#endif
