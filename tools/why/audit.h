/* SPDX-License-Identifier: Apache-2.0 */
/* The holds and the refusals of a past night, from the audit (`stockaded --audit`). */
#ifndef STOCKADE_TOOLS_WHY_AUDIT_H
#define STOCKADE_TOOLS_WHY_AUDIT_H

#include "tools/failure.h"
#include "tools/why/story.h"

/* Fill the story from the file `story->log` ("-": stdin) with the newest `count` refusals, of
 * `story->resource` where that is not NULL, and then its newest `count` holds, too. How many writes
 * were accepted is not in an audit. False: the file cannot be read. */
bool audit_read(struct story *story, int64_t count, struct failure *failure);

#endif
