/* SPDX-License-Identifier: Apache-2.0 */
/* The checkpointer: copies a long WAL back into the file while the writer goes on, in two steps:
 *
 *   IDLE ──long WAL──▶ COPYING ──little is left──▶ REST ──the writer copies it──▶ IDLE
 *                         └─ a reader still needs the rest, or it failed ──▶ IDLE, until later
 *
 * The bulk is copied by a thread and a connection of its own. What is committed meanwhile is left
 * over, and as long as something is, SQLite never begins the WAL anew. So the writer itself copies
 * the rest, between two batches: so little that nobody notices. Where the WAL grows faster than it
 * is copied, the writer has to wait, from PAGES_FACTOR times its usual length on.
 *
 * Copying may fail and do no harm: the WAL has everything. The failure is logged, and it is tried
 * again. But a failed sync of the file is the end: nobody may take the file to be whole and begin
 * the WAL anew. Whoever opens the store next copies all of it again (wal_vfs.h).
 *
 * A reader that keeps its snapshot holds the log: what was committed after it stays there, and the
 * log grows for as long. That is tried again once a second; from the size on that the log has by
 * itself at most it is logged, with the reader's name, and again at each doubling.
 *
 * When there is nothing to copy, the thread checks once a second that the files are in place. */
#ifndef STOCKADE_STORE_SQLITE_CHECKPOINTER_H
#define STOCKADE_STORE_SQLITE_CHECKPOINTER_H

#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "fence/base/log.h"
#include "store/sqlite/files.h"

enum checkpoint_state { CHECKPOINT_IDLE, CHECKPOINT_COPYING, CHECKPOINT_REST };

struct checkpointer {
    /* Set once. */
    sqlite3 *db;
    struct files *files; /* borrowed */
    const char *path;    /* borrowed, for the log */
    const struct log *log;
    bool threaded;
    pthread_t thread;
    bool fixed; /* pages_max was given */

    atomic_int pages_max; /* in the WAL, from which on it is copied */
    atomic_int state;     /* enum checkpoint_state; changed under the lock */
    pthread_mutex_t lock;
    pthread_cond_t news; /* the state has changed, or it is to stop */
    atomic_bool stopping;
    atomic_int outage; /* SQLite's code of the failure that was logged */
    atomic_bool lost;

    /* The thread's; others look. */
    _Atomic int64_t held_since_ms; /* a reader has held the log since then, at least; 0: nobody */
    _Atomic int64_t log_bytes;     /* the size of its file, as last seen */
    bool held;                     /* by a reader, in the pass that was made last */
    int64_t warned_bytes;          /* it was logged at this size; 0: it was not */

    /* The writer's. */
    atomic_int pages; /* in the WAL, as of the last commit; the thread looks at it */
    int again_at;     /* pages below which no copying begins: the last one left some over */
};

/* Take over `db`, a connection that may write. `pages_max`: in the WAL, from which on it is
 * copied; 0: by the size of the file, 32 to 128 MB. False: no thread could be had; free it all the
 * same. */
bool checkpointer_start(struct checkpointer *checkpointer, sqlite3 *db, struct files *files,
                        int pages_max, bool threaded, const char *path, const struct log *log);
/* End the thread, after the piece that it is at, and close the connection. */
void checkpointer_stop(struct checkpointer *checkpointer);
/* Copy the bulk, if that is to be done, without a thread. False: there was nothing to do. */
bool checkpointer_step(struct checkpointer *checkpointer);

/* Return the size of the log's file, and for how long, at least, a reader has held it (ms; 0:
 * nobody does). On any thread. */
int64_t checkpointer_log_bytes(const struct checkpointer *checkpointer);
int64_t checkpointer_held_ms(const struct checkpointer *checkpointer);

/* The writer's part. */

/* Note that a commit has left so many pages in the WAL, one of them `repeats` times (see
 * wal_vfs_repeats), and begin copying where that is too much. */
void checkpointer_on_commit(struct checkpointer *checkpointer, int pages, int repeats);
/* Is there something for checkpointer_copy_rest to do? */
bool checkpointer_has_rest(struct checkpointer *checkpointer);
/* Has a sync failed? Then nothing may be written any more. */
bool checkpointer_lost(struct checkpointer *checkpointer);
/* When the files are not in place: save what can be saved (files_save). True: that is done. */
bool checkpointer_save(struct checkpointer *checkpointer, sqlite3 *db);
/* Copy the rest, between two transactions of the writer's connection `db`. May take its time. */
void checkpointer_copy_rest(struct checkpointer *checkpointer, sqlite3 *db);

#endif
