/* SPDX-License-Identifier: Apache-2.0 */
/* A reader: answers a batch of operations from one snapshot. The batch is taken before the snapshot
 * begins, so each operation sees all that was committed before it was submitted. Where SQLite gives
 * the snapshot up for one of them, the rest gets a new one. Reads never wait for the writer, nor it
 * for them (WAL); a read that fails fails alone.
 *
 * All of it is its reader thread's, but while that thread rests it is the loop's (worker_rests). */
#ifndef STOCKADE_STORE_SQLITE_READER_H
#define STOCKADE_STORE_SQLITE_READER_H

#include "fence/base/log.h"
#include "store/sqlite/files.h"
#include "store/sqlite/transaction.h"

struct reader {
    struct transaction txn;
    struct files *files; /* borrowed */
    const struct log *log;
    const char *path; /* borrowed, for the log */
    int outage;       /* as the writer's */
};

/* As writer_init; `db` stays the caller's. `remembers`: the ids of names, for quick reads of
 * strings. */
bool reader_init(struct reader *reader, sqlite3 *db, bool remembers, struct files *files,
                 struct store_reasons *reasons, const char *path, const struct log *log,
                 struct store_clock *clock);
void reader_free(struct reader *reader);
/* Run one operation in the transaction, which has begun or has failed to. A failure is logged
 * unless it is the `outage` that was logged before. */
void reader_answer(struct transaction *txn, struct store_op *op, int *outage, const char *path,
                   const struct log *log);
/* Run the batch, which stays as it is; `error` of each operation says how it ended. */
void reader_run(struct reader *reader, struct list *batch);

#endif
