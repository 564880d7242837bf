/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that cannot be done in the working set (lists, clean-up, users' SQL, ...) run one at
 * a time, each in a transaction of its own, on a thread and a connection beside the writer's.
 * While one is under way the writer leaves its resources alone, so that operations on one resource
 * keep their order. */
#ifndef STOCKADE_STORE_POSTGRESQL_OWN_TXN_H
#define STOCKADE_STORE_POSTGRESQL_OWN_TXN_H

#include <pthread.h>

#include "store/postgresql/connection.h"
#include "store/postgresql/watch.h"
#include "store/worker.h"

struct own_txns {
    struct pg_connection connection;
    struct worker worker;
    struct finished *finished;
    struct pg_watch *watch;
    /* Under the lock: the operations that are under way or queued, as struct own_txn_op. */
    pthread_mutex_t lock;
    struct list under_way;
};

/* Note which rows of the set the operation has asked for that has just stopped with PG_NEEDS_OWN or
 * PG_FLOOR. own_txn_submit takes the note over; own_txn_op_free frees one that is not submitted. */
struct own_txn_op *own_txn_op_new(struct pg_txn *txn);
void own_txn_op_free(struct own_txn_op *own_op);
/* Hand the operation over, with its note. False: the queue is full. For the writer's thread. */
bool own_txn_submit(struct own_txns *own_txns, struct store_op *op, struct own_txn_op *own_op);
/* Mark the rows as busy that operations under way are about; those that are not in the set are
 * added to it. */
void own_txn_set_busy(struct own_txns *own_txns, struct set *set);

/* The worker's work; its context is the struct own_txns. */
enum work_result own_txn_work(void *context, struct list *batch, size_t count, bool inlined);

/* Find out what became of the transaction that left this mark, and log it. Where that takes longer
 * than a moment, `fail` is called again and again. It has to fail the operations that the worker
 * has and the database has nothing of, so that they need not wait for the end of an outage.
 * PG_UNKNOWN: the worker is stopping, so we gave up, or nobody will ever know (shared->lost). */
enum pg_ended pg_find_out(struct pg_connection *connection, struct worker *worker, int64_t mark,
                          void (*fail)(void *context, struct pg_connection *connection),
                          void *context);
/* Fail these operations for the connection's reason. */
void pg_fail_all(struct pg_connection *connection, struct list *ops);

#endif
