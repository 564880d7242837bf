/* SPDX-License-Identifier: Apache-2.0 */
/* Releases that are owed to a Redis that is away: locks that their owners have given up while
 * nobody could be told, and grants that nobody heard of. They are delivered when it is back, and
 * forgotten when the lock's time is over.
 *
 * A grant's debt names the attempt, never just the owner: he may have tried again since, at another
 * daemon, and hold the lease. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_DEBTS_H
#define STOCKADE_FENCE_LEASE_REDIS_DEBTS_H

#include "fence/base/heap.h"
#include "fence/lease/provider.h"

#define DEBTS_MAX 10000 /* more: those whose locks end soonest are forgotten */

/* All zero is none. The heap's time is when the lock ends by itself. */
struct debts {
    struct heap heap;
};

/* `call` becomes the RELEASE that pays: resource (memory of its own), nonce, token, attempt. */
struct debt {
    struct lease_call call;
    struct heap_node node;
    char resource[];
};

/* Remembers that `token` (0: any) of the call's nonce and attempt is to be let go, unless
 * `until_ms` is over. */
void debts_add(struct debts *debts, const struct lease_call *call, int64_t token, int64_t until_ms,
               int64_t now_ms);
/* One that is still worth paying, or NULL; its call's ttl_ms is what is left. free() it. */
struct debt *debts_take(struct debts *debts, int64_t now_ms);
void debts_free(struct debts *debts);

#endif
