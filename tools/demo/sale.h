/* SPDX-License-Identifier: Apache-2.0 */
/* One flash sale: one contender, its buyers, some of whom stop between read and write, and the
 * referee who continues those and counts at the end. */
#ifndef STOCKADE_TOOLS_DEMO_SALE_H
#define STOCKADE_TOOLS_DEMO_SALE_H

#include "tools/demo/contender.h"
#include "tools/signals.h"
#include "tools/term.h"

struct sale_result {
    const struct contender *contender;
    int64_t sold, left, lowest;
    int64_t oversold; /* sold beyond what has left the stock; 0 is right */
    int64_t stale_tried, stale_refused;
    int64_t stops;   /* how many buyers were stopped between read and write */
    int64_t took_ms; /* from the opening to the last sale; at least 1 */
};

/* sold + left = opening stock, nothing negative. */
bool sale_is_right(const struct sale *sale, const struct sale_result *result);

/* Blocks until the last buyer has left. False: no result, and the reason; also where a signal asked
 * for the end. */
bool sale_run(const struct contender *contender, const struct sale *sale,
              const struct client_uri *server, struct signals *signals, struct term *term,
              struct sale_result *result, struct failure *failure);

#endif
