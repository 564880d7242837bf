/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated Redis, as the lease scripts use it (fence/lease/redis/scripts.c), and a daemon's
 * lease provider that talks to it by messages: late, lost, doubled or reordered, answers too. The
 * provider times out, reconnects and pays its debts as the real one does.
 *
 * The service loses everything, or its tail, fails over to a stale replica, is down, and its clock
 * runs too fast or too slow. */
#ifndef STOCKADE_TESTS_SIM_REDIS_H
#define STOCKADE_TESTS_SIM_REDIS_H

#include "fence/base/clock.h"
#include "fence/lease/provider.h"
#include "tests/sim/world.h"

#define REDIS_TIMEOUT_MS 400 /* of a call; then the connection is given up */

/* The world's `number`th. */
struct redis *redis_new(struct world *world, int number);
void redis_free(struct redis *redis);

/* `turned` is called after whatever the provider does outside of lease_ask. */
struct lease_provider *redis_provider_new(struct redis *redis, int daemon, struct party *party,
                                          const struct clock *clock, void (*turned)(void *context),
                                          void *context);
/* Nothing of it reaches the service any more. */
void redis_provider_cut_off(struct lease_provider *provider);
/* After that: what is under way is answered DOWN. */
void redis_provider_fail_all(struct lease_provider *provider);

void redis_set_down(struct redis *redis, bool down);
void redis_flush(struct redis *redis);
/* Remember its state, as its disk or a replica has it. */
void redis_mark(struct redis *redis);
/* Go back to that state. */
void redis_go_back(struct redis *redis);
/* Break all connections, as a fail-over does. */
void redis_break_links(struct redis *redis);
/* Per mille of the true speed. */
void redis_set_rate(struct redis *redis, int64_t per_mille);
/* Return since when nobody has the lock; -1: somebody has it. */
int64_t redis_free_since_us(struct redis *redis, const char *name);

#endif
