/* SPDX-License-Identifier: Apache-2.0 */
/* Entries in one array, taken in order, so that memory grows with what is remembered; chains of
 * them by the hash of the name; and a table by id. The chains are split one at a time as entries
 * come (linear hashing): no put ever waits for a table to be built anew. Strings are in an array of
 * their own, each with the entry that it belongs to: one that another has taken is not found. */
#include "store/sqlite/cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/sqlite/absent.h"
#include "store/sqlite/fields.h"
#include "store/sqlite/leases.h"

enum {
    LINE = 64, /* bytes fetched from memory at once */
    NAME_INLINE = 32,
    NAME_MAX = 128,         /* bytes; longer ones are not worth their memory */
    NAMES_MAX = 32 << 20,   /* bytes of names that are not in their entries */
    CHAINS_FIRST = 1 << 10, /* a power of two */
    STRING_MAX = 59,        /* bytes */
    STRINGS_MAX = 1 << 18,
};

/* In the journal: something was remembered that is in no entry. */
#define APART UINT32_MAX

struct entry {
    int64_t id; /* 0: free */
    int64_t token;
    uint32_t hash;
    uint32_t next; /* place + 1 of the next one in its chain, or of those that are free; 0: none */
    uint8_t len;
    uint8_t state, type;
    uint8_t string_len; /* of the row's string, remembered or not; 0: not known */
    uint32_t inside;    /* of a string: its place + 1; of a hash: its fields' mark; 0: none */
    union {
        char inlined[NAME_INLINE];
        char *heap; /* owned; where len is above NAME_INLINE */
    } name;
};
_Static_assert(sizeof(struct entry) == LINE, "one look at an entry is one line of memory");

struct string {
    uint32_t owner; /* place + 1 of its entry */
    uint8_t len;
    char bytes[STRING_MAX];
};
_Static_assert(sizeof(struct string) == LINE, "and one at its string is another");

struct cache {
    size_t max; /* entries, a power of two */
    struct entry *entries;
    uint32_t *chains;                /* place + 1 of the first one; 0: none */
    uint32_t *by_id;                 /* id modulo max: the place, where it still has that id */
    uint64_t seed;                   /* so that nobody can choose names that share a chain */
    size_t used;                     /* entries that were taken since the last clear */
    size_t count;                    /* and are in chains */
    size_t names;                    /* bytes apart */
    size_t chains_count, chains_low; /* chains_low: the power of two at or below */
    size_t victim;                   /* whose turn it is to make room */
    uint32_t free;                   /* place + 1; 0: none */
    struct string *strings;
    size_t strings_used, strings_victim;
    struct fields *fields;
    struct absent *absent;
    struct leases *leases;
    uint32_t *journal; /* places put or updated since the last commit; some more than once; APART */
    size_t journal_count, journal_room;
};

static void start_chains(struct cache *cache)
{
    cache->chains_count = cache->chains_low = CHAINS_FIRST;
    memset(cache->chains, 0, CHAINS_FIRST * sizeof *cache->chains);
}

struct cache *cache_new(size_t max)
{
    struct cache *cache = mem_zalloc(sizeof *cache);

    check(max >= CHAINS_FIRST && max <= UINT32_MAX / 2 && (max & (max - 1)) == 0);
    cache->max = max;
    /* Not zeroed: no entry is looked at before it was filled. */
    cache->entries = mem_aligned(LINE, max * sizeof *cache->entries);
    cache->chains = mem_zalloc(max * sizeof *cache->chains);
    cache->by_id = mem_zalloc(max * sizeof *cache->by_id);
    cache->strings = mem_aligned(LINE, STRINGS_MAX * sizeof *cache->strings);
    cache->fields = fields_new();
    cache->absent = absent_new();
    cache->leases = leases_new();
    cache->seed = (uint64_t)(uintptr_t)cache;
    start_chains(cache);
    return cache;
}

void cache_free(struct cache *cache)
{
    if (cache == NULL)
        return;
    cache_clear(cache);
    free(cache->entries);
    free(cache->chains);
    free(cache->by_id);
    free(cache->strings);
    fields_free(cache->fields);
    absent_free(cache->absent);
    leases_free(cache->leases);
    free(cache->journal);
    free(cache);
}

/* Chains. */

static uint32_t hash_of(const struct cache *cache, struct bytes name)
{
    return (uint32_t)XXH3_64bits_withSeed(name.data, name.len, cache->seed);
}

static uint32_t *chain_of(const struct cache *cache, uint32_t hash)
{
    size_t chain = hash & (2 * cache->chains_low - 1);

    if (chain >= cache->chains_count) /* not split yet */
        chain &= cache->chains_low - 1;
    return &cache->chains[chain];
}

static struct entry *entry_at(const struct cache *cache, uint32_t link)
{
    return link == 0 ? NULL : &cache->entries[link - 1];
}

static uint32_t link_of(const struct cache *cache, const struct entry *entry)
{
    return (uint32_t)(entry - cache->entries) + 1;
}

static void chain_in(struct cache *cache, struct entry *entry)
{
    uint32_t *chain = chain_of(cache, entry->hash);

    entry->next = *chain;
    *chain = link_of(cache, entry);
}

static void split_a_chain(struct cache *cache)
{
    uint32_t *from = &cache->chains[cache->chains_count - cache->chains_low];
    struct entry *entry = entry_at(cache, *from), *next;

    *from = 0;
    cache->chains[cache->chains_count++] = 0;
    for (; entry != NULL; entry = next) {
        next = entry_at(cache, entry->next);
        chain_in(cache, entry);
    }
    if (cache->chains_count == 2 * cache->chains_low)
        cache->chains_low *= 2;
}

static char *name_of(struct entry *entry)
{
    return entry->len <= NAME_INLINE ? entry->name.inlined : entry->name.heap;
}

static struct entry *find(const struct cache *cache, struct bytes name, uint32_t hash)
{
    struct entry *entry = entry_at(cache, *chain_of(cache, hash));

    while (entry != NULL && (entry->hash != hash || entry->len != name.len ||
                             memcmp(name_of(entry), name.data, name.len) != 0))
        entry = entry_at(cache, entry->next);
    return entry;
}

/* The entry of an id, or NULL. An id of 0 is nobody's: free entries have it. */
static struct entry *find_id(const struct cache *cache, int64_t id)
{
    uint32_t place = cache->by_id[id & ((int64_t)cache->max - 1)];
    return id != 0 && place < cache->used && cache->entries[place].id == id ? &cache->entries[place]
                                                                            : NULL;
}

/* Entries. */

static void drop_name(struct cache *cache, struct entry *entry)
{
    if (entry->len <= NAME_INLINE)
        return;
    cache->names -= entry->len;
    free(entry->name.heap);
}

/* Take an entry out of its chain and empty it; it is the caller's now. */
static void take_out(struct cache *cache, struct entry *entry)
{
    uint32_t *link = chain_of(cache, entry->hash);

    while (*link != link_of(cache, entry))
        link = &entry_at(cache, *link)->next;
    *link = entry->next;
    drop_name(cache, entry);
    entry->id = 0;
    cache->count--;
}

static void forget(struct cache *cache, struct entry *entry)
{
    if (entry->id == 0)
        return;
    take_out(cache, entry);
    entry->next = cache->free;
    cache->free = link_of(cache, entry);
}

/* Return the next entry that holds something; there is one. */
static struct entry *next_victim(struct cache *cache)
{
    struct entry *entry;

    do
        entry = &cache->entries[cache->victim++ % cache->used];
    while (entry->id == 0);
    return entry;
}

static struct entry *take_any(struct cache *cache)
{
    struct entry *entry;

    if (cache->free != 0) {
        entry = entry_at(cache, cache->free);
        cache->free = entry->next;
    } else if (cache->used < cache->max) {
        entry = &cache->entries[cache->used++];
    } else {
        entry = next_victim(cache);
        take_out(cache, entry);
    }
    return entry;
}

static struct entry *add(struct cache *cache, struct bytes name, uint32_t hash)
{
    while (name.len > NAME_INLINE && cache->names + name.len > NAMES_MAX)
        forget(cache, next_victim(cache));
    struct entry *entry = take_any(cache);
    entry->hash = hash;
    entry->len = (uint8_t)name.len;
    if (name.len > NAME_INLINE) {
        entry->name.heap = mem_alloc(name.len);
        cache->names += name.len;
    }
    memcpy(name_of(entry), name.data, name.len);
    if (++cache->count > cache->chains_count && cache->chains_count < cache->max)
        split_a_chain(cache);
    chain_in(cache, entry);
    return entry;
}

static void note_place(struct cache *cache, uint32_t place)
{
    if (cache->journal_count == cache->journal_room) {
        cache->journal_room = cache->journal_room * 2 + 256;
        cache->journal = mem_realloc(cache->journal, cache->journal_room * sizeof *cache->journal);
    }
    cache->journal[cache->journal_count++] = place;
}

static void note(struct cache *cache, const struct entry *entry)
{
    note_place(cache, (uint32_t)(entry - cache->entries));
}

static void set(struct entry *entry, const struct resource *resource)
{
    entry->id = resource->id;
    entry->token = resource->fence.token;
    entry->state = (uint8_t)resource->fence.state;
    if (entry->type != resource->type)
        entry->inside = entry->string_len = 0;
    entry->type = (uint8_t)resource->type;
}

static bool get(const struct entry *entry, struct resource *resource)
{
    if (entry == NULL)
        return false;
    *resource = (struct resource){
        .id = entry->id,
        .fence = {.token = entry->token, .state = (enum fence_state)entry->state},
        .type = (enum value_type)entry->type,
    };
    return true;
}

bool cache_find(const struct cache *cache, struct bytes name, struct resource *resource)
{
    return get(find(cache, name, hash_of(cache, name)), resource);
}

bool cache_find_id(const struct cache *cache, int64_t id, struct resource *resource)
{
    return get(find_id(cache, id), resource);
}

void cache_put(struct cache *cache, struct bytes name, const struct resource *resource)
{
    uint32_t hash = hash_of(cache, name);
    int64_t mask = (int64_t)cache->max - 1;
    uint32_t *place = &cache->by_id[resource->id & mask];

    check(resource->id > 0);
    absent_forget(cache->absent, name);
    if (name.len > NAME_MAX)
        return;
    struct entry *entry = find(cache, name, hash), *other = NULL;
    if (entry == NULL)
        entry = add(cache, name, hash);
    /* An id that shares the place in by_id loses it, and with it the entry. */
    if (*place < cache->used)
        other = &cache->entries[*place];
    if (other != NULL && other != entry && ((other->id ^ resource->id) & mask) == 0)
        forget(cache, other);
    entry->inside = entry->string_len = 0;
    set(entry, resource);
    *place = (uint32_t)(entry - cache->entries);
    note(cache, entry);
}

void cache_update(struct cache *cache, const struct resource *resource)
{
    struct entry *entry = find_id(cache, resource->id);

    if (entry == NULL)
        return;
    set(entry, resource);
    note(cache, entry);
}

/* Apart from the entries: names without a row, and leases. */

void cache_absent_put(struct cache *cache, struct bytes name)
{
    absent_put(cache->absent, name);
    note_place(cache, APART);
}

bool cache_is_absent(const struct cache *cache, struct bytes name)
{
    return absent_has(cache->absent, name);
}

bool cache_lease(const struct cache *cache, int64_t id, struct lease *lease)
{
    return leases_find(cache->leases, id, lease);
}

void cache_lease_put(struct cache *cache, int64_t id, const struct lease *lease)
{
    leases_put(cache->leases, id, lease);
    note_place(cache, APART);
}

void cache_lease_forget(struct cache *cache, int64_t id)
{
    leases_forget(cache->leases, id);
}

bool cache_has_no_receipts(const struct cache *cache, int64_t id, int64_t token)
{
    return leases_has_no_receipts(cache->leases, id, token);
}

void cache_no_receipts_put(struct cache *cache, int64_t id, int64_t token)
{
    leases_no_receipts_put(cache->leases, id, token);
    note_place(cache, APART);
}

void cache_no_receipts_forget(struct cache *cache, int64_t id)
{
    leases_no_receipts_forget(cache->leases, id);
}

static void forget_apart(struct cache *cache)
{
    absent_clear(cache->absent);
    leases_clear(cache->leases);
}

/* Strings. */

static struct string *string_of(const struct cache *cache, const struct entry *entry)
{
    if (entry->type != VALUE_STRING || entry->inside == 0)
        return NULL;
    struct string *string = &cache->strings[entry->inside - 1];
    return string->owner == link_of(cache, entry) ? string : NULL;
}

static void set_string(struct cache *cache, struct entry *entry, struct bytes value)
{
    struct string *string = string_of(cache, entry);

    if (value.len > STRING_MAX) {
        entry->inside = 0;
        return;
    }
    if (string == NULL) {
        size_t place = cache->strings_used < STRINGS_MAX ? cache->strings_used++
                                                         : cache->strings_victim++ % STRINGS_MAX;
        string = &cache->strings[place];
        string->owner = link_of(cache, entry);
        entry->inside = (uint32_t)place + 1;
    }
    string->len = (uint8_t)value.len;
    if (value.len > 0)
        memcpy(string->bytes, value.data, value.len);
    note(cache, entry);
}

static void set_string_len(struct entry *entry, size_t len)
{
    entry->string_len = (uint8_t)(len <= UINT8_MAX ? len : 0);
}

void cache_string_put(struct cache *cache, int64_t id, struct bytes value)
{
    struct entry *entry = find_id(cache, id);

    if (entry == NULL || entry->type != VALUE_STRING)
        return;
    set_string_len(entry, value.len);
    set_string(cache, entry, value);
}

void cache_string_update(struct cache *cache, int64_t id, struct bytes value)
{
    struct entry *entry = find_id(cache, id);

    if (entry == NULL || entry->type != VALUE_STRING)
        return;
    set_string_len(entry, value.len);
    if (string_of(cache, entry) != NULL)
        set_string(cache, entry, value);
}

bool cache_string_has_len(const struct cache *cache, int64_t id, size_t len)
{
    const struct entry *entry = find_id(cache, id);
    return entry != NULL && len > 0 && entry->string_len == len;
}

static bool get_string(const struct cache *cache, const struct entry *entry, struct bytes *value)
{
    const struct string *string = entry == NULL ? NULL : string_of(cache, entry);

    if (string == NULL)
        return false;
    *value = (struct bytes){string->bytes, string->len};
    return true;
}

bool cache_string(const struct cache *cache, struct bytes name, struct bytes *value)
{
    return get_string(cache, find(cache, name, hash_of(cache, name)), value);
}

bool cache_string_of_id(const struct cache *cache, int64_t id, struct bytes *value)
{
    return get_string(cache, find_id(cache, id), value);
}

/* Fields. An entry that is forgotten takes its mark with it, and so all fields of the row. */

/* The entry of a hash, or NULL. */
static struct entry *find_hash(const struct cache *cache, int64_t id)
{
    struct entry *entry = find_id(cache, id);
    return entry != NULL && entry->type == VALUE_HASH ? entry : NULL;
}

void cache_field_put(struct cache *cache, int64_t id, struct bytes field, struct bytes value)
{
    struct entry *entry = find_hash(cache, id);

    if (entry == NULL)
        return;
    if (entry->inside == 0 && (entry->inside = fields_mark(cache->fields)) == 0) {
        cache_clear(cache); /* all marks are free then */
        return;
    }
    fields_put(cache->fields, entry->inside, field, value);
    note(cache, entry);
}

void cache_field_update(struct cache *cache, int64_t id, struct bytes field, struct bytes value)
{
    struct bytes old;

    if (cache_field(cache, id, field, &old))
        cache_field_put(cache, id, field, value);
}

void cache_field_forget(struct cache *cache, int64_t id, struct bytes field)
{
    const struct entry *entry = find_hash(cache, id);

    if (entry != NULL && entry->inside != 0)
        fields_forget(cache->fields, entry->inside, field);
}

bool cache_field(const struct cache *cache, int64_t id, struct bytes field, struct bytes *value)
{
    const struct entry *entry = find_hash(cache, id);
    return entry != NULL && entry->inside != 0 &&
           fields_find(cache->fields, entry->inside, field, value);
}

void cache_forget(struct cache *cache, int64_t id)
{
    struct entry *entry = find_id(cache, id);

    leases_forget(cache->leases, id);
    if (entry != NULL)
        forget(cache, entry);
}

void cache_clear(struct cache *cache)
{
    for (size_t i = 0; i < cache->used && cache->names > 0; i++)
        if (cache->entries[i].id != 0)
            drop_name(cache, &cache->entries[i]);
    cache->used = cache->count = 0;
    cache->free = 0;
    start_chains(cache);
    fields_clear(cache->fields);
    forget_apart(cache);
}

size_t cache_savepoint(const struct cache *cache)
{
    return cache->journal_count;
}

void cache_undo(struct cache *cache, size_t savepoint)
{
    check(savepoint <= cache->journal_count);
    while (cache->journal_count > savepoint) {
        uint32_t place = cache->journal[--cache->journal_count];
        if (place == APART)
            forget_apart(cache);
        else if (place < cache->used) /* not cleared since */
            forget(cache, &cache->entries[place]);
    }
}

void cache_commit(struct cache *cache)
{
    cache->journal_count = 0;
}

/* Looking ahead. An operation passes four stations, some operations before it runs: its name, the
 * chain of the name's hash, the entry in that chain, and what the entry leads to. Each needs what
 * the one before has fetched. */

/* Three steps towards what a look-up of the name will need, each of which asks memory for what the
 * next one reads. Any hash may be given to the last two, at any time. */

static uint32_t fetch_chain(const struct cache *cache, struct bytes name)
{
    uint32_t hash = hash_of(cache, name);

    __builtin_prefetch(chain_of(cache, hash));
    return hash;
}

static void fetch_entry(const struct cache *cache, uint32_t hash)
{
    __builtin_prefetch(entry_at(cache, *chain_of(cache, hash)));
}

static void fetch_rest(const struct cache *cache, uint32_t hash)
{
    const struct entry *entry = entry_at(cache, *chain_of(cache, hash));

    if (entry == NULL)
        return;
    if (entry->hash != hash) { /* not all chains are short */
        __builtin_prefetch(entry_at(cache, entry->next));
        return;
    }
    __builtin_prefetch(&cache->by_id[entry->id & ((int64_t)cache->max - 1)]);
    if (entry->type == VALUE_STRING && entry->inside != 0)
        __builtin_prefetch(&cache->strings[entry->inside - 1]);
}

/* How many operations before its own: far enough for memory to answer, and all within the ring. */
enum { AT_NAME = CACHE_AHEAD_SLOTS - 1, AT_CHAIN = 11, AT_ENTRY = 7, AT_REST = 3 };

static void take_name(struct cache_ahead *ahead, size_t slot)
{
    ahead->names[slot] = (struct bytes){NULL, 0};
    if (ahead->next == ahead->end)
        return;
    ahead->names[slot] = list_entry(ahead->next, struct store_op, link)->about;
    ahead->next = ahead->next->next;
    __builtin_prefetch(ahead->next);
    __builtin_prefetch(ahead->names[slot].data);
}

void cache_ahead_step(struct cache_ahead *ahead)
{
    size_t at = ahead->at++, slot = (at + AT_CHAIN) % CACHE_AHEAD_SLOTS;

    if (ahead->cache == NULL)
        return;
    take_name(ahead, (at + AT_NAME) % CACHE_AHEAD_SLOTS);
    if (ahead->names[slot].len > 0)
        ahead->hashes[slot] = fetch_chain(ahead->cache, ahead->names[slot]);
    fetch_entry(ahead->cache, ahead->hashes[(at + AT_ENTRY) % CACHE_AHEAD_SLOTS]);
    fetch_rest(ahead->cache, ahead->hashes[(at + AT_REST) % CACHE_AHEAD_SLOTS]);
}

void cache_ahead_start(struct cache_ahead *ahead, const struct cache *cache,
                       const struct list *from, const struct list *end)
{
    bool several = from != end && from->next != end;

    *ahead = (struct cache_ahead){.cache = several ? cache : NULL, .next = from, .end = end};
    for (size_t i = 0; several && i < AT_NAME; i++)
        cache_ahead_step(ahead);
}
