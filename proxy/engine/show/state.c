/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's state, which the page shows at its top and each second again; and refusals. */
#include "fence/base/glob.h"
#include "fence/base/json.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/show/lease_json.h"
#include "proxy/engine/show/show.h"

enum { WAITERS_LOOKED_AT_MAX = 1000 };

struct show_counts show_counts(const struct engine *engine)
{
    const struct engine_counters *counters = &engine->counters;

    return (struct show_counts){
        .grants = counters->leases_granted,
        .writes = counters->fenced_accepted,
        .refusals = counters->refused_stale + counters->refused_unknown + counters->refused_notoken,
        .changes = counters->leases_granted + counters->leases_reentered +
                   counters->leases_released + counters->leases_revoked + counters->leases_expired +
                   counters->leases_renewed + counters->leases_given_back + engine->leases_changes,
        .commits = store_stats(engine->options.store).commits_took,
    };
}

/* The one that has waited longest at this daemon; or NULL. */
static const struct waiter *longest_wait(const struct engine *engine)
{
    const struct list *at = engine->arrivals.next;

    for (int i = 0; i < WAITERS_LOOKED_AT_MAX && at != &engine->arrivals; i++, at = at->next) {
        const struct waiter *waiter = list_entry(at, struct waiter, in_engine);
        if (waiter_is_shown(waiter))
            return waiter;
    }
    return NULL;
}

static void append_quantile(struct buf *json, const char *name, const struct durations *durations,
                            double quantile)
{
    int64_t us = durations_quantile_us(durations, quantile);

    buf_append_text(json, name);
    if (us < 0)
        buf_append_text(json, "null");
    else
        buf_printf(json, "%lld", (long long)us);
}

static void append_store(struct engine *engine, const struct show_counts *earlier, struct buf *json)
{
    const struct store_stats store = store_stats(engine->options.store);
    bool lost = store_lost(engine->options.store);

    buf_printf(json, ",\"store\":{\"status\":\"%s\",\"reason\":",
               lost                           ? "lost"
               : store.state == STORE_FINE    ? "ok"
               : store.state == STORE_FAILING ? "failing"
                                              : "stopped");
    json_string(json, bytes_of(store.state == STORE_FINE ? "" : store.why));
    struct durations commits = durations_between(&earlier->commits, &store.commits_took);
    append_quantile(json, ",\"commit_p50_us\":", &commits, 0.5);
    append_quantile(json, ",\"commit_p99_us\":", &commits, 0.99);
    buf_printf(json, ",\"queue\":%zu}", store.writes_queued);
}

static void append_service(struct engine *engine, const char *uri, struct buf *json)
{
    const struct lease_health lease = lease_provider_health(engine->options.provider);

    buf_append_text(json, ",\"service\":{\"uri\":");
    json_string(json, bytes_of(uri));
    buf_printf(json, ",\"status\":\"%s\",\"reason\":", lease.up ? "up" : "down");
    json_string(json, bytes_of(lease.up ? "" : lease.detail));
    buf_append_text(json, "}");
}

static void append_longest_wait(struct engine *engine, struct reader reader, struct buf *json)
{
    const struct waiter *longest = longest_wait(engine);

    if (longest == NULL) {
        buf_append_text(json, ",\"longest_wait_ms\":null,\"longest_wait_resource\":null");
        return;
    }
    buf_printf(json, ",\"longest_wait_ms\":%lld,\"longest_wait_resource\":",
               (long long)(engine_now_ms(engine) - longest->joined_ms));
    const struct bytes resource = longest->events->on_shown(longest).resource;
    if (reader_may(reader, resource))
        json_string(json, resource);
    else
        buf_append_text(json, "null");
}

bool show_ready(struct engine *engine, struct buf *why)
{
    return conditions_tell(engine, why);
}

static void append_trouble(void *context, const struct condition *condition,
                           const struct trouble *trouble)
{
    struct buf *json = context;

    buf_printf(json, "%s{\"name\":\"%s\",\"stops_grants\":%s,\"text\":",
               json->data[json->len - 1] == '[' ? "" : ",", condition->name,
               condition->stops_grants ? "true" : "false");
    json_string(json, bytes_of(trouble->text));
    buf_append_text(json, ",\"reason\":");
    json_string(json, bytes_of(trouble->reason));
    buf_append_text(json, "}");
}

void show_state(struct engine *engine, const char *service_uri, const struct show_counts *earlier,
                struct reader reader, struct buf *json)
{
    struct buf why = {0};
    bool ready = show_ready(engine, &why);
    struct history *history = engine->history;

    buf_append_text(json, "\"version\":\"" STOCKADE_VERSION "\"");
    buf_printf(json, ",\"time_ms\":%lld,\"started_ms\":%lld,\"status\":",
               (long long)show_wall_ms(engine, engine_now_ms(engine)),
               (long long)(engine->started_wall_us / 1000));
    json_string(json, ready ? bytes_of("ok") : buf_bytes(&why));
    buf_free(&why);
    buf_append_text(json, ",\"troubles\":[");
    conditions_each(engine, append_trouble, json);
    buf_append_text(json, "]");
    append_store(engine, earlier, json);
    append_service(engine, service_uri, json);
    buf_printf(json, ",\"leases\":%zu,\"waiters\":%zu", engine->held.count,
               engine->use.things[ACCOUNT_WAITERS]);
    append_longest_wait(engine, reader, json);
    buf_printf(json, ",\"refused_hour\":%llu,\"locks_unpresented\":%llu",
               (unsigned long long)history_refused_hour(history),
               (unsigned long long)engine->counters.locks_unpresented);
    buf_printf(json, ",\"history\":{\"entries\":%zu,\"max\":%zu}",
               history_grants_count(history) + history_refusals_count(history),
               2 * history_max(history));
}

/* Append the bytes that a text of characters up to U+00FF stands for. False: it is no such text, or
 * plain ASCII, which stands for itself. */
static bool append_latin1(struct bytes text, struct buf *out)
{
    bool ascii = true;

    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x80) {
            if ((c != 0xc2 && c != 0xc3) || i + 1 == text.len)
                return false;
            c = (unsigned char)((c << 6) | (text.data[++i] & 0x3f));
            ascii = false;
        }
        buf_append(out, &c, 1);
    }
    return !ascii;
}

void show_refusals(struct engine *engine, struct bytes match, size_t count, struct reader reader,
                   struct buf *json)
{
    const struct history *history = engine->history;
    struct glob *glob = show_glob(match);
    struct buf shown = {0};
    size_t matched = 0;

    for (const struct history_refusal *refusal = history_refusals(history); refusal != NULL;
         refusal = history_refusal_before(history, refusal)) {
        struct bytes name = history_refusal_name(refusal);
        if (!show_matches(match, glob, name) || !reader_may(reader, name) || matched++ >= count)
            continue;
        buf_append_text(&shown, matched == 1 ? "{" : ",{");
        history_refusal_json(&shown, refusal);
        buf_append_text(&shown, "}");
    }
    glob_free(glob);
    buf_printf(json, "{\"total\":%zu,\"matched\":%zu,\"refusals\":[",
               history_refusals_count(history), matched);
    buf_append_bytes(json, buf_bytes(&shown));
    buf_append_text(json, "]}\n");
    buf_free(&shown);
}

uint64_t show_new_refusals(struct engine *engine, uint64_t seen, size_t max,
                           void (*each)(void *context, struct bytes name, struct bytes json),
                           void *context)
{
    const struct history *history = engine->history;
    uint64_t total = history_refusals_total(history);
    const struct history_refusal *refusal = history_refusals(history);
    size_t count = total - seen < max ? (size_t)(total - seen) : max;

    /* The newest ones, found from the end. */
    for (size_t i = 1; i < count && refusal != NULL; i++)
        refusal = history_refusal_before(history, refusal);
    for (size_t i = 0; i < count && refusal != NULL; i++) {
        struct buf json = {0};
        buf_append_text(&json, "{");
        history_refusal_json(&json, refusal);
        buf_append_text(&json, "}");
        each(context, history_refusal_name(refusal), buf_bytes(&json));
        buf_free(&json);
        refusal = history_refusal_after(history, refusal);
    }
    return total;
}

void show_name(struct engine *engine, struct bytes text, struct buf *name)
{
    struct held_shown held;

    buf_clear(name);
    if (!held_find(engine, text, &held) && append_latin1(text, name) &&
        held_find(engine, buf_bytes(name), &held))
        return;
    buf_clear(name);
    buf_append_bytes(name, text);
}
