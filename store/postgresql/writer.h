/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: takes batches of operations through one transaction each.
 *
 *   batch ─▶ lock and load ─▶ run, run, run ─▶ write, commit ─▶ hand back
 *              ▲                 │   │   └─ needs a transaction of its own: own_txn.h
 *              │                 │   └─ a row is locked: the operation waits, with all that come
 *              └─ run again ◀────┘      behind it on the same resources; the others go on
 *                 something is missing
 *
 * - There are two lanes, each with its connection: while one commits, the other one locks and runs
 *   the next batch. Commits are sent one after the other, in order.
 * - It never waits for a row: what is locked is left out, and tried again with the next batch.
 * - Operations on one resource keep their order; one that waits does not hold up other resources.
 *   (So `done` of writes that wait comes after that of later ones.)
 * - Where the outcome of a commit is unknown nobody is answered until it is found out; what is
 *   submitted meanwhile is refused.
 *
 * All of it is the writer thread's. */
#ifndef STOCKADE_STORE_POSTGRESQL_WRITER_H
#define STOCKADE_STORE_POSTGRESQL_WRITER_H

#include "store/postgresql/connection.h"
#include "store/postgresql/own_txn.h"
#include "store/postgresql/watch.h"
#include "store/worker.h"

/* Operations that are run and committed together. */
struct pg_batch {
    struct pg_entry *entries;
    size_t count;
};

struct pg_lane {
    struct pg_connection connection;
    struct pg_batch batch;
    bool commits; /* sent, and not known yet; since: */
    int64_t commit_us;
};

enum { PG_WRITER_LANES = 2 };

struct pg_writer {
    struct pg_lane lanes[PG_WRITER_LANES];
    struct worker *worker; /* its own; borrowed, as the next */
    struct finished *finished;
    struct store_reasons *reasons;
    struct own_txns *own_txns;
    struct pg_watch *watch;
    struct list waiting; /* operations that wait for a lock, in the order in which they came */
    size_t waiting_count;
    uint64_t taken; /* operations so far; their numbers */
    struct durations queued, commits_took;
    uint64_t commits, failed_commits, lock_waits, reruns;
};

/* A worker's work: context is the struct pg_writer. */
enum work_result pg_writer_work(void *context, struct list *batch, size_t count, bool inlined);

#endif
