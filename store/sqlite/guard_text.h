/* SPDX-License-Identifier: Apache-2.0 */
/* What a guard consists of in the file: five triggers and an index, each a pure function of the
 * guard, so that comparing the text of the schema shows whether a guard is as it was made. */
#ifndef STOCKADE_STORE_SQLITE_GUARD_TEXT_H
#define STOCKADE_STORE_SQLITE_GUARD_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Names as the schema spells them. */
struct guard {
    char *table, *column, *prefix; /* owned, or borrowed for the length of a call */
    bool generated;                /* the column is: its value is computed */
};

enum { GUARD_PARTS = 6 };

struct guard_part {
    const char *type; /* "trigger" or "index"; static */
    char *name, *sql; /* owned: guard_part_free. `sql` is as the schema keeps it */
};

/* False: a guard of this kind has no such part. Where there is no memory `sql` is NULL. */
bool guard_part_make(const struct guard *guard, size_t which, struct guard_part *part);
void guard_part_free(struct guard_part *part);

#endif
