/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of operations that are run in batches: by a thread of its own; by the owner who
 * calls worker_step (a simulator); or inline, by the owner who calls worker_flush, where the thread
 * sleeps and there is little to do. The writer and the readers are such workers.
 *
 *   worker_submit ─▶ queue ─▶ worker_flush wakes the thread ─▶ work() on a batch ─▶ struct finished
 *                                └─ or calls work() inline
 *
 * The owner is the thread that submits: the loop's. While it runs a batch inline the thread sleeps,
 * for only the owner could wake it. So there is never more than one batch under way. */
#ifndef STOCKADE_STORE_WORKER_H
#define STOCKADE_STORE_WORKER_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "store/store.h"

enum work_result {
    WORK_DONE,
    WORK_LATER,   /* inline only: it would have to wait; nothing was run */
    WORK_AGAIN,   /* call it again at once, also for an empty batch */
    WORK_PENDING, /* done, but for operations that it has kept: call it again in a moment, also for
                     an empty batch */
    WORK_OVER,    /* the worker has to stop for good */
};

struct worker {
    /* Set once. */
    const char *name; /* of the thread, at most 15 bytes */
    size_t queue_max, batch_max;
    bool threaded;
    pthread_t thread;
    /* Run `batch`, `count` operations in order, and hand them back (struct finished). `inlined`:
     * on the owner's thread, which collects them without being woken. */
    enum work_result (*work)(void *context, struct list *batch, size_t count, bool inlined);
    /* Called when a batch that did not run inline has been handed back. May be NULL, may take its
     * time. */
    void (*between)(void *context);
    void *context;

    /* The owner's. */
    size_t inline_max;       /* so many, all of them brief, run inline */
    bool unflushed;          /* something was submitted since the last flush */
    int64_t inline_after_ms; /* nothing runs inline before: it took too long */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct list queue;
    size_t queued, queued_long; /* long: not brief */
    bool asleep;                /* the thread waits for news */
    bool stopping;              /* takes no more, runs what is there */
    bool pending;               /* `work` is to be called again, also for an empty batch: */
    bool ripe;                  /* now, for it said WORK_AGAIN, or the moment is over */
    bool dead;                  /* it said WORK_OVER: takes no more, runs nothing */
};

/* Start it. The caller has set the fields "set once", but for `thread`. False: no thread could be
 * had. */
bool worker_start(struct worker *worker);
/* STK_OK, or STK_BUSY: it is full, or has stopped. */
enum stk_error worker_submit(struct worker *worker, struct store_op *op);
/* Run now what was submitted, or wake the thread for it. True: some of it has run, inline. */
bool worker_flush(struct worker *worker);
/* Have `work` called soon, also for an empty batch. For any thread, while the worker is there. */
void worker_nudge(struct worker *worker);
/* Does the thread sleep, with nothing to do? Then, until the next flush, what is its own is the
 * owner's. */
bool worker_rests(struct worker *worker);
/* Run one batch, without a thread. False: there was nothing to do. */
bool worker_step(struct worker *worker);
size_t worker_queued(struct worker *worker);
/* Run what is queued, and end. */
void worker_stop(struct worker *worker);
/* Move all that is queued to `batch`. Return how many. For `work`, where it cannot go on. */
size_t worker_take(struct worker *worker, struct list *batch);
/* Has worker_stop been called? For `work`, which then waits for nothing any more. */
bool worker_stopping(struct worker *worker);

/* Operations that are done, of all workers of a store, until the owner collects them. */
struct finished {
    /* Set once. */
    void (*wake)(void *context); /* tells the owner; NULL: it need not be told */
    void *context;

    /* Under the lock. */
    pthread_mutex_t lock;
    struct list ops;
    struct store_stats stats; /* of what the workers do; not of their queues */
};

void finished_init(struct finished *finished, void (*wake)(void *context), void *context);
void finished_destroy(struct finished *finished);
/* Take the batch over, and return the stats to be brought up to date. Until finished_close the
 * lock is held. */
struct store_stats *finished_add(struct finished *finished, struct list *batch);
/* `inlined`: on the owner's thread, which need not be woken. */
void finished_close(struct finished *finished, bool inlined);
/* Call `done` of all that is finished. The owner's. */
void finished_collect(struct finished *finished);

#endif
