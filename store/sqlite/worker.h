/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of operations that is worked off in batches: by a thread of its own; by the owner
 * who calls worker_step (a simulator); or, where the thread sleeps and there is little to do, by
 * the owner who calls worker_flush. The writer and the readers are such. */
#ifndef STOCKADE_STORE_SQLITE_WORKER_H
#define STOCKADE_STORE_SQLITE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

enum work_result {
    WORK_DONE,
    WORK_LATER, /* on the owner's thread only: it would have to wait; nothing was run */
    WORK_OVER,  /* the worker has to stop for good */
};

struct worker {
    /* Set once. */
    const char *name; /* of the thread, at most 15 bytes */
    size_t queue_max, batch_max;
    bool threaded;
    pthread_t thread;
    /* Works off `batch`, `count` operations in order, and hands them on. `here`: on the owner's
     * thread, who collects them himself. */
    enum work_result (*work)(void *context, struct list *batch, size_t count, bool here);
    /* After each batch that was not worked off here, and has been handed on. May be NULL. */
    void (*tidy)(void *context);
    void *context;

    /* The owner's. */
    size_t here_max;       /* so many, all of them brief, are worked off in worker_flush */
    bool unflushed;        /* something was submitted since the last flush */
    int64_t here_again_ms; /* nothing is worked off here before: it took too long */

    /* Both sides', under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct list queue;
    size_t queued, queued_long; /* long: not brief */
    bool asleep;                /* the thread waits for news */
    bool stopping;              /* takes no more, works off what is there */
    bool dead;                  /* `work` said so: takes no more, works off nothing */
};

/* The fields "set once" but `thread` are filled in. False: no thread could be had. */
bool worker_start(struct worker *worker);
/* STK_OK, or STK_BUSY: it is full, or has stopped. */
enum stk_error worker_submit(struct worker *worker, struct store_op *op);
/* What was submitted is to be worked off now. True: some of it was, here. */
bool worker_flush(struct worker *worker);
/* The thread sleeps and has nothing to do: until the next flush, what is its own is the owner's. */
bool worker_rests(struct worker *worker);
/* Without a thread: one batch. False: there was nothing to do. */
bool worker_step(struct worker *worker);
size_t worker_queued(struct worker *worker);
/* Works off what is queued, and ends. */
void worker_stop(struct worker *worker);

#endif
