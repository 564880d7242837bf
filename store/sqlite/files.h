/* SPDX-License-Identifier: Apache-2.0 */
/* Checks whether the store's three files (main, -wal, -shm) are still those that their names lead
 * to, and saves what it can where they are not.
 *
 * SQLite goes on with the files that it has open, whatever becomes of their names. A -wal without a
 * name vanishes when the process ends, with all that was acknowledged since it was copied back. A
 * -shm without a name no longer keeps writers apart: whoever opens the file next makes another one.
 * So the names are checked before a commit is written, and again when it is on disk, before it is
 * acknowledged. A file that the second check finds in place was there all the time (an open file
 * keeps its inode number), so until then everybody had the same files open, and whoever comes later
 * finds the commit in them. One gap is left, the microseconds between the first check and the write
 * after it: if a program deletes the -shm, opens the file anew and commits within that time, its
 * commit is overwritten by one that is not acknowledged.
 *
 *   in place ◀─▶ missing: the main file was moved or deleted; it may come back
 *      │◀──────▶ linked: it has another name (place.h); the commit that comes before is good
 *      └───────▶ broken: -wal or -shm were deleted or replaced, or the main file was cut short.
 * Other programs may have gone on with new ones, so neither reads nor writes can be trusted until
 * everybody has opened the store again.
 *
 * Only files of the operating system are watched: another VFS may keep them elsewhere.
 *
 * The writer checks with each commit, the checkpointer once a second; what they share is under a
 * lock. */
#ifndef STOCKADE_STORE_SQLITE_FILES_H
#define STOCKADE_STORE_SQLITE_FILES_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fence/base/log.h"
#include "store/store.h"

enum { FILE_MAIN, FILE_WAL, FILE_SHM, FILES };
enum files_place { PLACE_FINE, PLACE_MISSING, PLACE_LINKED };

struct files {
    /* Set once. */
    char *paths[FILES]; /* owned */
    const char *path;   /* borrowed, for the log */
    const struct log *log;
    bool watched;
    struct {
        dev_t device;
        ino_t number;
    } ids[FILES];

    /* The writer's. */
    int64_t size;      /* of the main file, bytes, as last seen */
    int64_t size_min;  /* it may shrink to this */
    int64_t size_last; /* as the last commit has it */

    pthread_mutex_t lock;
    /* Changed under the lock. */
    atomic_int place; /* enum files_place */
    atomic_bool broken, gone;
    /* Under the lock. */
    struct stat linked; /* PLACE_LINKED: the main file */
    bool saved, tried;  /* what was acknowledged; to save it */
    int broken_file;    /* FILE_MAIN: it was cut short */
    char why[STORE_WHY_MAX];
};

/* Note which files are the store's. The connection has its WAL open. */
void files_open(struct files *files, sqlite3 *db, const char *path, const struct log *log);
void files_close(struct files *files);
/* Check them. True: all are in place. Otherwise that is logged. */
bool files_check(struct files *files, sqlite3 *db);
/* The same for the writer, who knows how small the main file may be. */
bool files_check_writer(struct files *files, sqlite3 *db);
/* Note, for the writer, that its commit makes the database this large. */
void files_resize(struct files *files, int64_t bytes);
/* Note, for the writer, that another program's commits have made it this large. */
void files_resized(struct files *files, int64_t bytes);
/* Were they missing, linked or broken at the last check? On any thread, at no cost. */
bool files_stopped(const struct files *files);
/* Were they all in place, whatever other names there are? On any thread, at no cost. */
bool files_in_place(const struct files *files);
/* Were they broken at the last check, or have the rows gone to another store? Then nothing may be
 * read any more. On any thread, at no cost. */
bool files_broken(const struct files *files);
/* Note that the rows have gone to another store, or are to come from one, as `why` says, for as
 * long as the store is open. */
void files_gone(struct files *files, const char *why);
/* Say why the store has stopped, or is read no more. False: neither. */
bool files_why(struct files *files, char why[STORE_WHY_MAX]);
/* Copy what only an open file has into the main file, so that it outlives this process. Needs a
 * connection that is in no transaction. SQLITE_OK: done, or nothing to do; SQLITE_BUSY: not now;
 * anything else: it failed. */
int files_save(struct files *files, sqlite3 *db);

/* Is there a -wal without its main file? SQLite would delete it and begin a new file; `why` says
 * what to do instead. */
bool files_orphaned(const char *path, char *why, size_t why_size);

#endif
