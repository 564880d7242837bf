/* SPDX-License-Identifier: Apache-2.0 */
/* Files of lines that are JSON objects: the daemon's log and its audit. They may be of any size:
 * they are read line by line, and only the newest holds and refusals are kept. */
#ifndef STOCKADE_TOOLS_WHY_LINES_H
#define STOCKADE_TOOLS_WHY_LINES_H

#include <json-c/json.h>

#include "tools/failure.h"
#include "tools/why/story.h"

/* Fill `story` from the file `story->log` ("-": stdin): `take` is called for each line, and only
 * the newest `count` holds and refusals are kept. A line that is not a JSON object, or too long, is
 * counted and skipped. False: the file cannot be read. */
bool lines_read(struct story *story, int64_t count,
                void (*take)(void *context, struct json_object *line), void *context,
                struct failure *failure);

/* A view of a string; of anything else, no data. */
struct bytes line_text(struct json_object *line, const char *name);
/* A whole number; of anything else, STORY_NONE. */
int64_t line_number(struct json_object *line, const char *name);
/* Return a name as line_text returns it, whatever its bytes, to compare with. Free it. */
struct buf line_name(const char *name);

#endif
