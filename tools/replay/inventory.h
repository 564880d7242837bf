/* SPDX-License-Identifier: Apache-2.0 */
/* All SKUs at once: the opening stock is loaded before a replay and audited after it. Both go in
 * batches through one connection. */
#ifndef STOCKADE_TOOLS_REPLAY_INVENTORY_H
#define STOCKADE_TOOLS_REPLAY_INVENTORY_H

#include "tools/replay/replaying.h"

struct audit {
    size_t right; /* SKUs where opening - sold + returned = left */
    size_t wrong; /* each named on stderr, up to a limit */
    size_t below_zero;
    size_t sold_out; /* SKUs with nothing left */
};

/* Sets each SKU's key to its opening stock under a lease of its own. A key that is there already is
 * somebody's data: it is named as the failure and not touched. */
bool inventory_load(const struct replay *replay, struct signals *signals, struct failure *failure);
bool inventory_audit(const struct replay *replay, struct audit *audit, struct failure *failure);

#endif
