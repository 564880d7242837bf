/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `stockade lock` share: one loop, in which signals, the two connections and the
 * clock are all descriptors to poll. */
#ifndef STOCKADE_TOOLS_LOCK_LOCK_H
#define STOCKADE_TOOLS_LOCK_LOCK_H

#include "tools/cli.h"
#include "tools/lock/job.h"
#include "tools/lock/keeper.h"

enum {
    LOCK_UNREACHABLE = 69, /* EX_UNAVAILABLE of sysexits.h */
    LOCK_HELD = 75,        /* EX_TEMPFAIL */
    LOCK_LOST = 76,
};

enum lock_ending {
    LOCK_NOT_ENDING,
    LOCK_TIDYING, /* the leader has ended by itself, others of its group have not */
    LOCK_LOSING,  /* the lease is lost, or may be soon */
};

struct lock_settings {
    const char *resource;
    int64_t ttl_ms, wait_ms, grace_ms;
};

struct lock {
    struct lock_settings settings;
    char owner[160]; /* ours alone; the IDs begin with it */
    int signal_fd, timer_fd;
    sigset_t before; /* the signal mask that the job gets */
    struct keeper keeper;
    struct job job;
    enum lock_ending ending;
    bool killed;
    int64_t kill_at_ms;
    int64_t frozen_until_ms; /* the job stays stopped until the lease is sure again; 0: it runs */
};

/* Waits until a signal came, a connection is ready or `until_ms` is there. */
void lock_wait(struct lock *lock, int64_t until_ms);
/* The next signal that came, or 0. */
int lock_signal(struct lock *lock);

/* Takes the lease: 0, or the exit code, with the reason in keeper.failure (none: a signal). */
int lock_acquire(struct lock *lock, const struct client_uri *uri);
/* Gives it back, as often as it takes but not for long. False: the server says that it was not
 * ours any more. */
bool lock_release(struct lock *lock);

/* Runs the started job to its end, or ends it. */
void lock_run_job(struct lock *lock);

#endif
