/* SPDX-License-Identifier: Apache-2.0 */
/* Events tell what happens to leases: as JSON on the channels `stockade:events` and
 * `stockade:events:<resource>`, and as a RESP3 push to the connection that loses its lease. */
#ifndef STOCKADE_ENGINE_EVENTS_H
#define STOCKADE_ENGINE_EVENTS_H

#include <stdint.h>

#include "fence/base/bytes.h"

struct engine;
struct session;

#define EVENTS_CHANNEL "stockade:events"

enum event_kind {
    EVENT_GRANTED,  /* owner, ttl_ms */
    EVENT_RELEASED, /* owner */
    EVENT_EXPIRED,  /* owner */
    EVENT_REVOKED,  /* owner; reason, where somebody gave one */
    EVENT_RESUMED,  /* owner, ttl_ms: it had expired, and a renewal has taken it back */
    EVENT_TURN,     /* id: of a place in the line (ACQUIRE ... QUEUE); no owner, no token */
    EVENT_REFUSED,  /* refusal, and the resource */
};

struct history_refusal;

struct event {
    enum event_kind kind;
    struct bytes resource, owner, id, reason; /* borrowed for the call */
    int64_t token, ttl_ms;
    const struct history_refusal *refusal;
};

/* On the loop's thread. Costs next to nothing where nobody listens. */
void events_publish(struct engine *engine, const struct event *event);

/* Push ["stockade:lost", resource, token, reason] to the connection that held the lease, or has
 * said RENEW ... NOTIFY since. The reason is "revoked", "expired" or "taken", and, for who has said
 * NOTIFY, "released": over another connection. A RESP2 connection gets it as an array, and only if
 * it has said NOTIFY. */
void events_push_lost(struct session *session, struct bytes resource, int64_t token,
                      const char *reason);

/* Pushes ["stockade:turn", resource, id] to a RESP3 connection whose place in the line has come. */
void events_push_turn(struct session *session, struct bytes resource, struct bytes id);

#endif
