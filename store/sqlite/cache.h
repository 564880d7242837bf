/* SPDX-License-Identifier: Apache-2.0 */
/* A memory of resource rows: name to id, fence, type and short string, so that a fenced write needs
 * no look-up by name, and a read none at all (the writer's; the quick reader has one of names and
 * ids only). Bounded, and resident only as it fills; where it is full, one goes for each that
 * comes.
 *
 * - It holds only what the database holds, or what the transaction under way has put there. What
 *   is undone of it, cache_undo forgets: a journal says which entries those are. Where another
 *   program has committed, cache_clear forgets everything, at once.
 * - Every entry can also be found by id: writes come with the id only, and an entry that a write
 *   could miss would be wrong from then on. Ids that collide push each other out. */
#ifndef STOCKADE_STORE_SQLITE_CACHE_H
#define STOCKADE_STORE_SQLITE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/txn.h"

struct cache;

/* Remembers up to `max` rows, a power of two from 1024 on, in 72 bytes each; names of more than 32
 * bytes take up to 32 MB besides, and strings up to 16. */
struct cache *cache_new(size_t max);
void cache_free(struct cache *cache);
/* Fills in `resource` but for fence.floor, which is 0. */
bool cache_find(const struct cache *cache, struct bytes name, struct resource *resource);
/* The same by id. */
bool cache_find_id(const struct cache *cache, int64_t id, struct resource *resource);
/* Remembers a row that exists. Long names are not worth their memory: they are not taken. */
void cache_put(struct cache *cache, struct bytes name, const struct resource *resource);
/* The row of resource->id has changed: brings its entry, if there is one, up to date. */
void cache_update(struct cache *cache, const struct resource *resource);
/* Remembers the string of `id`, whose row has the type. Long ones are not taken. */
void cache_string_put(struct cache *cache, int64_t id, struct bytes value);
/* The string of `id` has changed: brings it, if it is remembered, up to date. */
void cache_string_update(struct cache *cache, int64_t id, struct bytes value);
/* Whether the string of `id` has that many bytes; false also where that is not known. */
bool cache_string_has_len(const struct cache *cache, int64_t id, size_t len);
/* The string of a name, borrowed until the next put or update. False: it is not remembered. */
bool cache_string(const struct cache *cache, struct bytes name, struct bytes *value);
/* For ahead.h: three steps towards what a look-up of the name will need, each of which asks memory
 * for what the next one reads. Any hash may be given to the last two, at any time. */
uint32_t cache_ahead_chain(const struct cache *cache, struct bytes name);
void cache_ahead_entry(const struct cache *cache, uint32_t hash);
void cache_ahead_rest(const struct cache *cache, uint32_t hash);
/* The row of `id` is gone. */
void cache_forget(struct cache *cache, int64_t id);
void cache_clear(struct cache *cache);

/* A place in the journal of what was put and updated since the last commit. */
size_t cache_mark(const struct cache *cache);
/* Forgets what was put or updated since the mark; 0: since the last commit. */
void cache_undo(struct cache *cache, size_t mark);
/* All of it is there to stay. */
void cache_commit(struct cache *cache);

#endif
