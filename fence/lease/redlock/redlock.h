/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on N independent masters (Redlock): all are asked at the same time, and a
 * quorum of N/2+1 decides. A minority of them may be down, slow, or have come back empty.
 *
 * Everything around it comes in: the masters are lease providers themselves, and time and chance
 * are interfaces, so that tests and the simulator need no Redis and no loop. */
#ifndef STOCKADE_FENCE_LEASE_REDLOCK_REDLOCK_H
#define STOCKADE_FENCE_LEASE_REDLOCK_REDLOCK_H

#include "fence/lease/open.h"

/* Fires once, `delay_ms` after it was set last, by calling redlock_on_timer. */
struct redlock_timer {
    void (*set)(struct redlock_timer *timer, int64_t delay_ms);
    /* It does not fire any more; `closed` is called when nothing of it is left (maybe at once). */
    void (*close)(struct redlock_timer *timer, void (*closed)(void *context), void *context);
    struct lease_provider *redlock; /* set by redlock_new */
};

struct redlock_surroundings {
    const struct clock *clock; /* borrowed; both outlive it */
    const struct chance *chance;
    struct redlock_timer *timer; /* owned */
};

/* The `count` masters (1 to LEASE_URI_HOSTS_MAX) become its own. Ends with lease_provider_close,
 * which closes masters and timer. */
struct lease_provider *redlock_new(struct lease_provider *const *masters, int count,
                                   const struct redlock_surroundings *surroundings);
void redlock_on_timer(struct lease_provider *redlock);

#endif
