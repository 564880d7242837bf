/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of operations that is worked off in batches: by a thread of its own, or by the
 * owner who calls worker_step (a simulator). The writer and the reader are two of these. */
#ifndef STOCKADE_STORE_SQLITE_WORKER_H
#define STOCKADE_STORE_SQLITE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

struct worker {
    /* Set once. */
    const char *name; /* of the thread, at most 15 bytes */
    size_t queue_max, batch_max;
    bool threaded;
    pthread_t thread;
    /* Works off `batch`, `count` operations in order, and hands them on. False: the worker has to
     * stop for good. */
    bool (*work)(void *context, struct list *batch, size_t count);
    void *context;

    bool unflushed; /* the owner's: something was submitted since the last flush */

    /* Both sides', under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct list queue;
    size_t queued;
    bool asleep;   /* the thread waits for news */
    bool stopping; /* takes no more, works off what is there */
    bool dead;     /* `work` said so: takes no more, works off nothing */
};

/* The fields "set once" but `thread` are filled in. False: no thread could be had. */
bool worker_start(struct worker *worker);
/* STK_OK, or STK_BUSY: it is full, or has stopped. */
enum stk_error worker_submit(struct worker *worker, struct store_op *op);
/* What was submitted is to be worked off now. */
void worker_flush(struct worker *worker);
/* Without a thread: one batch. False: there was nothing to do. */
bool worker_step(struct worker *worker);
size_t worker_queued(struct worker *worker);
/* Works off what is queued, and ends. */
void worker_stop(struct worker *worker);

#endif
