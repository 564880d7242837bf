/* SPDX-License-Identifier: Apache-2.0 */
/* Submitting costs one uncontended lock. The thread is woken once for all that was submitted since
 * the last flush, and only where it sleeps; while a batch is under way the next one gathers. Both
 * make commits few under load. */
#include "store/worker.h"

#include <errno.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/thread.h"

/* Where the disk stalls, the thread waits for it, and the owner tries again once a second. */
enum { INLINE_SLOW_MS = 20, INLINE_AGAIN_MS = 1000 };

enum { PENDING_MS = 5 };

static bool is_long(const struct list *link)
{
    return !list_entry(link, const struct store_op, link)->brief;
}

/* Move up to `max` operations to `batch`. The lock is held. */
static size_t take(struct worker *worker, struct list *batch, size_t max)
{
    size_t count = 0;

    list_init(batch);
    if (worker->queued <= max) {
        count = worker->queued;
        list_splice(batch, &worker->queue);
        worker->queued_long = 0;
    } else {
        for (; count < max; count++) {
            struct list *link = list_pop(&worker->queue);
            worker->queued_long -= is_long(link);
            list_append(batch, link);
        }
    }
    worker->queued -= count;
    return count;
}

/* Sleep until there is news, or what the worker has kept wants another look. The lock is held. */
static void sleep_on(struct worker *worker)
{
    struct timespec until;

    if (!worker->pending) {
        worker->asleep = true;
        pthread_cond_wait(&worker->news, &worker->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PENDING_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    worker->asleep = true;
    if (pthread_cond_timedwait(&worker->news, &worker->lock, &until) == ETIMEDOUT)
        worker->ripe = true;
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    struct list batch;

    pthread_mutex_lock(&worker->lock);
    for (;;) {
        while (worker->queued == 0 && !worker->stopping && !worker->ripe)
            sleep_on(worker);
        worker->asleep = worker->ripe = false;
        size_t count = take(worker, &batch, worker->batch_max);
        if (count == 0 && !worker->pending)
            break;
        pthread_mutex_unlock(&worker->lock);
        enum work_result result = worker->work(worker->context, &batch, count, false);
        if (result == WORK_DONE && worker->between != NULL)
            worker->between(worker->context);
        pthread_mutex_lock(&worker->lock);
        worker->pending = result == WORK_PENDING || result == WORK_AGAIN;
        worker->ripe = result == WORK_AGAIN;
        if (result == WORK_OVER) {
            worker->dead = true;
            break;
        }
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

bool worker_start(struct worker *worker)
{
    pthread_condattr_t monotonic;

    check(worker->queue_max > 0 && worker->batch_max > 0);
    list_init(&worker->queue);
    pthread_mutex_init(&worker->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!worker->threaded)
        return true;
    worker->threaded = thread_start(&worker->thread, worker->name, worker_main, worker);
    return worker->threaded;
}

enum stk_error worker_submit(struct worker *worker, struct store_op *op)
{
    pthread_mutex_lock(&worker->lock);
    bool taken = worker->queued < worker->queue_max && !worker->stopping && !worker->dead;
    if (taken) {
        list_append(&worker->queue, &op->link);
        worker->queued++;
        worker->queued_long += is_long(&op->link);
        worker->unflushed = true;
    }
    pthread_mutex_unlock(&worker->lock);
    return taken ? STK_OK : STK_BUSY;
}

/* Run what is queued on this thread, if it is little. The lock is held. */
static bool work_inline(struct worker *worker)
{
    struct list batch;
    int64_t start_ms = clock_now_ms(&clock_monotonic);

    if (worker->queued > worker->inline_max || worker->queued_long > 0 || worker->dead ||
        start_ms < worker->inline_after_ms)
        return false;
    size_t count = take(worker, &batch, worker->inline_max);
    pthread_mutex_unlock(&worker->lock);
    enum work_result result = worker->work(worker->context, &batch, count, true);
    int64_t end_ms = clock_now_ms(&clock_monotonic);
    if (end_ms - start_ms >= INLINE_SLOW_MS)
        worker->inline_after_ms = end_ms + INLINE_AGAIN_MS;
    pthread_mutex_lock(&worker->lock);
    worker->dead = result == WORK_OVER;
    if (result == WORK_LATER) { /* nothing was submitted meanwhile */
        list_splice(&worker->queue, &batch);
        worker->queued = count;
    }
    return result != WORK_LATER;
}

bool worker_flush(struct worker *worker)
{
    bool done = false, wake = false;

    if (!worker->unflushed)
        return false;
    worker->unflushed = false;
    pthread_mutex_lock(&worker->lock);
    if (worker->asleep && worker->queued > 0) {
        done = work_inline(worker);
        wake = !done;
        worker->asleep = done;
    }
    pthread_mutex_unlock(&worker->lock);
    if (wake)
        pthread_cond_signal(&worker->news);
    return done;
}

bool worker_rests(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    bool rests = worker->asleep && worker->queued == 0 && !worker->dead;
    pthread_mutex_unlock(&worker->lock);
    return rests;
}

bool worker_step(struct worker *worker)
{
    struct list batch;

    check(!worker->threaded);
    if (worker->dead)
        return false;
    size_t count = take(worker, &batch, worker->batch_max);
    if (count == 0)
        return false;
    enum work_result result = worker->work(worker->context, &batch, count, false);
    worker->dead = result == WORK_OVER;
    if (result == WORK_DONE && worker->between != NULL)
        worker->between(worker->context);
    return true;
}

size_t worker_take(struct worker *worker, struct list *batch)
{
    pthread_mutex_lock(&worker->lock);
    size_t count = take(worker, batch, SIZE_MAX);
    pthread_mutex_unlock(&worker->lock);
    return count;
}

void worker_nudge(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->pending = worker->ripe = true;
    pthread_mutex_unlock(&worker->lock);
    pthread_cond_signal(&worker->news);
}

bool worker_stopping(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    bool stopping = worker->stopping;
    pthread_mutex_unlock(&worker->lock);
    return stopping;
}

size_t worker_queued(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    size_t queued = worker->queued;
    pthread_mutex_unlock(&worker->lock);
    return queued;
}

void worker_stop(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    pthread_mutex_unlock(&worker->lock);
    pthread_cond_signal(&worker->news);
    if (worker->threaded)
        pthread_join(worker->thread, NULL);
    else
        while (worker_step(worker))
            ;
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->news);
}

void finished_init(struct finished *finished, void (*wake)(void *context), void *context)
{
    finished->wake = wake;
    finished->context = context;
    pthread_mutex_init(&finished->lock, NULL);
    list_init(&finished->ops);
}

void finished_destroy(struct finished *finished)
{
    pthread_mutex_destroy(&finished->lock);
}

struct store_stats *finished_add(struct finished *finished, struct list *batch)
{
    pthread_mutex_lock(&finished->lock);
    list_splice(&finished->ops, batch);
    return &finished->stats;
}

void finished_close(struct finished *finished, bool inlined)
{
    pthread_mutex_unlock(&finished->lock);
    if (!inlined && finished->wake != NULL)
        finished->wake(finished->context);
}

void finished_collect(struct finished *finished)
{
    struct list done, *link;

    list_init(&done);
    pthread_mutex_lock(&finished->lock);
    list_splice(&done, &finished->ops);
    pthread_mutex_unlock(&finished->lock);
    while ((link = list_pop(&done)) != NULL) {
        struct store_op *op = list_entry(link, struct store_op, link);
        op->done(op);
    }
}
