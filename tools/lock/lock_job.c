/* SPDX-License-Identifier: Apache-2.0 */
/* The job's life under the lease.
 *
 *   running ──leader ended, others left──▶ TERM ──grace──▶ KILL
 *      ├──── lease lost ─────────────────▶ TERM ──grace──▶ KILL
 *      ├──── no renewal ─────────────────▶ TERM ──────────▶ KILL   before the TTL is over
 *      └──── stopped at the terminal ──▶ we stop too ──▶ renew first, then go on */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/lock/lock.h"

enum { THAW_LIMIT_MS = 3000, LOOK_EVERY_MS = 50, BURY_LIMIT_MS = 5000 };

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* When nothing of the job may be left, unless a renewal comes. */
static int64_t last_ms(const struct lock *lock)
{
    return lock->keeper.sure_until_ms - lock->settings.ttl_ms / 50;
}

/* When its end has to begin for that. */
static int64_t end_at_ms(const struct lock *lock)
{
    return last_ms(lock) - earlier(lock->settings.grace_ms, lock->settings.ttl_ms / 3);
}

static void begin_end(struct lock *lock, enum lock_ending ending, int64_t kill_at_ms)
{
    lock->ending = ending;
    lock->kill_at_ms = kill_at_ms;
    lock->frozen_until_ms = 0;
    job_signal(&lock->job, SIGTERM);
    if (kill_at_ms > keeper_now_ms()) {
        job_signal(&lock->job, SIGCONT); /* a stopped one gets its TERM only then */
    }
}

static void lose(struct lock *lock, int64_t kill_at_ms)
{
    const struct keeper *keeper = &lock->keeper;

    fprintf(stderr, "stockade lock: the lease on %s %s: %s; ending the program\n", keeper->resource,
            keeper->lost ? "is lost" : "could not be renewed",
            keeper->failure.text[0] != '\0' ? keeper->failure.text : "no answer");
    begin_end(lock, LOCK_LOSING, kill_at_ms);
}

/* The job is stopped, and we were: the lease may have passed on meanwhile. */
static void thaw(struct lock *lock, int64_t now_ms)
{
    if (lock->keeper.lost || now_ms >= lock->frozen_until_ms) {
        lose(lock, now_ms); /* at once: continued, it would write */
    } else if (now_ms < end_at_ms(lock)) {
        lock->frozen_until_ms = 0;
        job_give_terminal(&lock->job);
        job_signal(&lock->job, SIGCONT);
    }
}

static void decide(struct lock *lock, int64_t now_ms)
{
    if (lock->frozen_until_ms != 0) {
        thaw(lock, now_ms);
    } else if (lock->ending != LOCK_LOSING && lock->keeper.lost) {
        lose(lock, now_ms + lock->settings.grace_ms);
    } else if (lock->ending != LOCK_LOSING && now_ms >= end_at_ms(lock)) {
        lose(lock, earlier(last_ms(lock), now_ms + lock->settings.grace_ms));
    } else if (lock->ending == LOCK_NOT_ENDING && !lock->job.leader_runs) {
        begin_end(lock, LOCK_TIDYING, now_ms + lock->settings.grace_ms);
    }
    if (lock->ending != LOCK_NOT_ENDING && !lock->killed && now_ms >= lock->kill_at_ms) {
        lock->killed = true;
        job_signal(&lock->job, SIGKILL);
    }
}

static void stop_with_job(struct lock *lock)
{
    job_take_terminal(&lock->job);
    (void)raise(SIGSTOP); /* until the shell continues us */
    lock->job.stopped = false;
    lock->frozen_until_ms = keeper_now_ms() + THAW_LIMIT_MS;
    keeper_look(&lock->keeper);
}

static void pass_signals_on(struct lock *lock)
{
    int number;

    while ((number = lock_signal(lock)) != 0) {
        if (number == SIGCHLD || (number == SIGCONT && lock->frozen_until_ms != 0)) {
            continue;
        }
        if (number == SIGCONT) {
            job_give_terminal(&lock->job);
        }
        job_signal(&lock->job, number);
    }
}

static int64_t next_ms(const struct lock *lock)
{
    int64_t next = keeper_next_ms(&lock->keeper);

    if (lock->ending != LOCK_LOSING && lock->frozen_until_ms == 0) {
        next = earlier(next, end_at_ms(lock));
    }
    if (lock->ending != LOCK_NOT_ENDING && !lock->killed) {
        next = earlier(next, lock->kill_at_ms);
    }
    if (lock->frozen_until_ms != 0) {
        next = earlier(next, lock->frozen_until_ms);
    }
    if (!lock->job.leader_runs) { /* not all that are left need be our children */
        next = earlier(next, keeper_now_ms() + LOOK_EVERY_MS);
    }
    return next;
}

void lock_run_job(struct lock *lock)
{
    struct job *job = &lock->job;

    for (;;) {
        job_look(job);
        if (!job->leader_runs) {
            job_take_terminal(job);
        }
        if (!job_is_alive(job)) {
            return;
        }
        if (job->stopped && job->terminal && lock->ending == LOCK_NOT_ENDING) {
            stop_with_job(lock);
        }
        keeper_turn(&lock->keeper);
        decide(lock, keeper_now_ms());
        if (lock->killed && keeper_now_ms() > lock->kill_at_ms + BURY_LIMIT_MS) {
            fprintf(stderr, "stockade lock: processes of group %d do not end\n", job->group);
            return;
        }
        lock_wait(lock, next_ms(lock));
        pass_signals_on(lock);
    }
}
