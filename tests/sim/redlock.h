/* SPDX-License-Identifier: Apache-2.0 */
/* The product's Redlock over simulated Redises, with an alarm in virtual time. */
#ifndef STOCKADE_TESTS_SIM_REDLOCK_H
#define STOCKADE_TESTS_SIM_REDLOCK_H

#include "tests/sim/daemon.h"

/* On the daemon's masters. It is freed when its provider is closed. `turned` as for
 * redis_provider_new; its context is the daemon. */
struct sim_redlock *sim_redlock_new(struct daemon *daemon, void (*turned)(void *context));
struct lease_provider *sim_redlock_provider(const struct sim_redlock *redlock);
/* Its masters are cut off: what pauses tries again at once, and so is answered. */
void sim_redlock_end_pauses(struct sim_redlock *redlock);

#endif
