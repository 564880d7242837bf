/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that need a transaction of their own: what goes past the working set, one at a time,
 * on a connection and a thread of their own. While one is under way the writer leaves its resources
 * alone, so that operations on one resource keep their order. */
#ifndef STOCKADE_STORE_POSTGRESQL_APART_H
#define STOCKADE_STORE_POSTGRESQL_APART_H

#include <pthread.h>

#include "store/postgresql/connection.h"
#include "store/postgresql/watch.h"
#include "store/worker.h"

struct apart {
    struct pg_connection connection;
    struct worker worker;
    struct finished *finished;
    struct pg_watch *watch;
    /* Under the lock: what is under way, or queued. */
    pthread_mutex_t lock;
    struct list under_way;
};

/* Note what the transaction's operation, which has stopped with PG_APART, is about: the rows of the
 * set that it has asked for. apart_submit or apart_op_free ends the note. */
struct apart_op *apart_op_new(struct pg_txn *txn);
void apart_op_free(struct apart_op *apart_op);
/* Hand the operation over. False: the queue is full. The writer's. */
bool apart_submit(struct apart *apart, struct store_op *op, struct apart_op *apart_op);
/* Set busy those rows of the set that operations under way are about; add them where need be. */
void apart_set_busy(struct apart *apart, struct set *set);

/* A worker's work: context is the struct apart. */
enum work_result apart_work(void *context, struct list *batch, size_t count, bool inlined);

/* Find out what became of a transaction, and say so in the log. Give up when the worker is to
 * end: PG_UNKNOWN. What is queued meanwhile is failed. */
enum pg_ended pg_find_out(struct pg_connection *connection, struct worker *worker,
                          struct finished *finished, int64_t mark);

#endif
