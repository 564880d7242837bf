/* SPDX-License-Identifier: Apache-2.0 */
/* Names numbered from 0 in order of their first appearance. */
#ifndef STOCKADE_TOOLS_REPLAY_NAMES_H
#define STOCKADE_TOOLS_REPLAY_NAMES_H

#include "fence/base/bytes.h"

/* All zero is an empty one; names_free when done. */
struct names {
    char **texts; /* owned, and the texts, which never move */
    uint32_t count;
    size_t room;
    uint32_t *slots;   /* open hash table: number + 1, or 0: free */
    size_t slot_count; /* a power of two, more than twice `count` */
};

/* The number of the name; a new one gets the next. */
uint32_t names_number(struct names *names, struct bytes name);
void names_free(struct names *names);

#endif
