/* SPDX-License-Identifier: Apache-2.0 */
/* Tells the service manager that the daemon is alive, as often as it asks for that (WatchdogSec= of
 * the unit). For that the loop has to turn, and the store's threads have to get on with their work.
 * Else nothing is said, and the manager starts the daemon again.
 *
 * A store that fails its operations gets on, too: a full disk is for a person to mend, and a
 * restart would not help. */
#ifndef STOCKADE_SERVER_WATCHDOG_H
#define STOCKADE_SERVER_WATCHDOG_H

#include <stdint.h>
#include <uv.h>

#include "store/store.h"

struct watchdog {
    uv_timer_t timer;
    const struct store *store;
    uint64_t writes, reads; /* that were done at the last check */
};

void watchdog_init(struct watchdog *watchdog, uv_loop_t *loop);
/* Begin, if the manager asks for it. The store is borrowed, until watchdog_close. */
void watchdog_start(struct watchdog *watchdog, const struct store *store);
void watchdog_close(struct watchdog *watchdog);

#endif
