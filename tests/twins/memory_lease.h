/* SPDX-License-Identifier: Apache-2.0 */
/* The in-memory twin of a Redis lease service, for unit tests and the simulator: one service, any
 * number of providers (daemons) that share it, time from a clock that the test turns. It keeps the
 * promises of provider.h, and fails in the ways a real one does when told to.
 *
 * Unlike the Redis provider it forgets a release that it could not deliver: the lock then stands
 * until its TTL, which a caller must be able to live with anyway. */
#ifndef STOCKADE_TESTS_TWINS_MEMORY_LEASE_H
#define STOCKADE_TESTS_TWINS_MEMORY_LEASE_H

#include "fence/base/clock.h"
#include "fence/lease/provider.h"

struct lease_service;

/* `clock` outlives it. Free it after its providers are closed. */
struct lease_service *lease_service_new(const struct clock *clock);
void lease_service_free(struct lease_service *service);
/* One daemon's connection to it. Ends with lease_provider_close, which is done when it returns. */
struct lease_provider *lease_memory_new(struct lease_service *service);

/* Lose all locks and counters, as by FLUSHALL or an empty restart. */
void lease_service_lose_all(struct lease_service *service);
/* Remember the state as it is now (what a replica or the disk has), and return to it (a failover, a
 * lost tail). Without a mark, that is the empty state. */
void lease_service_mark(struct lease_service *service);
void lease_service_lose_tail(struct lease_service *service);
/* Not to be reached, for `reason` (borrowed); NULL: back again. Calls whose answer is on its way
 * are answered DOWN, though what they asked has happened. */
void lease_service_set_down(struct lease_service *service, const char *reason);
/* Tell watchers nothing, until this is taken back. */
void lease_service_lose_news(struct lease_service *service, bool lose);
/* From now on a call happens at once and is answered `late_ms` later by lease_service_step; 0: it
 * is answered in lease_ask. A negative value holds answers back until it is changed. */
void lease_service_set_late(struct lease_service *service, int64_t late_ms);
/* Deliver the answers that are due, in order, and return how many. `done` may ask again. */
size_t lease_service_step(struct lease_service *service);
/* Return when the next answer is due; -1: none is. */
int64_t lease_service_next_ms(const struct lease_service *service);

#endif
