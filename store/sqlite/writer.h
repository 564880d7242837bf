/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: the one who changes the file. It takes a batch of operations through one transaction
 * (group commit) and says of each how it ended.
 *
 *   BEGIN IMMEDIATE ─▶ run, run, run ─▶ look ─▶ COMMIT ─▶ look ─▶ all done
 *        │                  │            │        │         └─ files gone: unknown, WRITER_LOST
 *        │                  │            │        ├─ failed cleanly: every operation STK_STORE
 *        │                  │            │        └─ anything else: unknown, WRITER_LOST
 *        │                  │            └─ files gone (files.h): every operation STK_STORE
 *        │                  └─ one fails, and has changed something: see below
 *        └─ failed (locked): every operation STK_STORE
 *
 * Where files are gone, what was acknowledged is saved before anybody is answered or the process
 * ends.
 *
 * An operation that fails and has changed something, or has lost the transaction (SQL can end it),
 * cannot be taken out of it: the transaction is rolled back; what ran before the operation runs
 * again in one of its own, what comes after it follows in another. Where it failed for reasons of
 * its own it is not run again; where the store failed it gets a transaction to itself, once.
 *
 * What is cached never outlives a transaction that did not commit. A failure is logged once, and
 * once more when commits succeed again. It is a step function: whoever calls it is its thread. */
#ifndef STOCKADE_STORE_SQLITE_WRITER_H
#define STOCKADE_STORE_SQLITE_WRITER_H

#include "fence/base/log.h"
#include "store/sqlite/checkpointer.h"
#include "store/sqlite/files.h"
#include "store/sqlite/transaction.h"
#include "store/sqlite/wal_join.h"

struct writer {
    struct transaction txn;
    struct wal_join *join;             /* NULL until writer_open */
    struct checkpointer *checkpointer; /* borrowed; NULL until writer_open */
    struct files *files;               /* the same */
    int64_t page_size;
    const struct log *log;
    const char *path;     /* borrowed, for the log */
    int64_t data_version; /* SQLite's: differs once another connection has committed */
    int outage;           /* SQLite's code of the failure that was logged; 0: all is well */
    int read_outage;
    bool latest;          /* no other one has committed, as far as was seen; if so, a write looks */
    int64_t caught_up_ms; /* when it last looked at what others have committed, without writing */
    bool waits;           /* for another program's lock, up to DB_BUSY_TIMEOUT_MS */
    uint64_t commits, failed_commits, foreign_commits;
};

enum writer_outcome {
    WRITER_DONE,
    WRITER_BUSY, /* it may not wait, and would have to; nothing was run */
    WRITER_LOST,
};

/* The pointers are borrowed. False: SQLite has no memory; free it all the same. */
bool writer_init(struct writer *writer, sqlite3 *db, int cache_mb, const char *path,
                 const struct log *log, struct store_clock *clock);
/* The file is made, and its WAL open. */
void writer_open(struct writer *writer, struct checkpointer *checkpointer, struct files *files,
                 struct store_reasons *reasons);
/* Goes on with the store's time. False: SQLite says why not. */
bool writer_start_clock(struct writer *writer);
/* Nothing more will be written: notes the store's time, if it can. False: as WRITER_LOST. */
bool writer_stop_clock(struct writer *writer);
/* Closes the connection, too. */
void writer_free(struct writer *writer);
/* Runs the batch, which stays as it is; `error` of each operation says how it ended. WRITER_LOST:
 * whether the last transaction, or what was copied out of the WAL, is on disk is unknown: answer
 * nothing, run nothing more. `may_wait`:
 * for the lock of another program, and for what writer_tidy has to do. */
enum writer_outcome writer_run(struct writer *writer, struct list *batch, bool may_wait);
/* Answers a batch of brief reads between two others: what its own connection has written is in its
 * memory, where a reader would fetch it from the file. False: nothing was run; ask a reader. */
bool writer_read(struct writer *writer, struct list *batch);
/* What is to be done between batches, and may take its time. */
void writer_tidy(struct writer *writer);

#endif
