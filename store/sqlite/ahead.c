/* SPDX-License-Identifier: Apache-2.0 */
/* An operation passes four stations, some operations before it runs: its name, the chain of the
 * name's hash, the entry in that chain, and what the entry leads to. Each needs what the one before
 * has fetched. */
#include "store/sqlite/ahead.h"

/* How many operations before its own: far enough for memory to answer, and all within the ring. */
enum { AT_NAME = AHEAD_SLOTS - 1, AT_CHAIN = 11, AT_ENTRY = 7, AT_REST = 3 };

static void take_name(struct ahead *ahead, size_t slot)
{
    ahead->names[slot] = (struct bytes){NULL, 0};
    if (ahead->next == ahead->end)
        return;
    ahead->names[slot] = list_entry(ahead->next, struct store_op, link)->about;
    ahead->next = ahead->next->next;
    __builtin_prefetch(ahead->next);
    __builtin_prefetch(ahead->names[slot].data);
}

void ahead_step(struct ahead *ahead)
{
    size_t at = ahead->at++, slot = (at + AT_CHAIN) % AHEAD_SLOTS;

    if (ahead->cache == NULL)
        return;
    take_name(ahead, (at + AT_NAME) % AHEAD_SLOTS);
    if (ahead->names[slot].len > 0)
        ahead->hashes[slot] = cache_ahead_chain(ahead->cache, ahead->names[slot]);
    cache_ahead_entry(ahead->cache, ahead->hashes[(at + AT_ENTRY) % AHEAD_SLOTS]);
    cache_ahead_rest(ahead->cache, ahead->hashes[(at + AT_REST) % AHEAD_SLOTS]);
}

void ahead_start(struct ahead *ahead, const struct cache *cache, const struct list *from,
                 const struct list *end)
{
    bool several = from != end && from->next != end;

    *ahead = (struct ahead){.cache = several ? cache : NULL, .next = from, .end = end};
    for (size_t i = 0; several && i < AT_NAME; i++)
        ahead_step(ahead);
}
