/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a long WAL back into the file while the writer goes on, in two steps:
 *
 *   IDLE ──long WAL──▶ COPYING ──little is left──▶ REST ──the writer copies it──▶ IDLE
 *                         └─ a reader needs the rest as it is, or a failure ──▶ IDLE, later again
 *
 * The bulk is copied by a thread and a connection of its own. What is committed meanwhile is left
 * over, and as long as something is, SQLite never begins the WAL anew. So the writer itself copies
 * the rest, between two batches: little, so that nobody notices. A WAL that grows faster than it is
 * copied holds up the writer, at PAGES_FACTOR times its usual length.
 *
 * That copying fails is no harm: the WAL has everything. It is logged, and tried again. But a sync
 * of the file that fails is the end: the WAL must not be begun anew by anybody who takes the file
 * to be whole. Whoever opens the store next copies all of it again (pieces.h). */
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

    /* The writer's. */
    atomic_int pages; /* in the WAL, as of the last commit; the thread looks at it */
    int again_at;     /* no copying is begun with fewer: some reader still needs the rest */
};

/* Takes over `db`, a connection that may write. `pages_max`: in the WAL, from which on it is
 * copied; 0: by the size of the file, 32 to 128 MB. False: no thread could be had; free it all the
 * same. */
bool checkpointer_start(struct checkpointer *checkpointer, sqlite3 *db, struct files *files,
                        int pages_max, bool threaded, const char *path, const struct log *log);
/* Ends the thread, after the piece that it is at, and closes the connection. */
void checkpointer_stop(struct checkpointer *checkpointer);
/* Without a thread: copies the bulk, if that is to be done. False: there was nothing to do. */
bool checkpointer_step(struct checkpointer *checkpointer);

/* The writer's part. */

/* The WAL has so many pages after a commit, one of them so often (see wal_join_repeats). */
void checkpointer_on_commit(struct checkpointer *checkpointer, int pages, int repeats);
/* Is there something to be done in checkpointer_copy_rest? */
bool checkpointer_has_rest(struct checkpointer *checkpointer);
/* A sync has failed: nothing may be written any more. */
bool checkpointer_lost(struct checkpointer *checkpointer);
/* The files are not in place: files_save. True: all is saved that can be. */
bool checkpointer_save(struct checkpointer *checkpointer, sqlite3 *db);
/* Between two transactions of the writer's connection `db`. May take its time. */
void checkpointer_copy_rest(struct checkpointer *checkpointer, sqlite3 *db);

#endif
