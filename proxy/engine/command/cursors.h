/* SPDX-License-Identifier: Apache-2.0 */
/* HSCAN's cursors: numbers that every client can hold (below 2^53, as JavaScript's are exact), for
 * fields of any name. A cursor is the hash of the field that comes next.
 *
 * Which field that was is remembered for the latest cursors, so that the next page begins there at
 * once, also where the field is gone. Who comes with an older one, or after a restart, or to
 * another daemon, has the field looked for by its hash: that takes longer, and is all. Where it is
 * gone, too, the iteration begins anew, and fields come twice; none is left out.
 *
 * The store's threads share it: it has a lock. */
#ifndef STOCKADE_ENGINE_CURSORS_H
#define STOCKADE_ENGINE_CURSORS_H

#include "fence/base/bytes.h"

struct cursors;

struct cursors *cursors_new(void);
void cursors_free(struct cursors *cursors);

/* The cursor for a page that begins with this field: 1 to 2^53 - 1. */
int64_t cursor_of(struct bytes field);
/* The same, and remember it. */
int64_t cursors_note(struct cursors *cursors, struct bytes field);
/* Find the field of a cursor that is remembered, and put a copy into `field`. */
bool cursors_find(struct cursors *cursors, int64_t cursor, struct buf *field);

#endif
