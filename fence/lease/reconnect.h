/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a standing connection to a lease service, whichever protocol it speaks: it is tried
 * until it is up, tried again when it is lost, and people are told each change once.
 *
 *   attempt ──▶ reconnect_up() ──▶ in use ──▶ lost
 *      ▲  │                                     │
 *      │  └─ failed ─▶ reconnect_down() ◀───────┘
 *      │                    │
 *      └──── its pause ◀────┘
 *
 * This module owns neither a socket nor a timer. Its owner connects, reports here how that went,
 * and asks here how long to wait: before the next attempt, and for an answer. All times are
 * milliseconds of the surroundings' clock. */
#ifndef STOCKADE_FENCE_LEASE_RECONNECT_H
#define STOCKADE_FENCE_LEASE_RECONNECT_H

#include <uv.h>

#include "fence/lease/open.h"

struct reconnect {
    struct lease_surroundings env;
    char name[160]; /* "redis 127.0.0.1:6379": begins each message about it */
    int timeout_ms; /* for each step of an attempt, and for each answer */

    unsigned failures;    /* in a row */
    uint64_t connections; /* that were up */
    char reason[128];     /* why the last attempt or connection failed; "" */
    char refusal[128];    /* the error that the service answers with; "" */
    enum { LOGGED_NOTHING, LOGGED_UP, LOGGED_DOWN } logged;

    int64_t heard_ms;       /* when the service answered last */
    int64_t grace_until_ms; /* an answer is overdue, but is waited for until then; 0 */

    void (*on_first_attempt)(void *context); /* NULL: nobody waits for it */
    void *context;
    int64_t first_due_ms;
    bool first_attempt_ended;
};

/* `name` may be changed later. `surroundings` are copied. */
void reconnect_init(struct reconnect *reconnect, const char *name, int timeout_ms,
                    const struct lease_surroundings *surroundings);

static inline int64_t reconnect_now_ms(const struct reconnect *reconnect)
{
    return clock_now_ms(reconnect->env.clock);
}

/* Start the timer for `due_ms`, for at once where that is past; INT64_MAX: stop it. */
void reconnect_set_timer(const struct reconnect *reconnect, uv_timer_t *timer, uv_timer_cb on_timer,
                         int64_t due_ms);

/* The service can be used (again). Forgets why it could not. */
void reconnect_up(struct reconnect *reconnect);
/* An attempt or a connection has failed. Returns the pause before the next attempt: it doubles with
 * each failure in a row, from 50 ms to 2 s, and takes between half and all of that, so that daemons
 * which lost the same service spread out. */
int64_t reconnect_down(struct reconnect *reconnect, const char *reason);
/* Note why there is no connection, where no pause follows: the next address is tried at once. */
void reconnect_set_reason(struct reconnect *reconnect, const char *reason);
/* The service answers with an error. True: it did not before. */
bool reconnect_refused(struct reconnect *reconnect, const char *why);
/* The service does as asked. True: it answered with an error before. */
bool reconnect_accepted(struct reconnect *reconnect);

/* Log that the service is ready, or down, unless the last line has said so already. */
void reconnect_log_up(struct reconnect *reconnect);
void reconnect_log_down(struct reconnect *reconnect, const char *why);

/* Why it is down, for people, without a password. */
const char *reconnect_reason(const struct reconnect *reconnect);
/* Fill in `up`, `reconnects` and `detail`. `answers`: it is connected. `retry_at_ms`: when the next
 * attempt begins; 0 where that is not known. */
void reconnect_health(const struct reconnect *reconnect, bool answers, int64_t retry_at_ms,
                      struct lease_health *health);

/* Return until when to wait for an answer that is due at `deadline_ms`. While the service answers
 * other requests this is later than that, by up to four times the timeout. */
int64_t reconnect_due_ms(const struct reconnect *reconnect, int64_t deadline_ms);
/* Return whether an answer that was due at `due_ms` is overdue. If this process itself is late, the
 * answer may already be in the socket: the first call then returns false and sets `grace_until_ms`,
 * when to ask again, so that the socket is read before. */
bool reconnect_is_overdue(struct reconnect *reconnect, int64_t due_ms);

/* See lease_on_first_attempt. An attempt counts as failed after a second. */
void reconnect_on_first_attempt(struct reconnect *reconnect, void (*ended)(void *context),
                                void *context);
/* The first attempt has ended, well or not. Harmless for each later one. */
void reconnect_end_first_attempt(struct reconnect *reconnect);
/* When to call reconnect_end_first_attempt at the latest; INT64_MAX: nobody waits for it. */
int64_t reconnect_first_due_ms(const struct reconnect *reconnect);

#endif
