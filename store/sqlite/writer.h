/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: the one who changes the file. It takes a batch of operations through one transaction
 * (group commit), learns of each how it ended, and hands the batch back:
 *
 *   batch ─▶ BEGIN IMMEDIATE ─▶ run, run, run ─▶ check ─▶ COMMIT ─▶ check ─▶ hand back
 *                │                  │              │        │         └─ files gone: unknown, lost
 *                │                  │              │        ├─ failed cleanly: all get STK_STORE
 *                │                  │              │        └─ anything else: unknown, lost
 *                │                  │              └─ files gone (files.h): all get STK_STORE
 *                │                  └─ one fails, and has changed something: see below
 *                └─ failed (locked): all get STK_STORE
 *
 * The checks are whether the store's files are in place. Where they are not, what was acknowledged
 * is saved before anybody is answered and before the process ends. Lost: whether the last
 * transaction, or what was copied out of the WAL, is on disk is unknown; nothing more is answered,
 * nothing more is run, and the next process finds out.
 *
 * An operation that fails and has changed something, or has lost the transaction (SQL can end it),
 * cannot be taken out of it: the transaction is rolled back; what ran before the operation runs
 * again in a transaction of its own, what comes after it follows in another. An operation that
 * failed for reasons of its own is not run again; one that the store failed gets a transaction to
 * itself, once.
 *
 * What is cached never outlives a transaction that did not commit. A failure is logged once, and
 * once more when commits succeed again.
 *
 * All of it is the writer thread's, but while that thread rests it is the loop's (worker_rests). */
#ifndef STOCKADE_STORE_SQLITE_WRITER_H
#define STOCKADE_STORE_SQLITE_WRITER_H

#include "fence/base/log.h"
#include "store/sqlite/anew.h"
#include "store/sqlite/checkpointer.h"
#include "store/sqlite/files.h"
#include "store/sqlite/transaction.h"
#include "store/sqlite/wal_vfs.h"
#include "store/worker.h"

struct writer {
    /* Set once; borrowed, and NULL until writer_open. */
    struct wal_vfs *vfs;
    struct checkpointer *checkpointer;
    struct files *files;
    struct finished *finished;
    const struct log *log;
    const char *path; /* for the log */

    /* The writer's. */
    struct transaction txn; /* on a connection that it owns */
    int64_t page_size;
    int64_t data_version; /* SQLite's: differs once another connection has committed */
    struct anew anew;     /* what the transaction under way has begun, told once it is committed */
    int outage;           /* SQLite's code of the failure that was logged; 0: all is well */
    int read_outage;
    bool latest;          /* nobody else has committed since, as far as it knows */
    int64_t caught_up_ms; /* when it last read what others have committed, without writing */
    bool waits;           /* for another program's lock, up to DB_BUSY_TIMEOUT_MS */
    uint64_t commits, failed_commits, foreign_commits;
    struct durations queued, commits_took;
    /* Any thread may ask for these: */
    atomic_bool lost; /* the outcome of a commit is unknown */
    atomic_bool busy; /* it has the write lock, or waits for another program that has it */
};

/* Take `db` over; the other pointers are borrowed. False: SQLite has no memory; free it all the
 * same. */
bool writer_init(struct writer *writer, sqlite3 *db, int cache_mb, const char *path,
                 const struct log *log, struct store_clock *clock);
/* Give it what it works with. The file is made by now, and its WAL open. */
void writer_open(struct writer *writer, struct checkpointer *checkpointer, struct files *files,
                 struct store_reasons *reasons, struct finished *finished);

/* A worker's work, for context the writer: writes a batch and hands it back, each operation with
 * its `error`. Unless it is `inlined`, it may wait for the lock of another program and for the
 * checkpointer. WORK_OVER: the writer is lost, and nothing was handed back. */
enum work_result writer_work(void *writer, struct list *batch, size_t count, bool inlined);
/* Copy the rest of the WAL, between two batches. May take its time. */
void writer_between(void *writer);
/* Answer a batch of brief reads between two batches of writes: this connection has in memory what
 * it has written, which a reader would have to read from the file. False: nothing was run; a reader
 * has to do it. */
bool writer_read(struct writer *writer, struct list *batch);

/* Note the store's time, if it can, when nothing more will be written. False: it is lost. */
bool writer_stop_clock(struct writer *writer);
/* Close the connection, too. */
void writer_free(struct writer *writer);

#endif
