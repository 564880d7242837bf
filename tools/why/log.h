/* SPDX-License-Identifier: Apache-2.0 */
/* The refusals of a past night, from the daemon's log (--log-format json). */
#ifndef STOCKADE_TOOLS_WHY_LOG_H
#define STOCKADE_TOOLS_WHY_LOG_H

#include "tools/failure.h"
#include "tools/why/story.h"

/* Fill the story from the file `story->log` ("-": stdin) with the newest `count` refusals, of
 * `story->resource` where that is not NULL. A line that is not a JSON object, or too long, is
 * counted and skipped. False: the file cannot be read. */
bool log_read(struct story *story, int64_t count, struct failure *failure);

#endif
