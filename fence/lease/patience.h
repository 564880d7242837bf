/* SPDX-License-Identifier: Apache-2.0 */
/* How long those who talk to a lease service wait for it, and before they try again: one rule for
 * every service. Pure functions; all times in milliseconds of one clock. */
#ifndef STOCKADE_FENCE_LEASE_PATIENCE_H
#define STOCKADE_FENCE_LEASE_PATIENCE_H

#include <stdint.h>

#include "fence/base/clock.h"

#define PATIENCE_FIRST_MS 1000 /* until a first attempt counts as having failed */

/* The pause after so many failures in a row (from 1): doubling, 50 ms to 2 s, between half and all
 * of it, so that daemons which lost the same service spread out. */
int64_t patience_backoff_ms(const struct chance *chance, unsigned failures);
/* When the oldest request under way, due at `deadline_ms`, has waited long enough: one answer after
 * the other (the last at `heard_ms`) is no silence, up to five times the timeout. */
int64_t patience_due_ms(int64_t deadline_ms, int64_t heard_ms, int64_t timeout_ms);
/* The time was up at `due_ms`, and it is later now: if we come late to it, so may the answer. Until
 * when to look once more before the verdict. */
int64_t patience_grace_ms(int64_t now_ms, int64_t due_ms, int64_t timeout_ms);

#endif
