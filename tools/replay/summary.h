/* SPDX-License-Identifier: Apache-2.0 */
/* What the replay says: what it read, how far it is, what came out. */
#ifndef STOCKADE_TOOLS_REPLAY_SUMMARY_H
#define STOCKADE_TOOLS_REPLAY_SUMMARY_H

#include "tools/replay/inventory.h"
#include "tools/replay/replaying.h"
#include "tools/term.h"

void summary_orders(struct term *term, const struct replay *replay);
void summary_progress(struct term *term, const struct replay *replay, int64_t took_ms);
/* `stops`: how many workers were stopped past their TTL. `took_ms` is at least 1. */
void summary_result(struct term *term, const struct replay *replay, int64_t stops, int64_t took_ms);
/* Says it, and returns whether the books balance and nothing was ever below 0. */
bool summary_audit(struct term *term, const struct replay *replay, const struct audit *audit);

#endif
