/* SPDX-License-Identifier: Apache-2.0 */
/* A table of resources; each has its grants and its refusals, the newest first. All grants, and all
 * refusals, are in one more list, the oldest first, from which entries are freed to make room. */
#include "proxy/engine/history/history.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/json.h"
#include "fence/base/mem.h"
#include "fence/base/table.h"

enum { MINUTES = 60, MINUTE_MS = 60000, RECENT_BITS = 14, CLOCKS_APART_MS = 10, WALK_MAX = 4096 };

struct history_resource {
    struct table_node node;
    struct history_grant *grants;     /* the newest */
    struct history_refusal *refusals; /* the newest */
    size_t name_len;
    char name[];
};

/* Entries of one kind. */
struct shelf {
    struct list all;
    size_t count, bytes;
};

struct history {
    const struct clock *clock;
    size_t entries_max;
    struct table resources;
    struct shelf grants, refusals;
    struct history_grant *recent[1 << RECENT_BITS]; /* a cache, for writes: see place_of */
    uint64_t refusals_total;
    uint64_t refused[MINUTES]; /* in each of the last minutes; minute m is at m % MINUTES */
    int64_t minute;            /* the newest one that is counted there */
};

static struct history_resource *of_node(const struct table_node *node)
{
    return list_entry(node, struct history_resource, node);
}

static struct bytes name_of(const struct history_resource *resource)
{
    return (struct bytes){resource->name, resource->name_len};
}

static struct bytes name_of_node(const struct table_node *node)
{
    return name_of(of_node(node));
}

struct history *history_new(size_t entries_max, const struct clock *clock)
{
    struct history *history = mem_zalloc(sizeof *history);

    history->clock = clock;
    history->entries_max = entries_max > 0 ? entries_max : 1;
    history->minute = clock_now_ms(clock) / MINUTE_MS;
    table_init(&history->resources, name_of_node);
    list_init(&history->grants.all);
    list_init(&history->refusals.all);
    return history;
}

static struct history_resource *find(const struct history *history, struct bytes name)
{
    struct table_node *node = table_find(&history->resources, name);
    return node == NULL ? NULL : of_node(node);
}

static struct history_resource *find_or_make(struct history *history, struct bytes name)
{
    struct history_resource *resource = find(history, name);

    if (resource == NULL) {
        resource = mem_zalloc(sizeof *resource + name.len);
        resource->name_len = name.len;
        if (name.len > 0)
            memcpy(resource->name, name.data, name.len);
        table_add(&history->resources, &resource->node);
    }
    return resource;
}

/* Finding a grant. */

/* The place in `recent` for a grant: a quick hash, of the end of the name, where names differ. */
static size_t place_of(struct bytes name, int64_t token)
{
    uint32_t end = (uint32_t)name.len;

    if (name.len >= sizeof end)
        memcpy(&end, name.data + name.len - sizeof end, sizeof end);
    return (size_t)(((end ^ (uint64_t)token << 32) * 0x9e3779b97f4a7c15ULL) >> (64 - RECENT_BITS));
}

static struct history_grant *look_up(const struct history *history, struct bytes name,
                                     int64_t token)
{
    struct history_resource *resource = find(history, name);
    struct history_grant *grant = resource == NULL ? NULL : resource->grants;

    /* Tokens rise, so a newer grant nearly always has the larger one. */
    for (int i = 0; grant != NULL && grant->token != token; i++)
        grant = grant->token < token || i == WALK_MAX ? NULL : grant->older;
    return grant;
}

struct history_grant *history_find(struct history *history, struct bytes name, int64_t token)
{
    struct history_grant **place = &history->recent[place_of(name, token)], *grant = *place;

    if (grant != NULL && grant->token == token && bytes_equal(name_of(grant->resource), name))
        return grant;
    grant = look_up(history, name, token);
    if (grant != NULL)
        *place = grant;
    return grant;
}

static void forget_recent(struct history *history, const struct history_grant *grant)
{
    struct history_grant **place =
        &history->recent[place_of(name_of(grant->resource), grant->token)];

    if (*place == grant)
        *place = NULL;
}

/* Making room. */

static void drop_resource(struct history *history, struct history_resource *resource)
{
    if (resource->grants != NULL || resource->refusals != NULL)
        return;
    table_remove(&history->resources, &resource->node);
    free(resource);
}

static void drop_grant(struct history *history, struct history_grant *grant)
{
    struct history_resource *resource = grant->resource;

    forget_recent(history, grant);
    if (grant->reference != NULL)
        *grant->reference = NULL;
    if (grant->newer != NULL)
        grant->newer->older = grant->older;
    else
        resource->grants = grant->older;
    if (grant->older != NULL)
        grant->older->newer = grant->newer;
    list_remove(&grant->of_all);
    history->grants.count--;
    history->grants.bytes -= grant->size;
    buf_free(&grant->reason);
    free(grant);
    drop_resource(history, resource);
}

static void drop_refusal(struct history *history, struct history_refusal *refusal)
{
    struct history_resource *resource = refusal->resource;

    if (refusal->newer != NULL)
        refusal->newer->older = refusal->older;
    else
        resource->refusals = refusal->older;
    if (refusal->older != NULL)
        refusal->older->newer = refusal->newer;
    list_remove(&refusal->of_all);
    history->refusals.count--;
    history->refusals.bytes -= refusal->size;
    free(refusal);
    drop_resource(history, resource);
}

static bool is_over(const struct history *history, const struct shelf *shelf)
{
    return shelf->count > history->entries_max ||
           shelf->bytes > history->entries_max * HISTORY_BYTES;
}

/* The newest one stays, whatever it takes. */
static void make_room(struct history *history)
{
    struct shelf *grants = &history->grants, *refusals = &history->refusals;

    while (grants->count > 1 && is_over(history, grants))
        drop_grant(history, list_entry(list_pop(&grants->all), struct history_grant, of_all));
    while (refusals->count > 1 && is_over(history, refusals))
        drop_refusal(history, list_entry(list_pop(&refusals->all), struct history_refusal, of_all));
}

void history_free(struct history *history)
{
    struct list *link;

    while ((link = list_pop(&history->grants.all)) != NULL)
        drop_grant(history, list_entry(link, struct history_grant, of_all));
    while ((link = list_pop(&history->refusals.all)) != NULL)
        drop_refusal(history, list_entry(link, struct history_refusal, of_all));
    /* What an entry took, it has given back: else the bound on all of them would drift. */
    check(history->grants.count == 0 && history->grants.bytes == 0);
    check(history->refusals.count == 0 && history->refusals.bytes == 0);
    table_free(&history->resources);
    free(history);
}

/* Adding. */

static struct bytes keep(char **at, struct bytes text)
{
    struct bytes kept = {*at, text.len};

    if (text.len > 0)
        memcpy(*at, text.data, text.len);
    *at += text.len;
    return kept;
}

static int64_t wall_ms(const struct history *history)
{
    return clock_wall_us(history->clock) / 1000;
}

/* `default`, the usual one, takes no room. */
static struct bytes keep_user(char **at, struct bytes user)
{
    static const struct bytes usual = BYTES_LITERAL("default");
    return bytes_equal(user, usual) ? usual : keep(at, user);
}

static struct history_grant *add_grant(struct history *history, struct bytes name, int64_t token,
                                       int64_t ttl_ms, struct bytes owner,
                                       struct history_client client)
{
    size_t size = sizeof(struct history_grant) + owner.len + client.user.len + client.name.len +
                  client.address.len;
    struct history_grant *grant = mem_zalloc(size);
    struct history_resource *resource = find_or_make(history, name);
    char *at = (char *)(grant + 1);

    grant->resource = resource;
    grant->token = token;
    grant->ttl_ms = ttl_ms;
    grant->granted_ms = wall_ms(history);
    grant->owner = keep(&at, owner);
    grant->user = keep_user(&at, client.user);
    grant->client = keep(&at, client.name);
    grant->address = keep(&at, client.address);
    grant->size = size + name.len;
    grant->older = resource->grants;
    if (grant->older != NULL)
        grant->older->newer = grant;
    resource->grants = grant;
    list_append(&history->grants.all, &grant->of_all);
    history->grants.count++;
    history->grants.bytes += grant->size;
    make_room(history);
    return grant;
}

void history_granted(struct history *history, struct bytes resource, int64_t token, int64_t ttl_ms,
                     int64_t until_clock_ms, struct bytes owner, struct history_client client,
                     struct history_grant **reference)
{
    *reference = add_grant(history, resource, token, ttl_ms, owner, client);
    (*reference)->until_clock_ms = until_clock_ms;
    (*reference)->reference = reference;
}

void history_renewed(struct history_grant *grant, int64_t until_clock_ms)
{
    if (grant != NULL)
        grant->until_clock_ms = until_clock_ms;
}

bool history_resumed(struct history *history, struct bytes resource, int64_t token,
                     int64_t until_clock_ms, struct history_grant **reference)
{
    struct history_grant *grant = history_find(history, resource, token);

    if (grant == NULL)
        return false;
    grant->end = HISTORY_RUNS;
    grant->ended_ms = grant->ended_clock_ms = 0;
    grant->until_clock_ms = until_clock_ms;
    grant->reference = reference;
    *reference = grant;
    history->grants.bytes -= grant->reason.len;
    grant->size -= grant->reason.len;
    buf_free(&grant->reason);
    return true;
}

enum history_end history_taken(const struct history *history, const struct history_grant *grant)
{
    bool is_over =
        grant != NULL && clock_now_ms(history->clock) >= grant->until_clock_ms - CLOCKS_APART_MS;
    return is_over ? HISTORY_EXPIRED : HISTORY_TAKEN;
}

void history_ended(struct history *history, struct history_grant *grant, enum history_end end,
                   struct bytes reason)
{
    if (grant == NULL)
        return;
    int64_t now_ms = clock_now_ms(history->clock);
    int64_t until_ms = grant->until_clock_ms;

    grant->end = end;
    grant->ended_clock_ms = end == HISTORY_EXPIRED && until_ms < now_ms ? until_ms : now_ms;
    grant->ended_ms = wall_ms(history) - (now_ms - grant->ended_clock_ms);
    if (grant->reference != NULL)
        *grant->reference = NULL;
    grant->reference = NULL;
    if (reason.len == 0)
        return;
    buf_append_bytes(&grant->reason, reason);
    grant->size += reason.len;
    history->grants.bytes += reason.len;
}

void history_given_back(struct history *history, struct bytes resource, int64_t token,
                        int64_t ttl_ms, struct bytes owner, struct history_client client)
{
    struct history_grant *grant = history_find(history, resource, token);

    if (grant == NULL)
        grant = add_grant(history, resource, token, ttl_ms, owner, client);
    history_ended(history, grant, HISTORY_GIVEN_BACK, (struct bytes){"", 0});
}

void history_let_go(struct history_grant *grant)
{
    if (grant != NULL)
        grant->reference = NULL;
}

void history_wrote(struct history_grant *grant, uint32_t writes)
{
    if (grant != NULL)
        grant->writes += writes;
}

/* Return this minute's count, and clear those of the minutes that have passed since the last call.
 */
static uint64_t *this_minute(struct history *history)
{
    int64_t minute = clock_now_ms(history->clock) / MINUTE_MS;
    int64_t from = minute - history->minute < MINUTES ? history->minute + 1 : minute - MINUTES + 1;

    for (int64_t each = from; each <= minute; each++)
        history->refused[each % MINUTES] = 0;
    history->minute = minute;
    return &history->refused[minute % MINUTES];
}

/* The grant runs as far as is known here. Where its time is over and another daemon has granted the
 * resource since, it has expired. */
static void judge_unnoticed(struct history_refusal *refusal, const struct history_grant *grant,
                            int64_t now_ms)
{
    if (refusal->newest <= grant->token || now_ms < grant->until_clock_ms)
        return;
    refusal->ended = HISTORY_EXPIRED;
    refusal->late_ms = now_ms - grant->until_clock_ms;
}

/* Fill in what the history knows of the token that was presented, and of the newest one. */
static void judge(const struct history *history, struct history_refusal *refusal,
                  struct history_grant *grant)
{
    refusal->late_ms = -1;
    if (grant == NULL)
        return;
    grant->refused++;
    refusal->granted_ms = grant->granted_ms;
    refusal->ended = grant->end;
    if (grant->end != HISTORY_RUNS)
        refusal->late_ms = clock_now_ms(history->clock) - grant->ended_clock_ms;
    else
        judge_unnoticed(refusal, grant, clock_now_ms(history->clock));
}

const struct history_refusal *history_refused(struct history *history, struct bytes name,
                                              int64_t token, int64_t newest, enum stk_error code,
                                              const char *command, struct history_client client)
{
    struct history_grant *grant = token == 0 ? NULL : history_find(history, name, token);
    const struct history_grant *successor =
        newest == 0 || newest == token ? NULL : history_find(history, name, newest);
    struct bytes owner = successor == NULL ? (struct bytes){"", 0} : successor->owner;
    struct bytes address = successor == NULL ? (struct bytes){"", 0} : successor->address;
    size_t size = sizeof(struct history_refusal) + client.user.len + client.name.len +
                  client.address.len + owner.len + address.len;
    struct history_refusal *refusal = mem_zalloc(size);
    struct history_resource *resource = find_or_make(history, name);
    char *at = (char *)(refusal + 1);

    refusal->resource = resource;
    refusal->time_ms = wall_ms(history);
    refusal->token = token;
    refusal->newest = newest;
    refusal->code = code;
    refusal->command = command;
    refusal->user = keep_user(&at, client.user);
    refusal->client = keep(&at, client.name);
    refusal->address = keep(&at, client.address);
    refusal->newest_owner = keep(&at, owner);
    refusal->newest_address = keep(&at, address);
    refusal->size = size + name.len;
    judge(history, refusal, grant);
    ++*this_minute(history);
    history->refusals_total++;
    refusal->older = resource->refusals;
    if (refusal->older != NULL)
        refusal->older->newer = refusal;
    resource->refusals = refusal;
    list_append(&history->refusals.all, &refusal->of_all);
    history->refusals.count++;
    history->refusals.bytes += refusal->size;
    make_room(history);
    return refusal;
}

/* Looking. */

const struct history_grant *history_grants(const struct history *history, struct bytes name)
{
    const struct history_resource *resource = find(history, name);
    return resource == NULL ? NULL : resource->grants;
}

const struct history_refusal *history_refusals_of(const struct history *history, struct bytes name)
{
    const struct history_resource *resource = find(history, name);
    return resource == NULL ? NULL : resource->refusals;
}

static const struct history_refusal *refusal_at(const struct history *history,
                                                const struct list *link)
{
    return link == &history->refusals.all ? NULL : list_entry(link, struct history_refusal, of_all);
}

const struct history_refusal *history_refusals(const struct history *history)
{
    return refusal_at(history, history->refusals.all.prev);
}

const struct history_refusal *history_refusal_before(const struct history *history,
                                                     const struct history_refusal *refusal)
{
    return refusal_at(history, refusal->of_all.prev);
}

const struct history_refusal *history_refusal_after(const struct history *history,
                                                    const struct history_refusal *refusal)
{
    return refusal_at(history, refusal->of_all.next);
}

uint64_t history_refusals_total(const struct history *history)
{
    return history->refusals_total;
}

struct bytes history_grant_name(const struct history_grant *grant)
{
    return name_of(grant->resource);
}

struct bytes history_refusal_name(const struct history_refusal *refusal)
{
    return name_of(refusal->resource);
}

size_t history_grants_count(const struct history *history)
{
    return history->grants.count;
}

size_t history_refusals_count(const struct history *history)
{
    return history->refusals.count;
}

size_t history_max(const struct history *history)
{
    return history->entries_max;
}

uint64_t history_refused_hour(struct history *history)
{
    uint64_t sum = 0;

    (void)this_minute(history);
    for (size_t i = 0; i < MINUTES; i++)
        sum += history->refused[i];
    return sum;
}

/* Showing. */

const char *history_end_name(enum history_end end)
{
    static const char *const names[] = {
        [HISTORY_RUNS] = NULL,         [HISTORY_RELEASED] = "released",
        [HISTORY_EXPIRED] = "expired", [HISTORY_REVOKED] = "revoked",
        [HISTORY_TAKEN] = "taken",     [HISTORY_GIVEN_BACK] = "given back",
    };
    return names[end];
}

static void json_text(struct buf *json, const char *name, struct bytes text)
{
    buf_printf(json, ",\"%s\":", name);
    json_string(json, text);
}

static void json_text_or_null(struct buf *json, const char *name, struct bytes text)
{
    if (text.len > 0)
        json_text(json, name, text);
    else
        buf_printf(json, ",\"%s\":null", name);
}

/* `none` is null. */
static void json_int(struct buf *json, const char *name, int64_t value, int64_t none)
{
    if (value == none)
        buf_printf(json, ",\"%s\":null", name);
    else
        buf_printf(json, ",\"%s\":%lld", name, (long long)value);
}

static void json_end(struct buf *json, const char *name, enum history_end end)
{
    const char *text = history_end_name(end);
    json_text_or_null(json, name, text == NULL ? (struct bytes){"", 0} : bytes_of(text));
}

void history_grant_json(struct buf *json, const struct history_grant *grant)
{
    buf_printf(json, "\"token\":%lld", (long long)grant->token);
    json_text(json, "owner", grant->owner);
    json_text(json, "user", grant->user);
    json_text(json, "client", grant->client);
    json_text(json, "address", grant->address);
    buf_printf(json, ",\"granted_ms\":%lld,\"ttl_ms\":%lld", (long long)grant->granted_ms,
               (long long)grant->ttl_ms);
    json_int(json, "ended_ms", grant->end == HISTORY_RUNS ? 0 : grant->ended_ms, 0);
    json_end(json, "end", grant->end);
    json_text_or_null(json, "reason", buf_bytes(&grant->reason));
    buf_printf(json, ",\"writes\":%lu,\"refused\":%lu", (unsigned long)grant->writes,
               (unsigned long)grant->refused);
}

void history_refusal_json(struct buf *json, const struct history_refusal *refusal)
{
    buf_printf(json, "\"time_ms\":%lld,\"resource\":", (long long)refusal->time_ms);
    json_string(json, name_of(refusal->resource));
    json_int(json, "token", refusal->token, 0);
    buf_printf(json, ",\"code\":\"%s\"", stk_error_code(refusal->code));
    json_text(json, "command", bytes_of(refusal->command));
    json_text(json, "user", refusal->user);
    json_text(json, "client", refusal->client);
    json_text(json, "address", refusal->address);
    json_int(json, "granted_ms", refusal->granted_ms, 0);
    json_int(json, "late_ms", refusal->late_ms, -1);
    json_end(json, "ended", refusal->ended);
    json_int(json, "newest", refusal->newest, 0);
    json_text_or_null(json, "newest_owner", refusal->newest_owner);
    json_text_or_null(json, "newest_address", refusal->newest_address);
}
