/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine's own files share: its state, the clock and the timers. engine.c puts the parts
 * together.
 *
 * It belongs to the loop's thread. What runs on the store's threads (`run` of a store_op, `exec` of
 * a command) uses only `replies`, whose counts are atomic, and `cursors`, which have a lock. */
#ifndef STOCKADE_ENGINE_INTERNAL_H
#define STOCKADE_ENGINE_INTERNAL_H

#include "fence/base/heap.h"
#include "fence/base/list.h"
#include "fence/base/table.h"
#include "proxy/engine/command/command.h"
#include "proxy/engine/conditions.h"
#include "proxy/engine/engine.h"
#include "proxy/engine/lock_pattern.h"
#include "proxy/engine/metrics.h"
#include "proxy/engine/session/pubsub.h"
#include "proxy/engine/session/replies.h"
#include "proxy/engine/session/strangers.h"

/* A holder that may stand still. */
struct silence {
    const struct session *holder;
    int64_t since_ms;
};

/* Embed it. All zero but for `fire`: not set. */
struct timer {
    struct heap_node node;
    void (*fire)(struct timer *timer);
};

struct engine {
    struct engine_options options;
    struct engine_counters counters;
    struct engine_times times;
    struct alike { /* requests that are not in `times` yet: requests_count_times */
        const struct command *command;
        int64_t started_us, ended_us;
        uint64_t count;
    } alike;
    struct command_index index;
    struct lock_patterns lock_patterns;
    struct lock_keys *lock_keys;       /* lockkeys/lock_keys.h; NULL: there are no lock keys */
    struct lock_clients *lock_clients; /* lease/lock_clients.h; the same */
    /* Is the lease's time over, and its holder, which has not gone, silent since? */
    bool (*is_over_unheard)(const struct engine *engine, struct bytes resource,
                            struct silence *silence);
    /* A token was presented, and judged. NULL: nobody wants to know. */
    void (*on_presented)(struct engine *engine, struct bytes resource, int64_t token);
    /* A command was parsed that may be about lock keys: what is to be done for it instead. NULL:
     * there are none. */
    const struct command *(*on_parsed)(struct engine *engine, const struct command *command,
                                       const struct bytes *argv, size_t argc);
    /* Is the key a lock key, or one beside a lock key, and of which resource? NULL: none is. */
    bool (*on_lock_key)(const struct engine *engine, struct bytes key, struct bytes *resource);
    struct acl *acl;          /* the users in force */
    struct acl_log *acl_log;  /* what was denied lately */
    struct account *accounts; /* session/account.h: users who have something here now */
    struct account_use use;   /* what they have, all together */
    size_t logins;            /* passwords that are being checked */
    struct heap timers;
    int64_t started_ms, started_wall_us;
    int64_t now_us; /* the clock, when it was last read: see engine_read_clock */
    bool draining, shutdown_asked;

    struct list sessions;
    struct strangers strangers; /* those of them that have not logged in */
    struct list changed;      /* sessions of which the host is to be told at the end of this turn */
    struct list deferred;     /* the same, a turn later: their replies wait for reads under way */
    struct list unaudited;    /* audit.c: who waits for the audit, in the order of tickets */
    struct timer audit_limit; /* the first of them has waited too long */
    size_t sessions_count;
    uint64_t session_last; /* client ids handed out so far */
    /* What goes with a session that closes: set by engine_new. */
    void (*on_session_closed)(struct session *session);
    struct pubsub pubsub;

    struct request *spares; /* request.c: to be used again */
    size_t spares_count;
    size_t requests_open; /* started and not finished */
    struct replies replies;
    struct cursors *cursors;  /* command/cursors.h */
    size_t reads_weight;      /* what the replies of the reads under way may take unasked */
    size_t looked;            /* what rights_look() has done in this turn: names times patterns */
    unsigned savepoints_left; /* so many transactions go with a savepoint: one failed lately */

    struct line *lines;   /* lease/line.c: those who wait, a uthash by resource */
    struct list arrivals; /* the waiters of all lines, in order */
    /* What has changed about leases and is counted nowhere else: a waiter came or went, the
     * connection of a holder has closed. */
    uint64_t leases_changes;
    size_t waiters;          /* of these, have been denied once and wait for their turn */
    struct table places;     /* lease/queue.c: those of ACQUIRE ... QUEUE */
    struct table held;       /* lease/held.c: leases that were confirmed here and have not ended */
    struct table renewals;   /* lease/renew.c: told, and still to be confirmed */
    struct list confirming;  /* lease/renew.c: wait for the store */
    struct timer impatience; /* one of them waits for long */
    struct list owed;        /* lease/release.c: those that could not be released so far */
    struct earlier *earlier; /* lease/earlier.c: those from before the start; or NULL */
    uint64_t unknown_ended;  /* leases that ended here and were not known */
    int64_t behind_said_ms;
    struct lately_seen lately[LATELY_COUNT]; /* conditions.c */

    struct sweeper *sweeper; /* sweep.c */
    struct notes *notes;     /* session/notes.c */
    struct history *history; /* history/history.h */
};

static inline int64_t engine_now_ms(const struct engine *engine)
{
    return clock_now_ms(engine->options.clock);
}

/* What has just come to pass is timed by this. Return the clock in microseconds. */
static inline int64_t engine_read_clock_us(struct engine *engine)
{
    engine->now_us = clock_now_us(engine->options.clock);
    return engine->now_us;
}

/* Have a job done on another thread, where the host has one. */
static inline void run_aside(const struct engine *engine, struct engine_job *job)
{
    const struct engine_host *host = &engine->options.host;

    if (host->run_aside != NULL) {
        host->run_aside(host->context, job);
    } else {
        job->run(job);
        job->done(job);
    }
}

/* Call `fire` once, in the turn that finds `at_ms` past. Replace an earlier time. */
static inline void timer_set(struct engine *engine, struct timer *timer, int64_t at_ms)
{
    heap_set(&engine->timers, &timer->node, at_ms);
}

static inline void timer_stop(struct engine *engine, struct timer *timer)
{
    heap_remove(&engine->timers, &timer->node);
}

/* audit.c: wait until the ticket is on disk; the time of one that waits already begins anew. Ticket
 * 0: nothing to wait for. AUDIT_LOST: the wait ends at once, and badly. */
void audit_await(struct engine *engine, struct audit_wait *wait, uint64_t ticket);
/* The timer `audit_limit`. */
void audit_late(struct timer *timer);

#endif
