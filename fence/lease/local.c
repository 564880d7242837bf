/* SPDX-License-Identifier: Apache-2.0 */
/* `local:`: the lease provider where there is no lease service.
 *
 * It keeps a table of leases: those that it granted in this run, until their time is over, and
 * those of other daemons on the same file, which it found recorded in the store. A lease of an
 * earlier run needs no entry: it is held until its TTL has passed since this provider was made.
 * (Daemons are also processes that open the file by themselves, through the library.)
 *
 * - An entry counts as long as the store has nothing newer. A grant on its way to the store is here
 *   first; another daemon's grants and renewals are there first. Where two daemons minted the same
 *   token at once, the store decides whose it is.
 * - A lease that the store says is retired is over, whoever's it was and whichever daemon ended it.
 * - Its own leases leave the table when released or, a few with each call, when over, so memory
 *   follows the number of held leases. Another daemon's lease stays when it is over: forgotten, it
 *   would be held anew at the next look. A newer grant replaces it.
 * - Nothing fails here: there is no I/O. */
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/heap.h"
#include "fence/base/mem.h"
#include "fence/base/table.h"
#include "fence/lease/open.h"
#include "fence/lease/provider_impl.h"
#include "fence/token.h"

#define SWEEPS_PER_CALL 4

struct entry {
    struct table_node node;
    struct heap_node until; /* in the heap where it is our own */
    int64_t token;
    int64_t change;              /* another daemon's: the row's, when it was looked at */
    char nonce[LEASE_NONCE_LEN]; /* without a zero at the end */
    uint16_t name_len;
    char name[];
};

struct local {
    struct lease_provider base;
    const struct clock *clock;
    int64_t start_ms;
    struct table entries;
    struct heap ending; /* of entries, by the end of their time */
};

/* The table. */

static struct entry *of_node(const struct table_node *node)
{
    return list_entry(node, struct entry, node);
}

static struct bytes name_of(const struct table_node *node)
{
    const struct entry *entry = of_node(node);
    return (struct bytes){entry->name, entry->name_len};
}

static struct entry *find(const struct local *local, struct bytes name)
{
    struct table_node *node = table_find(&local->entries, name);
    return node == NULL ? NULL : of_node(node);
}

static struct entry *add(struct local *local, struct bytes name)
{
    check(name.len <= UINT16_MAX);
    struct entry *entry = mem_zalloc(offsetof(struct entry, name) + name.len);
    memcpy(entry->name, name.data, name.len);
    entry->name_len = (uint16_t)name.len;
    table_add(&local->entries, &entry->node);
    return entry;
}

static void forget(struct local *local, struct entry *entry)
{
    table_remove(&local->entries, &entry->node);
    heap_remove(&local->ending, &entry->until);
    free(entry);
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
static bool is_news(const struct entry *entry, const struct lease_record *record, int64_t now_ms)
{
    if (!record->live)
        return false;
    if (entry == NULL || record->token > entry->token)
        return true;
    if (record->token != entry->token || record->this_opening)
        return false;
    if (memcmp(entry->nonce, record->nonce, LEASE_NONCE_LEN) != 0)
        return true;
    /* One of its own that is over here was renewed by another daemon, as the row has changed hands.
     * Before that, this one may have renewed it since, and be about to write that down. */
    return is_foreign(entry) ? record->change != entry->change : entry->until.at_ms <= now_ms;
}

/* Note another daemon's lease. Its time, and that of each renewal, counts from when it is first
 * seen here, less its age where the store knows that. */
static struct entry *note_foreign(struct local *local, const struct lease_call *call,
                                  struct entry *entry, int64_t now_ms)
{
    const struct lease_record *record = &call->record;

    if (entry == NULL)
        entry = add(local, call->resource);
    heap_remove(&local->ending, &entry->until);
    entry->until.at_ms = now_ms + record->ttl_ms - record->age_ms;
    entry->token = record->token;
    entry->change = record->change;
    memcpy(entry->nonce, record->nonce, sizeof entry->nonce);
    return entry;
}

static struct holder holder_of(struct local *local, const struct lease_call *call, int64_t now_ms)
{
    const struct lease_record *record = &call->record;
    struct entry *entry = find(local, call->resource);
    bool news = is_news(entry, record, now_ms);
    struct holder holder = {0};

    if (news && record->earlier_opening) {
        holder.token = record->token;
        holder.nonce = record->nonce;
        holder.left_ms = local->start_ms + record->ttl_ms - now_ms;
    } else {
        if (news && !record->this_opening)
            entry = note_foreign(local, call, entry, now_ms);
        /* What the store says is retired is over, whichever daemon ended it. */
        bool retired = entry != NULL && entry->token == record->token && !record->live;
        if (entry != NULL && entry->token >= record->token && !retired) {
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

/* Have the lease of the call's owner live from now on. Another daemon's stays marked as such. */
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
    /* Its own memory: nobody else can have written to it. */
    int64_t token =
        token_next(holder->entry == NULL ? 0 : holder->entry->token, call->floor, TOKEN_MAX);
    if (token == 0)
        return lease_answer_down(call, "the tokens of this resource are used up");
    hold(local, holder->entry, call, token, now_ms);
    return lease_answer(call, LEASE_GRANTED, token, call->ttl_ms);
}

/* Has the store lost the holder's grant, by a failover without synchronous standbys? Then its floor
 * has passed it, and it does not know it. A grant on its way there is above the floor, or refused.
 */
static bool is_lost(const struct lease_call *call, const struct holder *holder)
{
    const struct lease_record *record = &call->record;

    return holder->token <= record->floor && !(record->live && record->token == holder->token);
}

static bool answer(struct local *local, struct lease_call *call, int64_t now_ms)
{
    struct holder holder = holder_of(local, call, now_ms);
    if (is_lost(call, &holder))
        holder.token = 0;
    bool mine = holder.token != 0 && strncmp(holder.nonce, call->nonce, LEASE_NONCE_LEN) == 0;
    bool named = mine && holder.token == call->token;

    if (call->verb == LEASE_GRANT)
        return grant(local, call, &holder, mine, now_ms);
    if ((call->verb == LEASE_RENEW || call->verb == LEASE_INHERIT) &&
        (named || holder.token == 0)) {
        hold(local, holder.entry, call, call->token, now_ms);
        return lease_answer(call, LEASE_GRANTED, call->token, call->ttl_ms);
    }
    if (call->verb == LEASE_RELEASE && named) {
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

    answer(local, call, now_ms);
    sweep(local, now_ms); /* afterwards, for the answer may need an entry that is over */
    return true;
}

static void local_health(const struct lease_provider *base, struct lease_health *health)
{
    (void)base;
    health->up = true;
    text_print(health->detail, sizeof health->detail, "local: ready");
}

static void free_entry(struct table_node *node)
{
    free(of_node(node));
}

static void local_close(struct lease_provider *base)
{
    struct local *local = (struct local *)(void *)base;

    table_drain(&local->entries, free_entry);
    table_free(&local->entries);
    heap_free(&local->ending);
    lease_provider_closed(base);
}

static const struct lease_provider_impl local_impl = {
    .name = "local",
    .relies_on_store = true,
    .own_clock = true,
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
    table_init(&local->entries, name_of);
    return &local->base;
}
