/* SPDX-License-Identifier: Apache-2.0 */
/* INFO for people and clients, and the same counters for Prometheus. The engine's own counters come
 * from the table in metrics.h; the store and the lease provider are asked for theirs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proxy/engine/command/handlers.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/lease/lock_clients.h"
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/session/request.h"

/* The Redis whose commands and replies the data commands follow: clients decide by it what to send.
 */
#define REDIS_LEVEL "7.0.0"

/* What the store and the lease provider say, in the same form as the engine's own counters. */
struct gauge {
    const char *name, *help;
    uint64_t value;
    bool counts; /* a counter, not a gauge */
};
#define GAUGES_MAX 24

/* Each appends to `gauges`, and returns how many. */

static size_t lease_gauges(const struct engine *engine, struct gauge *gauges)
{
    const struct lease_health lease = lease_provider_health(engine->options.provider);
    const struct gauge all[] = {
        {"lease_service_up", "1 while the lease service answers", lease.up, false},
        {"lease_service_calls", "Calls to the lease service", lease.calls, true},
        {"lease_service_failures", "Calls that it failed to answer", lease.failures, true},
        {"lease_service_reconnects", "Connections made to it again", lease.reconnects, true},
        {"lease_service_watched", "1 while other daemons' news arrive", lease.watching, false},
        {"lease_service_news", "News of leases that other daemons ended", lease.news, true},
        {"acquires_waiting", "ACQUIREs under way or waiting in line", engine->acquires_count,
         false},
    };

    memcpy(gauges, all, sizeof all);
    return sizeof all / sizeof *all;
}

static size_t own_gauges(const struct engine *engine, struct gauge *gauges)
{
    const struct gauge all[] = {
        {"subscribers", "Connections that have subscribed", engine->pubsub.subscribers, false},
        {"subscriptions", "Their channels and patterns", engine->pubsub.subscriptions, false},
        {"reply_bytes", "Large replies that clients have not read yet", engine->replies.bytes,
         false},
    };

    memcpy(gauges, all, sizeof all);
    return sizeof all / sizeof *all;
}

static size_t store_gauges(const struct engine *engine, struct gauge *gauges)
{
    const struct store_stats store = store_stats(engine->options.store);
    const struct gauge all[] = {
        {"store_up", "1 while the store takes writes, as far as is known",
         store.state == STORE_FINE, false},
        {"store_commits", "Transactions committed", store.commits, true},
        {"store_writes", "Operations committed in them", store.writes, true},
        {"store_reads", "Reads served", store.reads, true},
        {"store_read_batches", "Read transactions", store.read_batches, true},
        {"store_failed_commits", "Transactions that failed", store.failed_commits, true},
        {"store_foreign_commits", "Commits of other programs seen in the file",
         store.foreign_commits, true},
        {"store_writes_queued", "Writes waiting", store.writes_queued, false},
        {"store_reads_queued", "Reads waiting", store.reads_queued, false},
        {"store_batch_writes_max", "Most writes in one transaction so far", store.batch_writes_max,
         false},
    };

    memcpy(gauges, all, sizeof all);
    return sizeof all / sizeof *all;
}

static void print_gauges(const struct gauge *gauges, size_t count, struct buf *out)
{
    for (size_t i = 0; i < count; i++)
        buf_printf(out, "%s:%" PRIu64 "\r\n", gauges[i].name, gauges[i].value);
}

static void section_counters(struct engine *engine, struct buf *out)
{
#define X(name, help) buf_printf(out, #name ":%" PRIu64 "\r\n", engine->counters.name);
    ENGINE_COUNTERS(X)
#undef X
    struct gauge gauges[GAUGES_MAX];
    print_gauges(gauges, own_gauges(engine, gauges), out);
}

static void section_server(struct engine *engine, struct buf *out)
{
    int64_t up_ms = engine_now_ms(engine) - engine->started_ms;

    buf_printf(out, "redis_version:" REDIS_LEVEL "\r\nredis_mode:standalone\r\narch_bits:%d\r\n",
               (int)sizeof(void *) * 8);
    buf_printf(out, "stockade_version:" STOCKADE_VERSION "\r\nprocess_id:%ld\r\n", (long)getpid());
    buf_printf(out, "address:%s\r\nuptime_in_seconds:%" PRId64 "\r\nuptime_in_days:%" PRId64 "\r\n",
               engine->options.address, up_ms / 1000, up_ms / 1000 / 86400);
}

static void section_clients(struct engine *engine, struct buf *out)
{
    buf_printf(out, "connected_clients:%zu\r\nmaxclients:%zu\r\nblocked_clients:%zu\r\n",
               engine->sessions_count, engine->options.sessions_max, engine->acquires_count);
}

static struct engine_usage usage_of(const struct engine *engine)
{
    struct engine_usage usage = {0};

    if (engine->options.host.usage != NULL)
        engine->options.host.usage(&usage);
    return usage;
}

/* Twice: as a number, and for people. */
static void print_memory(struct buf *out, const char *name, uint64_t bytes)
{
    static const char units[] = "KMG";
    double amount = (double)bytes / 1024;
    size_t unit = 0;

    for (; amount >= 1024 && units[unit + 1] != '\0'; unit++)
        amount /= 1024;
    buf_printf(out, "%s:%" PRIu64 "\r\n%s_human:%.2f%c\r\n", name, bytes, name, amount,
               units[unit]);
}

static void section_memory(struct engine *engine, struct buf *out)
{
    struct engine_usage usage = usage_of(engine);

    print_memory(out, "used_memory", usage.rss_bytes);
    print_memory(out, "used_memory_rss", usage.rss_bytes);
    print_memory(out, "used_memory_peak", usage.rss_peak_bytes);
    buf_append_text(out, "maxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
}

static void print_seconds(struct buf *out, const char *name, uint64_t us)
{
    buf_printf(out, "%s:%" PRIu64 ".%06" PRIu64 "\r\n", name, us / 1000000, us % 1000000);
}

static void section_cpu(struct engine *engine, struct buf *out)
{
    struct engine_usage usage = usage_of(engine);

    print_seconds(out, "used_cpu_sys", usage.cpu_system_us);
    print_seconds(out, "used_cpu_user", usage.cpu_user_us);
}

static void section_lease(struct engine *engine, struct buf *out)
{
    struct gauge gauges[GAUGES_MAX];
    struct lease_health lease = lease_provider_health(engine->options.provider);

    buf_printf(out, "lease_service:%s\r\nlease_service_detail:%s\r\n",
               lease_provider_name(engine->options.provider), lease.detail);
    print_gauges(gauges, lease_gauges(engine, gauges), out);
}

static void section_store(struct engine *engine, struct buf *out)
{
    struct gauge gauges[GAUGES_MAX];
    struct store_stats store = store_stats(engine->options.store);

    buf_printf(out, "store_detail:%s\r\n", store.state == STORE_FINE ? "ok" : store.why);
    print_gauges(gauges, store_gauges(engine, gauges), out);
}

static void section_lock_keys(struct engine *engine, struct buf *out)
{
    buf_printf(out, "lock_keys:%zu\r\n", engine->lock_patterns.count);
    if (engine->lock_keys != NULL)
        lock_clients_print(engine->lock_clients, out);
}

static const struct {
    const char *name, *title;
    void (*write)(struct engine *engine, struct buf *out);
    const char *text; /* where nothing has to be written: what Redis's clients look for */
} sections[] = {
    {"server", "Server", section_server, NULL},
    {"clients", "Clients", section_clients, NULL},
    {"memory", "Memory", section_memory, NULL},
    {"persistence", "Persistence", NULL, "loading:0\r\naof_enabled:1\r\n"},
    {"stats", "Stats", section_counters, NULL},
    {"replication", "Replication", NULL, "role:master\r\nconnected_slaves:0\r\n"},
    {"cpu", "CPU", section_cpu, NULL},
    {"cluster", "Cluster", NULL, "cluster_enabled:0\r\n"},
    {"lease", "Lease", section_lease, NULL},
    {"store", "Store", section_store, NULL},
    {"lockkeys", "Lockkeys", section_lock_keys, NULL},
};

static bool is_asked(const struct bytes *asked, size_t count, const char *section)
{
    for (size_t i = 0; i < count; i++)
        if (bytes_equal_nocase(asked[i], section) || bytes_equal_nocase(asked[i], "all") ||
            bytes_equal_nocase(asked[i], "default") || bytes_equal_nocase(asked[i], "everything"))
            return true;
    return count == 0;
}

void engine_info(struct engine *engine, const struct bytes *asked, size_t count, struct buf *out)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (!is_asked(asked, count, sections[i].name))
            continue;
        if (out->len > 0)
            buf_append_text(out, "\r\n");
        buf_printf(out, "# %s\r\n", sections[i].title);
        if (sections[i].write != NULL)
            sections[i].write(engine, out);
        else
            buf_append_text(out, sections[i].text);
    }
}

void server_info(struct request *request)
{
    struct buf text = {0};

    engine_info(request->engine, request->argv + 1, request->argc - 1, &text);
    resp_verbatim(&request->reply, buf_bytes(&text), request->resp3);
    buf_free(&text);
    request_show(request);
}

static void metric(struct buf *out, const char *name, const char *help, uint64_t value, bool counts)
{
    const char *suffix = counts ? "_total" : "";
    buf_printf(out, "# HELP stockade_%s%s %s\n# TYPE stockade_%s%s %s\nstockade_%s%s %" PRIu64 "\n",
               name, suffix, help, name, suffix, counts ? "counter" : "gauge", name, suffix, value);
}

void engine_metrics(struct engine *engine, struct buf *out)
{
    struct gauge gauges[GAUGES_MAX];

#define X(name, help) metric(out, #name, help, engine->counters.name, true);
    ENGINE_COUNTERS(X)
#undef X
    size_t count = lease_gauges(engine, gauges);
    count += own_gauges(engine, gauges + count);
    count += store_gauges(engine, gauges + count);
    for (size_t i = 0; i < count; i++)
        metric(out, gauges[i].name, gauges[i].help, gauges[i].value, gauges[i].counts);
    metric(out, "connections", "Connections open", engine->sessions_count, false);
    metric(out, "uptime_seconds", "Since the start",
           (uint64_t)(engine_now_ms(engine) - engine->started_ms) / 1000, false);
}
