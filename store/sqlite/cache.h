/* SPDX-License-Identifier: Apache-2.0 */
/* A memory of resource rows: name to id, fence, type, short string or fields of a hash, so that a
 * fenced write needs no look-up by name, and a read none at all. The writer has one; the quick
 * reader has one of names and ids only. It is bounded, and takes memory only as it fills; when it
 * is full, one entry goes for each that comes. It also remembers names that have no row, and
 * leases.
 *
 * - It holds only what the database holds, or what the transaction under way has put there. What is
 *   rolled back of that, cache_undo forgets: a journal says which entries those are. When another
 *   program has committed, cache_clear forgets everything, at once.
 * - Of what it remembers apart from the entries (names without a row, leases) the journal says
 *   only that something was: an undo forgets all of it.
 * - Every entry can also be found by id. Writes come with the id only, and an entry that a write
 *   could miss would be wrong from then on. Ids that collide push each other out.
 *
 * Special way: looking ahead (struct cache_ahead). With many names, each look-up waits for memory
 * several times. So while one operation of a batch runs, what the cache knows of the operations
 * after it is fetched into the processor, and they wait together. The hint for it is store_op's
 * `about`; it changes nothing but time, also where it is wrong.
 *
 * It belongs to the thread whose transaction has it. */
#ifndef STOCKADE_STORE_SQLITE_CACHE_H
#define STOCKADE_STORE_SQLITE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"
#include "store/txn.h"

struct cache;

/* Remember up to `max` rows, a power of two from 1024 on, in 72 bytes each; names of more than 32
 * bytes take up to 32 MB besides, strings up to 16, fields up to 8, leases 1, and names without
 * a row 256 KB. */
struct cache *cache_new(size_t max);
void cache_free(struct cache *cache);
/* Fill in `resource` but for fence.floor, which is 0. */
bool cache_find(const struct cache *cache, struct bytes name, struct resource *resource);
/* Find it by id. */
bool cache_find_id(const struct cache *cache, int64_t id, struct resource *resource);
/* Remember a row that exists. Long names are not worth their memory: they are not taken. */
void cache_put(struct cache *cache, struct bytes name, const struct resource *resource);
/* Remember that no row has this name, until one is put. Long names are not taken. */
void cache_absent_put(struct cache *cache, struct bytes name);
bool cache_is_absent(const struct cache *cache, struct bytes name);
/* Bring the entry of resource->id, if there is one, up to date: its row has changed. */
void cache_update(struct cache *cache, const struct resource *resource);
/* Remember the string of `id`, whose row has the type; else it is not taken, nor is a long one. */
void cache_string_put(struct cache *cache, int64_t id, struct bytes value);
/* Bring the string of `id`, if it is remembered, up to date: it has changed. */
void cache_string_update(struct cache *cache, int64_t id, struct bytes value);
/* Has the string of `id` that many bytes? False also where that is not known. */
bool cache_string_has_len(const struct cache *cache, int64_t id, size_t len);
/* Find a name's string, borrowed until the next put or update. False: it is not remembered. */
bool cache_string(const struct cache *cache, struct bytes name, struct bytes *value);
/* The same by the row's id. */
bool cache_string_of_id(const struct cache *cache, int64_t id, struct bytes *value);
/* The same of a field of a hash: remember it; bring it up to date if it is remembered; forget it;
 * find it, borrowed until the next put or update. */
void cache_field_put(struct cache *cache, int64_t id, struct bytes field, struct bytes value);
void cache_field_update(struct cache *cache, int64_t id, struct bytes field, struct bytes value);
void cache_field_forget(struct cache *cache, int64_t id, struct bytes field);
bool cache_field(const struct cache *cache, int64_t id, struct bytes field, struct bytes *value);
/* The lease of `id`, whether or not its row is remembered: see leases.h. */
bool cache_lease(const struct cache *cache, int64_t id, struct lease *lease);
void cache_lease_put(struct cache *cache, int64_t id, const struct lease *lease);
void cache_lease_forget(struct cache *cache, int64_t id);
/* The same of a token under which `id` has no receipts. */
bool cache_has_no_receipts(const struct cache *cache, int64_t id, int64_t token);
void cache_no_receipts_put(struct cache *cache, int64_t id, int64_t token);
void cache_no_receipts_forget(struct cache *cache, int64_t id);
/* Forget the row of `id`, which is gone or has changed, and its lease. */
void cache_forget(struct cache *cache, int64_t id);
void cache_clear(struct cache *cache);

/* Return the place in the journal of what was put and updated since the last commit. */
size_t cache_savepoint(const struct cache *cache);
/* Forget what was put or updated since the savepoint; 0: since the last commit. */
void cache_undo(struct cache *cache, size_t savepoint);
/* Empty the journal: all of that is there to stay. */
void cache_commit(struct cache *cache);

/* Looking ahead in a batch. */
enum { CACHE_AHEAD_SLOTS = 16 };
struct cache_ahead {
    const struct cache *cache;
    const struct list *next, *end; /* the first operation that was not looked at */
    size_t at;
    struct bytes names[CACHE_AHEAD_SLOTS];
    uint32_t hashes[CACHE_AHEAD_SLOTS];
};
/* Call it before the first operation of a batch. All is borrowed; `cache` may be NULL. */
void cache_ahead_start(struct cache_ahead *ahead, const struct cache *cache,
                       const struct list *from, const struct list *end);
/* Call it before each operation, the first one, too. */
void cache_ahead_step(struct cache_ahead *ahead);

#endif
