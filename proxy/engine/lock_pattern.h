/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys are lock keys: patterns with one `*`, which stands for the resource. With `lock:*` the
 * key lock:sku:1 is a lock on sku:1. */
#ifndef STOCKADE_ENGINE_LOCK_PATTERN_H
#define STOCKADE_ENGINE_LOCK_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"

#define LOCK_PATTERN_MAX 256 /* bytes */

/* Is it a pattern? False: `why` says what would be right. */
bool lock_pattern_valid(const char *text, char *why, size_t why_size);

/* All zero: no patterns. */
struct lock_patterns {
    struct lock_pattern {
        char *text;            /* owned */
        size_t before, behind; /* so many bytes, before and behind the star */
    } * all;                   /* owned */
    size_t count;
};

/* Copy the texts; every one is valid. */
void lock_patterns_init(struct lock_patterns *patterns, const char *const *texts, size_t count);
void lock_patterns_free(struct lock_patterns *patterns);
/* Is it a lock key? Then `resource` is what the `*` of the first pattern that fits stands for, a
 * part of `key`. */
bool lock_patterns_match(const struct lock_patterns *patterns, struct bytes key,
                         struct bytes *resource);

#endif
