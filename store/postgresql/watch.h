/* SPDX-License-Identifier: Apache-2.0 */
/* What a store does beside its operations, on a thread and a connection of its own:
 *
 *   leases end here       ─▶ NOTIFY, behind the commit: daemons where somebody waits hear of it
 *   leases end elsewhere  ─▶ LISTEN ─▶ the owner is told, in pg_watch_collect
 *   rows are locked       ─▶ by whom? a daemon that stands still is ended (blockers.h)
 *   every ten seconds     ─▶ the time is noted, old marks go, the oldest snapshot is looked for
 *
 * Nothing of it decides anything: what is lost costs time. So a NOTIFY waits for no standby. In the
 * transaction that ends a lease it would hold a lock of the whole database through that wait. */
#ifndef STOCKADE_STORE_POSTGRESQL_WATCH_H
#define STOCKADE_STORE_POSTGRESQL_WATCH_H

#include <pthread.h>

#include "store/postgresql/blockers.h"
#include "store/postgresql/connection.h"
#include "store/worker.h"

struct pg_watch {
    /* Set once. */
    struct finished *finished; /* borrowed, as the next */
    const struct log *log;
    pthread_t thread;
    bool started;
    int wake_fd; /* there is something to do */

    /* The thread's. */
    struct pg_connection connection;
    bool listening;
    bool blocked;              /* operations wait for rows */
    int64_t look_ms;           /* when they are looked at next, */
    int64_t chores_ms;         /* and the chores done */
    int64_t tables_ms;         /* when they are looked at again, */
    int64_t guards_ms;         /* and the guards */
    char guard[STORE_WHY_MAX]; /* which of them was broken, in words; empty: none */
    int64_t snapshot;          /* the oldest one's transaction id, */
    int64_t snapshot_at_ms;    /* since when it is the oldest */

    struct blockers blockers; /* has a lock of its own */

    /* Under the lock: names, each with its length before. */
    pthread_mutex_t lock;
    bool stopping;
    struct buf freed; /* here, for NOTIFY */
    struct buf heard; /* of others, for the owner */
};

/* The connection was set up by pg_connection_init. False: no thread could be had; pg_watch_stop
 * has to be called in any case, and frees the connection, too. */
bool pg_watch_start(struct pg_watch *watch);
void pg_watch_stop(struct pg_watch *watch);
/* Operations wait for the locked rows of this set. For any thread. */
void pg_watch_locked(struct pg_watch *watch, const struct set *set);
/* The transaction of this set is committed: others hear of the leases that ended by it. For any
 * thread. */
void pg_watch_notify(struct pg_watch *watch, const struct set *set);
/* Call `on_freed` for resources whose lease was ended at another daemon. The owner's. */
void pg_watch_collect(struct pg_watch *watch,
                      void (*on_freed)(void *context, struct bytes resource), void *context);

#endif
