/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of four slots, found by the hash of the name; a second table finds the slot by id. Clearing
 * starts a new generation: slots of earlier ones count as empty. */
#include "store/sqlite/cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum {
    CACHE_SLOTS = 1 << 18, /* 64 bytes each, and the name: at most 50 MB when all are in use */
    CACHE_WAYS = 4,
    CACHE_NAME_MAX = 128, /* bytes */
};

struct slot {
    struct resource resource;
    char *name; /* owned, `room` bytes; kept for the next name */
    uint32_t generation, hash;
    uint16_t len, room;
};

struct cache {
    struct slot *slots;
    uint32_t *by_id; /* id modulo CACHE_SLOTS: the slot, where it still has that id */
    uint32_t generation;
    uint32_t victim;   /* whose turn it is to go where a set is full */
    uint32_t *journal; /* slots put or updated since the last commit; some more than once */
    size_t journal_count, journal_room;
};

struct cache *cache_new(void)
{
    struct cache *cache = mem_zalloc(sizeof *cache);
    cache->slots = mem_zalloc(CACHE_SLOTS * sizeof *cache->slots);
    cache->by_id = mem_zalloc(CACHE_SLOTS * sizeof *cache->by_id);
    cache->generation = 1;
    return cache;
}

void cache_free(struct cache *cache)
{
    if (cache == NULL)
        return;
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        free(cache->slots[i].name);
    free(cache->slots);
    free(cache->by_id);
    free(cache->journal);
    free(cache);
}

static struct slot *set_of(struct cache *cache, uint64_t hash)
{
    return &cache->slots[hash % (CACHE_SLOTS / CACHE_WAYS) * CACHE_WAYS];
}

static bool slot_is(const struct cache *cache, const struct slot *slot, struct bytes name,
                    uint32_t hash)
{
    return slot->generation == cache->generation && slot->hash == hash && slot->len == name.len &&
           memcmp(slot->name, name.data, name.len) == 0;
}

/* The entry of an id, or NULL. */
static struct slot *slot_of_id(struct cache *cache, int64_t id)
{
    struct slot *slot = &cache->slots[cache->by_id[id % CACHE_SLOTS]];
    return slot->generation == cache->generation && slot->resource.id == id ? slot : NULL;
}

bool cache_find(struct cache *cache, struct bytes name, struct resource *resource)
{
    uint64_t hash = XXH3_64bits(name.data, name.len);
    const struct slot *slot = set_of(cache, hash);

    for (int way = 0; way < CACHE_WAYS; way++, slot++)
        if (slot_is(cache, slot, name, (uint32_t)(hash >> 32))) {
            *resource = slot->resource;
            return true;
        }
    return false;
}

bool cache_find_id(struct cache *cache, int64_t id, struct resource *resource)
{
    const struct slot *slot = slot_of_id(cache, id);
    if (slot != NULL)
        *resource = slot->resource;
    return slot != NULL;
}

static void note(struct cache *cache, const struct slot *slot)
{
    uint32_t at = (uint32_t)(slot - cache->slots);

    if (cache->journal_count == cache->journal_room) {
        cache->journal_room = cache->journal_room * 2 + 256;
        cache->journal = mem_realloc(cache->journal, cache->journal_room * sizeof at);
    }
    cache->journal[cache->journal_count++] = at;
}

static void slot_fill(struct slot *slot, struct bytes name, const struct resource *resource)
{
    if (slot->room < name.len) {
        slot->name = mem_realloc(slot->name, name.len);
        slot->room = (uint16_t)name.len;
    }
    memcpy(slot->name, name.data, name.len);
    slot->len = (uint16_t)name.len;
    slot->resource = *resource;
}

void cache_put(struct cache *cache, struct bytes name, const struct resource *resource)
{
    uint64_t hash = XXH3_64bits(name.data, name.len);
    struct slot *set = set_of(cache, hash), *slot = NULL;

    check(resource->id > 0);
    if (name.len > CACHE_NAME_MAX)
        return;
    for (int way = 0; way < CACHE_WAYS && slot == NULL; way++)
        if (slot_is(cache, &set[way], name, (uint32_t)(hash >> 32)))
            slot = &set[way];
    for (int way = 0; way < CACHE_WAYS && slot == NULL; way++)
        if (set[way].generation != cache->generation)
            slot = &set[way];
    if (slot == NULL)
        slot = &set[cache->victim++ % CACHE_WAYS];
    /* An id that shares the place in by_id loses it, and with it the entry. */
    uint32_t *place = &cache->by_id[resource->id % CACHE_SLOTS];
    struct slot *other = &cache->slots[*place];
    if (other->generation == cache->generation &&
        other->resource.id % CACHE_SLOTS == resource->id % CACHE_SLOTS)
        other->generation = 0;
    slot_fill(slot, name, resource);
    slot->generation = cache->generation;
    slot->hash = (uint32_t)(hash >> 32);
    *place = (uint32_t)(slot - cache->slots);
    note(cache, slot);
}

void cache_update(struct cache *cache, const struct resource *resource)
{
    struct slot *slot = slot_of_id(cache, resource->id);
    if (slot == NULL)
        return;
    slot->resource = *resource;
    note(cache, slot);
}

void cache_forget(struct cache *cache, int64_t id)
{
    struct slot *slot = slot_of_id(cache, id);
    if (slot != NULL)
        slot->generation = 0;
}

void cache_clear(struct cache *cache)
{
    if (++cache->generation != 0)
        return;
    for (size_t i = 0; i < CACHE_SLOTS; i++)
        cache->slots[i].generation = 0;
    cache->generation = 1;
}

size_t cache_mark(const struct cache *cache)
{
    return cache->journal_count;
}

void cache_undo(struct cache *cache, size_t mark)
{
    check(mark <= cache->journal_count);
    while (cache->journal_count > mark)
        cache->slots[cache->journal[--cache->journal_count]].generation = 0;
}

void cache_commit(struct cache *cache)
{
    cache->journal_count = 0;
}
