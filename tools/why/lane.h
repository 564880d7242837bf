/* SPDX-License-Identifier: Apache-2.0 */
/* A story as a picture in text: a row for each who held or was refused, on one axis of time. */
#ifndef STOCKADE_TOOLS_WHY_LANE_H
#define STOCKADE_TOOLS_WHY_LANE_H

#include "tools/why/story.h"

/* Append the picture, at most `width` columns wide: holds are bars (a short one has a column, too),
 * refused commands crosses. Append nothing where the story is empty or there is no room.
 * `utf8`: with block characters instead of # and x. */
void lane_draw(struct buf *out, const struct story *story, size_t width, bool utf8);

#endif
