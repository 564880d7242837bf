/* SPDX-License-Identifier: Apache-2.0 */
/* A lease's handle, and the keeper that renews it.
 *
 *              granted ─▶ LIVE ─── stale, taken, time over, thread ended ──▶ LOST
 *                          └────── stk_release ──▶ RELEASED ◀────────────────┘
 *
 * Times are on the monotonic clock. What a lease is worth counts from before the request was sent
 * that granted or renewed it, so it never seems to last longer than it does. */
#ifndef STOCKADE_CLIENT_LEASE_H
#define STOCKADE_CLIENT_LEASE_H

#include "fence/base/heap.h"
#include "proxy/client/client.h"

#define LEASE_TTL_DEFAULT_MS 30000

struct hold {
    char *resource; /* owned */
    int64_t token;
};

enum lease_state { STATE_LIVE, STATE_LOST, STATE_RELEASED };

struct stk_lease {
    stk_client *client; /* NULL: closed */
    /* Set once. */
    size_t count;
    struct hold *holds; /* owned */
    bool anonymous;     /* without an owner that could enter again */
    void (*lost)(stk_lease *lease, enum stk_error why, void *context);
    void *context;
    struct peer *peer; /* ephemeral: the connection that it ends with; else NULL */

    /* Under the client's lock. */
    struct list link; /* client->leases */
    enum lease_state state;
    enum stk_error why; /* the last renewal's trouble; of a lost one, why it is */
    int64_t ttl_ms;
    int64_t until_ms; /* valid before this, the margin taken off */
    struct thread_mark owner;
    /* The keeper's, too. */
    bool kept;
    struct heap_node due;
    int64_t renew_ms, asked_ms;
    bool renewing;
    unsigned round;    /* counts renewals, to know late replies of the last one */
    size_t unanswered; /* of this round; and the least that its answers told so far */
    int64_t told_ms;
};

/* STK_OK, or fail(): another process, or its client is closed. */
enum stk_error handle_check(const stk_lease *lease);
/* What was asked for at asked_ms is good for told_ms from then on, as the server says, and no
 * longer than ttl_ms, which renewals ask for. The lock is held. */
void handle_extend(stk_lease *lease, int64_t asked_ms, int64_t ttl_ms, int64_t told_ms);
/* One RENEW for each of its resources. `notify`: whose connection is told of their loss. */
void handle_compose_renewal(const stk_lease *lease, int64_t ttl_ms, bool notify, struct buf *out);
/* stk_renew, until then. */
enum stk_error handle_renew(stk_lease *lease, int64_t ttl_ms, int64_t deadline_ms);
/* The daemon said STALE to a write under this lease alone: lost, and the keeper tells. */
void handle_is_stale(stk_lease *lease);

/* keepalive.c; the lock is held in all but keepalive_free. */

/* Keeps the lease alive from here on. False, and fail(): there are no threads or descriptors. */
bool keepalive_add(stk_lease *lease);
/* Never renews it again and never calls its `lost`, but for one that is being called. */
void keepalive_forget(stk_lease *lease);
/* Waits until `lost` of this lease has returned, where another thread than this one calls it. */
void keepalive_await(stk_lease *lease);
/* Looks at it anew: its times or its state have changed. */
void keepalive_look(stk_lease *lease);
/* Ends the thread. NULL is fine. */
void keepalive_free(struct keepalive *keeper);
/* In a forked child, where there is no such thread. */
void keepalive_drop(struct keepalive *keeper);

#endif
