/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for an unlock by BLPOP, see signals.c. */
#ifndef STOCKADE_ENGINE_LOCK_SIGNALS_H
#define STOCKADE_ENGINE_LOCK_SIGNALS_H

#include "proxy/engine/lockkeys/lock_keys.h"

/* Do what BLPOP signal-key seconds asks: wait until nobody holds `resource`, which is borrowed from
 * the request. */
void lock_signal_wait(struct request *request, struct bytes resource);
/* It was unlocked here. */
void lock_signals_wake(struct engine *engine, struct bytes resource);

#endif
