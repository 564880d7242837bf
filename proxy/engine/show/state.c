/* SPDX-License-Identifier: Apache-2.0 */
/* How all is, in one look: what the page shows first, and each second again. */
#include "fence/base/json.h"
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
                   counters->leases_released + counters->leases_revoked +
                   counters->leases_expired + counters->leases_renewed + counters->leases_waited +
                   counters->leases_given_back,
    };
}

/* The one that has waited longest at this daemon; or NULL. */
static const struct acquire *longest_wait(const struct engine *engine)
{
    const struct list *at = engine->arrivals.next;

    for (int i = 0; i < WAITERS_LOOKED_AT_MAX && at != &engine->arrivals; i++, at = at->next) {
        const struct waiter *waiter = list_entry(at, struct waiter, in_engine);
        if (waiter_is_shown(waiter))
            return list_entry(waiter, struct acquire, waiter);
    }
    return NULL;
}

static void append_store(struct engine *engine, struct buf *json)
{
    const struct store_stats store = store_stats(engine->options.store);
    bool lost = store_lost(engine->options.store);

    buf_printf(json, ",\"store\":{\"status\":\"%s\",\"reason\":",
               lost                             ? "lost"
               : store.state == STORE_FINE      ? "ok"
               : store.state == STORE_FAILING   ? "failing"
                                                : "stopped");
    json_string(json, bytes_of(store.state == STORE_FINE ? "" : store.why));
    buf_printf(json, ",\"commit_p50_us\":null,\"commit_p99_us\":null,\"queue\":%zu}",
               store.writes_queued);
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

static void append_longest_wait(struct engine *engine, struct buf *json)
{
    const struct acquire *longest = longest_wait(engine);

    if (longest == NULL) {
        buf_append_text(json, ",\"longest_wait_ms\":null,\"longest_wait_resource\":null");
        return;
    }
    buf_printf(json, ",\"longest_wait_ms\":%lld,\"longest_wait_resource\":",
               (long long)(engine_now_ms(engine) - longest->waiter.joined_ms));
    json_string(json, longest->resource);
}

bool show_ready(struct engine *engine, const char **why)
{
    const struct store_stats store = store_stats(engine->options.store);

    *why = engine->draining                        ? "the daemon is stopping"
           : store_lost(engine->options.store)     ? "the store is lost"
           : store.state == STORE_STOPPED          ? "the store takes no writes"
           : store.state == STORE_FAILING          ? "the store's last write failed"
           : !lease_provider_health(engine->options.provider).up ? "the lease service is down"
                                                   : NULL;
    return *why == NULL;
}

void show_state(struct engine *engine, const char *service_uri, struct buf *json)
{
    const char *why;
    bool ready = show_ready(engine, &why);

    buf_append_text(json, "\"version\":\"" STOCKADE_VERSION "\"");
    buf_printf(json, ",\"time_ms\":%lld,\"started_ms\":%lld,\"status\":",
               (long long)show_wall_ms(engine, engine_now_ms(engine)),
               (long long)show_wall_ms(engine, engine->started_ms));
    json_string(json, bytes_of(ready ? "ok" : why));
    append_store(engine, json);
    append_service(engine, service_uri, json);
    buf_printf(json, ",\"leases\":%zu,\"waiters\":%zu", engine->held.count,
               engine->acquires_count);
    append_longest_wait(engine, json);
    buf_append_text(json, ",\"refused_hour\":0,\"history\":{\"entries\":0,\"max\":0}");
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
