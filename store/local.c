/* SPDX-License-Identifier: Apache-2.0 */
/* `local:`: the lease provider for one daemon and no lease service.
 *
 * A table of leases: those it granted in this run, until their time is over, and those of other
 * daemons on the same file that it has seen in the store's memory. A lease of an earlier run needs
 * no entry: it is held until its TTL has passed since this provider was made. (Daemons are also
 * processes that open the file by themselves, through the library.)
 *
 * - An entry is the truth as long as it is not older than what the store remembers: a grant on its
 *   way to the store is here first; a grant of another daemon is there first, and so are its
 *   renewals. Where two minted the same token at once, the store has the word whose it is.
 * - A lease that the store says is retired is over, whoever's it was and whichever daemon ended it.
 * - Its own leases leave the table when released or, a few with each call, when over, so memory
 *   follows the number of held leases. Another daemon's lease stays when it is over: forgotten, it
 *   would be held anew at the next look. A newer grant replaces it.
 * - Nothing fails here: there is no I/O. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fence/base/check.h"
#include "fence/base/heap.h"
#include "fence/base/mem.h"
#include "fence/provider_impl.h"
#include "fence/token.h"
#include "store/open.h"

#define BUCKETS_MIN     64 /* a power of two */
#define SWEEPS_PER_CALL 4

struct entry {
    struct entry *next;     /* in its bucket */
    struct heap_node until; /* in the heap where it is our own */
    int64_t token;
    int64_t changed_ms;          /* another daemon's: the row's, when it was looked at */
    char nonce[LEASE_NONCE_LEN]; /* without a zero at the end */
    uint16_t name_len;
    char name[];
};

struct local {
    struct lease_provider base;
    const struct clock *clock;
    int64_t start_ms;
    struct entry **buckets;
    size_t buckets_count, entries_count;
    struct heap ending; /* of entries, by the end of their time */
    uint64_t calls;
};

/* The table. */

static struct entry **bucket_of(const struct local *local, const char *name, size_t len)
{
    return &local->buckets[XXH64(name, len, (uint64_t)(uintptr_t)local) &
                           (local->buckets_count - 1)];
}

static void resize(struct local *local, size_t count)
{
    struct entry **old = local->buckets;
    size_t old_count = local->buckets_count;

    local->buckets = mem_zalloc(count * sizeof *local->buckets);
    local->buckets_count = count;
    for (size_t i = 0; i < old_count; i++) {
        struct entry *next;
        for (struct entry *entry = old[i]; entry != NULL; entry = next) {
            struct entry **bucket = bucket_of(local, entry->name, entry->name_len);
            next = entry->next;
            entry->next = *bucket;
            *bucket = entry;
        }
    }
    free(old);
}

static struct entry *find(const struct local *local, struct bytes name)
{
    struct entry *entry = *bucket_of(local, name.data, name.len);

    while (entry != NULL && !bytes_equal((struct bytes){entry->name, entry->name_len}, name))
        entry = entry->next;
    return entry;
}

static struct entry *add(struct local *local, struct bytes name)
{
    check(name.len <= UINT16_MAX);
    if (local->entries_count == local->buckets_count)
        resize(local, local->buckets_count * 2);
    struct entry *entry = mem_zalloc(offsetof(struct entry, name) + name.len);
    struct entry **bucket = bucket_of(local, name.data, name.len);
    memcpy(entry->name, name.data, name.len);
    entry->name_len = (uint16_t)name.len;
    entry->next = *bucket;
    *bucket = entry;
    local->entries_count++;
    return entry;
}

static void forget(struct local *local, struct entry *entry)
{
    struct entry **at = bucket_of(local, entry->name, entry->name_len);

    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    heap_remove(&local->ending, &entry->until);
    free(entry);
    local->entries_count--;
    if (local->buckets_count > BUCKETS_MIN && local->entries_count < local->buckets_count / 8)
        resize(local, local->buckets_count / 2);
}

static void sweep(struct local *local, int64_t now_ms)
{
    for (int i = 0; i < SWEEPS_PER_CALL; i++) {
        struct heap_node *first = heap_first(&local->ending);
        if (first == NULL || first->at_ms > now_ms)
            return;
        forget(local, list_entry(first, struct entry, until));
    }
}

/* Who holds the resource of this call now? */

struct holder {
    struct entry *entry; /* NULL: none yet */
    int64_t token;       /* 0: nobody */
    const char *nonce;   /* LEASE_NONCE_LEN bytes */
    int64_t left_ms;
};

static bool is_foreign(const struct entry *entry)
{
    return entry->until.place == 0;
}

/* Does the store know better than the entry? */
static bool is_news(const struct entry *entry, const struct lease_memory *memory)
{
    if (!memory->live)
        return false;
    if (entry == NULL || memory->token > entry->token)
        return true;
    return memory->token == entry->token && !memory->this_run &&
           (memcmp(entry->nonce, memory->nonce, LEASE_NONCE_LEN) != 0 ||
            (is_foreign(entry) && memory->changed_ms != entry->changed_ms));
}

/* Another daemon's lease counts from the moment it is first seen, and so does each renewal. */
static struct entry *note_foreign(struct local *local, const struct lease_call *call,
                                  struct entry *entry, int64_t now_ms)
{
    const struct lease_memory *memory = &call->memory;

    if (entry == NULL)
        entry = add(local, call->resource);
    heap_remove(&local->ending, &entry->until);
    entry->until.at_ms = now_ms + memory->ttl_ms;
    entry->token = memory->token;
    entry->changed_ms = memory->changed_ms;
    memcpy(entry->nonce, memory->nonce, sizeof entry->nonce);
    return entry;
}

static struct holder holder_of(struct local *local, const struct lease_call *call, int64_t now_ms)
{
    const struct lease_memory *memory = &call->memory;
    struct entry *entry = find(local, call->resource);
    bool news = is_news(entry, memory);
    struct holder holder = {0};

    if (news && memory->earlier_run) {
        holder.token = memory->token;
        holder.nonce = memory->nonce;
        holder.left_ms = local->start_ms + memory->ttl_ms - now_ms;
    } else {
        if (news && !memory->this_run)
            entry = note_foreign(local, call, entry, now_ms);
        /* What the store says is retired is over, whichever daemon ended it. */
        bool retired = entry != NULL && entry->token == memory->token && !memory->live;
        if (entry != NULL && entry->token >= memory->token && !retired) {
            holder.token = entry->token;
            holder.nonce = entry->nonce;
            holder.left_ms = entry->until.at_ms - now_ms;
        }
    }
    holder.entry = entry;
    if (holder.left_ms <= 0)
        holder.token = 0;
    return holder;
}

/* The verbs. */

/* The lease of the call's owner lives from now on. Another daemon's stays one, renewed or not. */
static void hold(struct local *local, struct entry *entry, const struct lease_call *call,
                 int64_t token, int64_t now_ms)
{
    bool foreign = entry != NULL && is_foreign(entry) && entry->token == token;

    if (entry == NULL)
        entry = add(local, call->resource);
    entry->token = token;
    memcpy(entry->nonce, call->nonce, sizeof entry->nonce);
    if (foreign)
        entry->until.at_ms = now_ms + call->ttl_ms;
    else
        heap_set(&local->ending, &entry->until, now_ms + call->ttl_ms);
}

static bool grant(struct local *local, struct lease_call *call, const struct holder *holder,
                  bool mine, int64_t now_ms)
{
    if (mine && holder->token != call->void_token) {
        hold(local, holder->entry, call, holder->token, now_ms);
        return lease_answer(call, LEASE_OWN, holder->token, call->ttl_ms);
    }
    if (holder->token != 0 && !mine)
        return lease_answer(call, LEASE_HELD, holder->token, holder->left_ms);
    if (call->reentry_only)
        return lease_answer(call, LEASE_FREE, 0, 0);
    int64_t token = token_next(holder->entry == NULL ? 0 : holder->entry->token, call->floor);
    if (token == 0)
        return lease_answer_down(call, "the tokens of this resource are used up");
    hold(local, holder->entry, call, token, now_ms);
    return lease_answer(call, LEASE_GRANTED, token, call->ttl_ms);
}

static bool answer(struct local *local, struct lease_call *call, int64_t now_ms)
{
    struct holder holder = holder_of(local, call, now_ms);
    bool mine = holder.token != 0 && strncmp(holder.nonce, call->nonce, LEASE_NONCE_LEN) == 0;
    bool named = mine && holder.token == call->token;

    if (call->verb == LEASE_GRANT)
        return grant(local, call, &holder, mine, now_ms);
    if (call->verb == LEASE_RENEW && (named || holder.token == 0)) {
        hold(local, holder.entry, call, call->token, now_ms);
        return lease_answer(call, LEASE_GRANTED, call->token, call->ttl_ms);
    }
    if (call->verb == LEASE_RELEASE && (named || (mine && call->token == 0))) {
        if (holder.entry != NULL)
            forget(local, holder.entry);
        return lease_answer(call, LEASE_FREE, 0, 0);
    }
    if (holder.token == 0)
        return lease_answer(call, LEASE_FREE, 0, 0);
    return lease_answer(call, LEASE_HELD, holder.token, holder.left_ms);
}

static bool local_ask(struct lease_provider *base, struct lease_call *call)
{
    struct local *local = (struct local *)(void *)base;
    int64_t now_ms = clock_now_ms(local->clock);

    local->calls++;
    answer(local, call, now_ms);
    sweep(local, now_ms); /* behind it: the entry just asked for may be over and still of use */
    return true;
}

static struct lease_health local_health(const struct lease_provider *base)
{
    const struct local *local = (const struct local *)(const void *)base;
    return (struct lease_health){.up = true, .detail = "local: ready", .calls = local->calls};
}

static void local_close(struct lease_provider *base, void (*closed)(void *context), void *context)
{
    struct local *local = (struct local *)(void *)base;

    for (size_t i = 0; i < local->buckets_count; i++) {
        struct entry *next;
        for (struct entry *entry = local->buckets[i]; entry != NULL; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(local->buckets);
    heap_free(&local->ending);
    free(local);
    closed(context);
}

static const struct lease_provider_impl local_impl = {
    .name = "local",
    .needs_memory = true,
    .ask = local_ask,
    .health = local_health,
    .close = local_close,
};

struct lease_provider *lease_local_new(const struct clock *clock)
{
    struct local *local = mem_zalloc(sizeof *local);

    local->base.impl = &local_impl;
    local->clock = clock;
    local->start_ms = clock_now_ms(clock);
    local->buckets = mem_zalloc(BUCKETS_MIN * sizeof *local->buckets);
    local->buckets_count = BUCKETS_MIN;
    return &local->base;
}
