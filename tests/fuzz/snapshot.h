/* SPDX-License-Identifier: Apache-2.0 */
/* What a store holds, so that two moments can be compared: each resource with its fence and a sum
 * over its value. */
#ifndef STOCKADE_TESTS_FUZZ_SNAPSHOT_H
#define STOCKADE_TESTS_FUZZ_SNAPSHOT_H

#include <stdint.h>

#include "fence/token.h"
#include "store/store.h"

enum { SNAPSHOT_MAX = 64 };

struct snapshot {
    size_t count;
    struct seen {
        char *name; /* owned */
        size_t name_len;
        struct fence fence;
        uint64_t value; /* 0: none */
    } all[SNAPSHOT_MAX];
};

/* Take what has a value or a live token, and what `before` (may be NULL) knew; no more than fits.
 * It is an operation of the store's, and nothing else may be under way. */
void snapshot_take(struct snapshot *now, const struct snapshot *before, struct store *store);
void snapshot_free(struct snapshot *snapshot);
/* Return NULL where it was not there. */
const struct seen *snapshot_find(const struct snapshot *snapshot, const char *name, size_t len);

#endif
