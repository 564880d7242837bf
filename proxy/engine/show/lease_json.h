/* SPDX-License-Identifier: Apache-2.0 */
/* One lease and one waiter as the page's JSON has them: what the files of this folder share. */
#ifndef STOCKADE_ENGINE_SHOW_LEASE_JSON_H
#define STOCKADE_ENGINE_SHOW_LEASE_JSON_H

#include "proxy/engine/lease/lease.h"

struct glob;

/* Times on the engine's clock. */
struct shown_lease {
    struct bytes resource, owner, client, address;
    int64_t token, granted_ms, until_ms, ttl_ms, waiters;
    int64_t waiting_since_ms; /* the one that waits longest; -1: nobody */
};

/* What is known of a lease; it borrows the names. */
struct shown_lease lease_shown(struct engine *engine, const struct held_shown *held);
/* Append {"resource":...}. */
void lease_json(struct engine *engine, const struct shown_lease *lease, struct buf *json);
/* Does it wait in line? Else it only asks, or was passed over. */
bool waiter_is_shown(const struct waiter *waiter);

/* It borrows the names. */
struct shown_waiter {
    struct bytes client, address, owner;
    int64_t waited_ms;
    const char *way; /* "wait" on its connection, or a place in the "queue" */
};

/* What is known of one that is shown. */
struct shown_waiter waiter_shown(const struct engine *engine, const struct waiter *waiter);
/* Compile what names have to match. NULL: they only have to contain it. */
struct glob *show_glob(struct bytes match);
bool show_matches(struct bytes match, const struct glob *glob, struct bytes name);
/* The time of an event on the engine's clock, as milliseconds since 1970. */
int64_t show_wall_ms(const struct engine *engine, int64_t at_ms);

#endif
