/* SPDX-License-Identifier: Apache-2.0 */
/* Looks ahead in a batch: while one operation runs, what the cache knows of the ones after it comes
 * from memory into the processor. With many names each look-up waits for memory several times; so
 * they wait together. It changes nothing but time, whatever an operation says that it is about. */
#ifndef STOCKADE_STORE_SQLITE_AHEAD_H
#define STOCKADE_STORE_SQLITE_AHEAD_H

#include "store/sqlite/cache.h"
#include "store/store.h"

enum { AHEAD_SLOTS = 16 };

struct ahead {
    const struct cache *cache;
    const struct list *next, *end; /* the first operation that was not looked at */
    size_t at;
    struct bytes names[AHEAD_SLOTS];
    uint32_t hashes[AHEAD_SLOTS];
};

/* Before the first operation of a batch. All is borrowed; `cache` may be NULL. */
void ahead_start(struct ahead *ahead, const struct cache *cache, const struct list *from,
                 const struct list *end);
/* Before each operation, the first one, too. */
void ahead_step(struct ahead *ahead);

#endif
