/* SPDX-License-Identifier: Apache-2.0 */
/* The places of the admin address: one for each connection, so many at most. Whoever comes finds
 * one: where all are taken, the connection whose step has taken the longest is ended, be it silent,
 * or slow to ask, or slow to read; one that has come within the last second is spared while there
 * are others. Only those that wait for the daemon itself keep theirs, and some places are never
 * theirs.
 *
 *   AWAITED ──▶ ANSWERED ──▶ AWAITED ...      ended to make room, the oldest step first
 *                 │  ▲
 *                 ▼  │
 *                 KEPT                         not ended
 *
 * Requests have to arrive in time, too: libmicrohttpd's own limit begins anew with each byte. */
#ifndef STOCKADE_SERVER_PLACES_H
#define STOCKADE_SERVER_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

struct places;
struct place;

/* `max` connections, of which `max` - `kept_max` are never KEPT. */
struct places *places_new(uv_loop_t *loop, size_t max, size_t kept_max);
/* All places have to have been left. */
void places_close(struct places *places, void (*closed)(void *context), void *context);
/* Return whether no more connections may be KEPT. */
bool places_are_crowded(const struct places *places);

/* A connection has begun, and its first request is awaited. `end` ends it at once or soon, and may
 * leave the place; it is called at most once. */
struct place *place_take(struct places *places, void (*end)(void *context), void *context);
/* The next request is awaited. */
void place_await(struct place *place);
/* It has arrived, and its answer leaves. */
void place_answer(struct place *place);
/* Its answer waits for the daemon. The caller has asked places_are_crowded(). */
void place_keep(struct place *place);
/* The connection is over. */
void place_leave(struct place *place);

#endif
