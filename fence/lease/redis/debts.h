/* SPDX-License-Identifier: Apache-2.0 */
/* Releases that are owed to a Redis that is away: of locks whose owners have given them up, and of
 * grants whose answer nobody received. They are delivered when Redis is back, and forgotten when
 * the lock has ended by itself.
 *
 * The debt of a grant names the attempt, never just the owner: the owner may have tried again
 * since, at another daemon, and hold the lease. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_DEBTS_H
#define STOCKADE_FENCE_LEASE_REDIS_DEBTS_H

#include "fence/base/heap.h"
#include "fence/lease/provider.h"

#define DEBTS_MAX 10000 /* beyond that, those whose locks end soonest are forgotten */

/* All zero is empty. */
struct debts {
    struct heap heap; /* struct debt, by the time when its lock ends by itself */
};

/* `call` is the RELEASE that pays it: resource (in memory of its own), nonce, token, attempt. */
struct debt {
    struct lease_call call;
    struct heap_node node;
    char resource[];
};

/* Remember what a call whose outcome is not known leaves to be done. A RELEASE is owed until its
 * deadline_ms, the end of the lock. A GRANT may have taken or entered the lock for an owner who
 * will never hear of it, so its attempt is to be released. */
void debts_note(struct debts *debts, const struct lease_call *call, int64_t now_ms);
/* Remember that `token` (0: any) of the call's nonce and attempt is to be released, unless
 * `until_ms` is over. */
void debts_add(struct debts *debts, const struct lease_call *call, int64_t token, int64_t until_ms,
               int64_t now_ms);
/* Take one that is not over, or NULL. Its call's ttl_ms is what is left of the lock. free() it. */
struct debt *debts_take(struct debts *debts, int64_t now_ms);
/* Move all of `from`. */
void debts_splice(struct debts *to, struct debts *from);
void debts_free(struct debts *debts);

#endif
