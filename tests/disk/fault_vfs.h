/* SPDX-License-Identifier: Apache-2.0 */
/* A SQLite VFS in front of another one, through which the disk fails on demand. The one behind it
 * is SQLite's own, with real files and threads, in the unit tests; a RAM disk (ramdisk_vfs.h) in
 * the crash tests and the simulator. While it is there it is the default. */
#ifndef STOCKADE_TESTS_FAULT_VFS_H
#define STOCKADE_TESTS_FAULT_VFS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

/* The kinds of calls that can fail: X(name, its words, its code on a disk that is broken). */
#define FAULT_CALLS(X)                                                                             \
    X(OPEN, "open", SQLITE_CANTOPEN)                                                               \
    X(READ, "read", SQLITE_IOERR_READ)                                                             \
    X(WRITE, "write", SQLITE_IOERR_WRITE)                                                          \
    X(TRUNCATE, "truncate", SQLITE_IOERR_TRUNCATE)                                                 \
    X(SYNC, "sync", SQLITE_IOERR_FSYNC)                                                            \
    X(SIZE, "size", SQLITE_IOERR_FSTAT)                                                            \
    X(DELETE, "delete", SQLITE_IOERR_DELETE)                                                       \
    X(ACCESS, "access", SQLITE_IOERR_ACCESS)                                                       \
    X(LOCK, "lock", SQLITE_IOERR_LOCK)                                                             \
    X(CHECK_LOCK, "check of a lock", SQLITE_IOERR_CHECKRESERVEDLOCK)                               \
    X(SHM_MAP, "map of shared memory", SQLITE_IOERR_SHMMAP)                                        \
    X(SHM_LOCK, "lock of shared memory", SQLITE_IOERR_SHMLOCK)

#define FAULT_ENUM(name, words, code) FAULT_##name,
enum fault_call { FAULT_CALLS(FAULT_ENUM) FAULT_CALLS_COUNT };
#undef FAULT_ENUM

#define FAULT_BIT(call) (1u << FAULT_##call)
enum {
    FAULT_BITS_ALL = (1 << FAULT_CALLS_COUNT) - 1,
    /* What SQLite does with a file, but for asking about it. */
    FAULT_BITS_IO = FAULT_BIT(OPEN) | FAULT_BIT(READ) | FAULT_BIT(WRITE) | FAULT_BIT(TRUNCATE) |
                    FAULT_BIT(SYNC) | FAULT_BIT(LOCK),
};
#define FAULT_FOR_EVER INT64_MAX

struct io_fault {
    unsigned calls;     /* the kinds that are concerned, as bits */
    const char *suffix; /* files whose path ends in it, in static storage; NULL: all files */
    int64_t passes;     /* so many calls succeed first */
    int64_t times;      /* then so many fail */
    int code;           /* with this; 0: with the call's own */
    bool breaks_all;    /* from the first failure on every call fails: the power is gone */
};

struct fault_counts {
    int64_t calls;   /* that the fault for several kinds was asked about */
    int64_t hits;    /* calls of all kinds that failed */
    int64_t syncs;   /* syncs among them */
    const char *hit; /* which call failed first, in words */
};

struct fault_vfs;

/* Add one in front of the default VFS. */
struct fault_vfs *fault_vfs_add(void);
/* Remove it, when no file is open any more. NULL is harmless. */
void fault_vfs_remove(struct fault_vfs *vfs);
/* Make it the default again, after sqlite3_shutdown. */
void fault_vfs_register(struct fault_vfs *vfs);

/* From now on one kind of call on files whose path ends in `suffix` gives `code`, `times` times. */
void fault_vfs_set(struct fault_vfs *vfs, enum fault_call call, const char *suffix, int64_t times,
                   int code);
/* Set one fault for calls of several kinds, beside those. Counts begin anew. */
void fault_vfs_set_any(struct fault_vfs *vfs, struct io_fault fault);
/* Nothing fails any more; hits stay counted. */
void fault_vfs_clear(struct fault_vfs *vfs);
struct fault_counts fault_vfs_counts(struct fault_vfs *vfs);
/* Has a fault struck that breaks everything? */
bool fault_vfs_is_broken(struct fault_vfs *vfs);

/* From now on waiting for a lock takes no time, and nothing is really synced: for tests of a single
 * thread. */
void fault_vfs_hurry(struct fault_vfs *vfs);
/* From now on syncs of files whose path ends in `suffix` (static storage) wait; NULL: no more. */
void fault_vfs_hold(struct fault_vfs *vfs, const char *suffix);
/* Is a sync waiting? */
bool fault_vfs_holds(struct fault_vfs *vfs);
/* From now on each sync of a file whose path ends in `suffix` (static storage; NULL: none) calls
 * `on_sync` first. While nothing else runs. */
void fault_vfs_on_sync(struct fault_vfs *vfs, const char *suffix, void (*on_sync)(void *context),
                       void *context);

#endif
