/* SPDX-License-Identifier: Apache-2.0 */
/* The watch does what a store needs beside its operations, on a thread and a connection of its own:
 *
 *   leases end here       ─▶ NOTIFY, after the commit: other daemons tell their waiters
 *   leases end elsewhere  ─▶ LISTEN ─▶ pg_watch_collect tells the owner
 *   rows are locked       ─▶ find the holder; end a daemon that stands still (blockers.h)
 *   every second          ─▶ look whether somebody has changed our tables, and what guards have
 *                            refused
 *   every three seconds   ─▶ look whether the guards are whole
 *   every ten seconds     ─▶ note the time, remove old marks, look for the oldest snapshot
 *   the database is away  ─▶ have the writer look, too: it says how the store is, though nobody may
 *                            have asked for a write
 *
 * No answer depends on it; where something gets lost, waiters wait longer. So a NOTIFY does not
 * wait for the standby. (In the transaction that ends the lease it would: that commit would hold a
 * lock on the whole database while it waits.) */
#ifndef STOCKADE_STORE_POSTGRESQL_WATCH_H
#define STOCKADE_STORE_POSTGRESQL_WATCH_H

#include <pthread.h>

#include "store/postgresql/blockers.h"
#include "store/postgresql/connection.h"
#include "store/postgresql/refused.h"
#include "store/worker.h"

struct pg_watch {
    /* Set once. */
    struct finished *finished; /* borrowed, as the next */
    const struct log *log;
    pthread_t thread;
    bool started;
    int wake_fd; /* readable: there is something to do */

    /* The thread's. */
    struct pg_connection connection;
    bool listening;
    bool blocked; /* operations wait for rows */
    /* When these are due again, by clock_monotonic. */
    int64_t look_ms, chores_ms, tables_ms, guards_ms;
    char guard[STORE_WHY_MAX]; /* the guard that was broken at the last look; empty: none */
    int64_t snapshot;          /* the transaction id of the oldest snapshot */
    int64_t snapshot_at_ms;    /* since when it is the oldest */

    struct blockers blockers; /* has a lock of its own, as the next */
    struct pg_refused refused;

    /* Under the lock: names, each with its length before. */
    pthread_mutex_t lock;
    bool stopping;
    struct worker *writes; /* borrowed; NULL once it ends */
    struct buf freed;      /* resources whose lease has ended here, for NOTIFY */
    struct buf heard;      /* those whose lease has ended elsewhere, for the owner */
};

/* The connection was set up by pg_connection_init. False: no thread could be had; pg_watch_stop
 * has to be called in any case, and frees the connection, too. */
bool pg_watch_start(struct pg_watch *watch);
void pg_watch_stop(struct pg_watch *watch);
/* Leave the writer alone from now on: it ends. */
void pg_watch_alone(struct pg_watch *watch);
/* Say that operations wait for the locked rows of this set. Any thread may call it. */
void pg_watch_locked(struct pg_watch *watch, const struct set *set);
/* Say that the transaction of this set is committed: other daemons are told of the leases that it
 * has ended. Any thread may call it. */
void pg_watch_notify(struct pg_watch *watch, const struct set *set);
/* Tell of leases that were ended at another daemon, and of what guards have refused. For the
 * owner's thread. */
void pg_watch_collect(struct pg_watch *watch, const struct store_news *news);

#endif
