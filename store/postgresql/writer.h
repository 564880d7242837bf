/* SPDX-License-Identifier: Apache-2.0 */
/* The writer takes batches of operations, each through one transaction.
 *
 *   batch ─▶ lock and load ─▶ run, run, run ─▶ write, commit ─▶ hand back
 *              ▲                 │   │   └─ needs a transaction of its own: own_txn.h
 *              │                 │   └─ a row is locked: the operation waits, and so do later ones
 *              └─ run again ◀────┘      on the same resources; the others go on
 *                 something is missing
 *
 * - There are two lanes, each with a connection: while one of them commits, the other one locks and
 *   runs the next batch. Commits are sent one after the other, in order.
 * - The writer never waits for a row: an operation whose row is locked leaves the batch, and is
 *   tried again in the next one.
 * - Operations on one resource keep their order; one that waits holds up no other resource. (So
 *   `done` of a write that had to wait is called after that of later writes.)
 * - While the outcome of a commit is unknown, nobody is answered, and new operations fail.
 *
 * All of this belongs to the writer's thread. */
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
    bool commits;      /* its commit was sent, and its outcome is not known yet */
    int64_t commit_us; /* when it was sent */
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
    uint64_t taken; /* operations so far, which number them */
    struct durations queued, commits_took;
    uint64_t commits, failed_commits, lock_waits, reruns;
};

/* The worker's work; its context is the struct pg_writer. */
enum work_result pg_writer_work(void *context, struct list *batch, size_t count, bool inlined);

#endif
