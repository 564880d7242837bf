/* SPDX-License-Identifier: Apache-2.0 */
/* A resource's story as the daemon tells it: LEASE, HISTORY, REFUSALS and WAITERS in
 * one exchange. */
#ifndef STOCKADE_TOOLS_WHY_WIRE_H
#define STOCKADE_TOOLS_WHY_WIRE_H

#include "tools/answer.h"
#include "tools/why/story.h"

/* Fill the story of `story->resource` with at most `count` holds and as many refusals. False: after
 * a message, with `*code`. */
bool wire_read(struct answer *answer, struct story *story, int64_t count, int *code);

#endif
