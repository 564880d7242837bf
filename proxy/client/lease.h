/* SPDX-License-Identifier: Apache-2.0 */
/* A lease's handle.
 *
 *              granted ─▶ LIVE ─── stale, taken, time over, thread ended ──▶ LOST
 *                          └────── stk_release ──▶ RELEASED ◀────────────────┘
 *
 * Times are now_ms. What a lease is worth counts from before the request was sent that granted or
 * renewed it, so it never seems to last longer than it does. */
#ifndef STOCKADE_CLIENT_LEASE_H
#define STOCKADE_CLIENT_LEASE_H

#include "fence/base/heap.h"
#include "proxy/client/call.h"

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
    struct connection *connection; /* ephemeral: the one that it ends with; else NULL */

    /* Under the client's lock. */
    struct list link; /* client->leases */
    enum lease_state state;
    enum stk_error why; /* the last renewal's trouble; of a lost one, why it is */
    int64_t ttl_ms;
    int64_t until_ms; /* valid before this, the margin taken off */
    struct thread_mark owner;
    /* The renewer's, too. */
    bool kept;
    struct heap_node due;
    int64_t renew_ms, asked_ms;
    bool renewing, again; /* again: news came meanwhile */
    unsigned round;       /* counts renewals, to know late replies of the last one */
    size_t unanswered;    /* of this round */
    int64_t remaining_ms; /* the least that its answers have said so far */
};

/* STK_OK, or fail(): another process, or its client is closed. */
enum stk_error lease_check(const stk_lease *lease);
/* The daemon replied STALE to a write under this lease alone: it is lost. */
void lease_on_stale(stk_lease *lease);
/* The client ends: its leases stay as handles that can only be freed. `close` ends the connections
 * of ephemeral ones. */
void leases_orphan(stk_client *client, void (*close)(struct connection *connection));

#endif
