/* SPDX-License-Identifier: Apache-2.0 */
/* Waits until enough replicas have what a master granted (WAIT), for at most a quarter of the time
 * that a request has: Redis answers nothing else on the connection meanwhile. (It looks at the time
 * of those who wait only ten times a second.) One WAIT is under way at a time and stands for all
 * grants that were answered before it was sent; those that come meanwhile share the next. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_REPLICAS_H
#define STOCKADE_FENCE_LEASE_REDIS_REPLICAS_H

#include "fence/lease/redis/link.h"

struct replicas_wait {
    /* `why`: they are too few, or nobody knows; NULL: enough. Once, on the loop's thread. */
    void (*done)(struct replicas_wait *wait, const char *why);
    struct list link; /* replicas.c's own */
};

struct replicas {
    struct redis_request request;
    struct redis_link *link;
    int needed, timeout_ms;
    bool under_way;
    struct list covered, next; /* replicas_wait */
};

/* `needed`: so many are enough; 0: nobody may wait. */
void replicas_init(struct replicas *replicas, struct redis_link *link, int needed, int timeout_ms);
/* `wait` is the caller's until it is done. Right after the answer to the grant, in its callback. */
void replicas_await(struct replicas *replicas, struct replicas_wait *wait);

#endif
