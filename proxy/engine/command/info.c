/* SPDX-License-Identifier: Apache-2.0 */
/* INFO for people and clients, and the same counters, with histograms, for Prometheus. The engine's
 * own counters come from the table in metrics.h; the store and the lease provider are asked for
 * theirs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/plain.h"
#include "proxy/engine/command/handlers.h"
#include "proxy/engine/counts.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/lease/lock_clients.h"
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/session/account.h"
#include "proxy/engine/session/arguments.h"
#include "proxy/engine/session/session.h"

/* The Redis whose commands and replies the data commands follow: clients decide by it what to send.
 */
#define REDIS_LEVEL "7.0.0"

/* What the store and the lease provider say, in the same form as the engine's own counters. */
struct gauge {
    const char *name, *help;
    uint64_t value;
    bool counts; /* a counter, not a gauge */
};

struct gauges {
    struct gauge all[64];
    size_t count;
};

static void append_gauges(struct gauges *gauges, const struct gauge *more, size_t count)
{
    check(gauges->count + count <= sizeof gauges->all / sizeof *gauges->all);
    memcpy(gauges->all + gauges->count, more, count * sizeof *more);
    gauges->count += count;
}

static void lease_gauges(const struct engine *engine, struct gauges *gauges)
{
    const struct lease_health lease = lease_provider_health(engine->options.provider);
    const struct gauge all[] = {
        {"lease_service_up", "1 while the lease service answers", lease.up, false},
        {"lease_service_calls", "Calls to the lease service", lease.calls, true},
        {"lease_service_failures", "Calls that it failed to answer", lease.failures, true},
        {"lease_service_reconnects", "Connections made to it again", lease.reconnects, true},
        {"lease_service_watched", "1 while other daemons' news arrive", lease.watching, false},
        {"lease_service_news", "News of leases that other daemons ended", lease.news, true},
        {"acquires_waiting", "ACQUIREs under way or waiting in line",
         engine->use.things[ACCOUNT_WAITERS], false},
    };

    append_gauges(gauges, all, sizeof all / sizeof *all);
}

static void own_gauges(struct engine *engine, struct gauges *gauges)
{
    const struct gauge all[] = {
#define X(name, value, help) {#name, help, value, false},
        ENGINE_COUNTS(X)
#undef X
            {"leases_held", "Leases that this daemon has granted or renewed, and not seen end",
             engine->held.count, false},
        {"troubles", "What is wrong now, as /ready tells", conditions_holding(engine), false},
        {"history_grants", "Grants that are remembered", history_grants_count(engine->history),
         false},
        {"history_refusals", "Refused commands that are remembered",
         history_refusals_count(engine->history), false},
        {"log_lines_lost", "Lines of the log that could not be written",
         log_lines_lost(engine->options.log), true},
        {"tls_certificate_ends_seconds",
         "When the certificate for TLS ends, in seconds since 1970; 0: there is none",
         (uint64_t)engine->options.certificate_ends_s, false},
    };

    append_gauges(gauges, all, sizeof all / sizeof *all);
}

static void store_gauges(const struct engine *engine, struct gauges *gauges)
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
        {"store_lock_waits", "Operations that waited for long because somebody had locked a row",
         store.lock_waits, true},
        {"store_batch_reruns", "Transactions that ran again, as others were quicker",
         store.batch_reruns, true},
        {"store_backends_ended", "Backends ended that had rows locked and stood still",
         store.backends_ended, true},
        {"store_guard_refusals", "Statements of programs' own that guards or present() refused",
         store.guard_refusals, true},
        {"store_log_bytes", "Size of SQLite's write-ahead log on the disk", store.log_bytes, false},
        {"store_oldest_snapshot_seconds",
         "How old the snapshot is, at least, that keeps dead rows or SQLite's log longest",
         store.oldest_snapshot_s, false},
        {"store_batch_writes_max", "Most writes in one transaction so far", store.batch_writes_max,
         false},
    };

    append_gauges(gauges, all, sizeof all / sizeof *all);
}

/* None where there is no audit. */
static void audit_gauges(const struct engine *engine, struct gauges *gauges)
{
    const struct audit *audit = &engine->options.audit;

    if (audit->note == NULL)
        return;
    const struct audit_state state = audit->state(audit->context);
    const struct gauge all[] = {
        {"audit_up", "1 while the audit can be written", state.failing == NULL, false},
        {"audit_lines", "Lines of the audit's chain that are on disk", state.lines, false},
        {"audit_events", "Events written to the audit", state.written, true},
        {"audit_lost", "Events for which there was no room", state.lost, true},
        {"audit_syncs", "Syncs of the audit's file", state.syncs, true},
        {"audit_queued_bytes", "Events that wait to be written", state.queued_bytes, false},
    };

    append_gauges(gauges, all, sizeof all / sizeof *all);
}

static void print_gauges(const struct gauges *gauges, struct buf *out)
{
    for (size_t i = 0; i < gauges->count; i++)
        buf_printf(out, "%s:%" PRIu64 "\r\n", gauges->all[i].name, gauges->all[i].value);
}

static void section_counters(struct engine *engine, struct buf *out)
{
#define X(name, help) buf_printf(out, #name ":%" PRIu64 "\r\n", engine->counters.name);
    ENGINE_COUNTERS(X)
#undef X
    struct gauges gauges = {.count = 0};
    own_gauges(engine, &gauges);
    print_gauges(&gauges, out);
}

static void section_server(struct engine *engine, struct buf *out)
{
    int64_t up_ms = engine_now_ms(engine) - engine->started_ms;

    buf_printf(out, "redis_version:" REDIS_LEVEL "\r\nredis_mode:standalone\r\narch_bits:%d\r\n",
               (int)sizeof(void *) * 8);
    buf_printf(out, "stockade_version:" STOCKADE_VERSION "\r\nprocess_id:%ld\r\n", (long)getpid());
    buf_printf(out, "address:%s\r\nuptime_in_seconds:%" PRId64 "\r\nuptime_in_days:%" PRId64 "\r\n",
               engine->options.address, up_ms / 1000, up_ms / 1000 / 86400);
    buf_append_text(out, "troubles_detail:");
    (void)conditions_tell(engine, out);
    buf_append_text(out, "\r\n");
}

static void section_clients(struct engine *engine, struct buf *out)
{
    buf_printf(out, "connected_clients:%zu\r\nmaxclients:%zu\r\nblocked_clients:%zu\r\n",
               engine->sessions_count, engine->options.sessions_max,
               engine->use.things[ACCOUNT_WAITERS]);
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
    char rounded[32];

    for (; amount >= 1024 && units[unit + 1] != '\0'; unit++)
        amount /= 1024;
    plain_print(rounded, sizeof rounded, "%.2f", amount);
    buf_printf(out, "%s:%" PRIu64 "\r\n%s_human:%s%c\r\n", name, bytes, name, rounded, units[unit]);
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
    struct gauges gauges = {.count = 0};
    struct lease_health lease = lease_provider_health(engine->options.provider);

    buf_printf(out, "lease_service:%s\r\nlease_service_detail:%s\r\n",
               lease_provider_name(engine->options.provider), lease.detail);
    lease_gauges(engine, &gauges);
    print_gauges(&gauges, out);
}

static void section_store(struct engine *engine, struct buf *out)
{
    struct gauges gauges = {.count = 0};
    struct store_stats store = store_stats(engine->options.store);

    buf_printf(out, "store_detail:%s\r\n", store.state == STORE_FINE ? "ok" : store.why);
    store_gauges(engine, &gauges);
    print_gauges(&gauges, out);
}

static void section_audit(struct engine *engine, struct buf *out)
{
    const struct audit *audit = &engine->options.audit;
    struct gauges gauges = {.count = 0};

    buf_printf(out, "audit:%d\r\n", audit->note != NULL);
    if (audit->note == NULL)
        return;
    const struct audit_state state = audit->state(audit->context);
    buf_printf(out, "audit_detail:%s\r\naudit_chain:%s\r\naudit_head:%s\r\n",
               state.failing == NULL ? "ok" : state.failing, state.chain, state.head);
    audit_gauges(engine, &gauges);
    print_gauges(&gauges, out);
}

static void section_lock_keys(struct engine *engine, struct buf *out)
{
    buf_printf(out, "lock_keys:%zu\r\n", engine->lock_patterns.count);
    if (engine->lock_keys != NULL)
        lock_clients_print(engine->lock_clients, out);
}

/* What clients ask for when they connect; the rest is for administrators. */
#define TO_ALL true
#define ADMINS false

static const struct {
    const char *name, *title;
    bool to_all;
    void (*write)(struct engine *engine, struct buf *out);
    const char *text; /* where nothing has to be written: what Redis's clients look for */
} sections[] = {
    {"server", "Server", TO_ALL, section_server, NULL},
    {"clients", "Clients", TO_ALL, section_clients, NULL},
    {"memory", "Memory", ADMINS, section_memory, NULL},
    {"persistence", "Persistence", TO_ALL, NULL, "loading:0\r\naof_enabled:1\r\n"},
    {"stats", "Stats", ADMINS, section_counters, NULL},
    {"replication", "Replication", TO_ALL, NULL,
     "role:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n"},
    {"cpu", "CPU", ADMINS, section_cpu, NULL},
    {"cluster", "Cluster", TO_ALL, NULL, "cluster_enabled:0\r\n"},
    {"lease", "Lease", ADMINS, section_lease, NULL},
    {"store", "Store", ADMINS, section_store, NULL},
    {"lockkeys", "Lockkeys", ADMINS, section_lock_keys, NULL},
    {"audit", "Audit", ADMINS, section_audit, NULL},
};

static bool is_asked(const struct bytes *asked, size_t count, const char *section)
{
    for (size_t i = 0; i < count; i++)
        if (bytes_equal_nocase(asked[i], section) || bytes_equal_nocase(asked[i], "all") ||
            bytes_equal_nocase(asked[i], "default") || bytes_equal_nocase(asked[i], "everything"))
            return true;
    return count == 0;
}

void engine_info(struct engine *engine, const struct bytes *asked, size_t count, bool all,
                 struct buf *out)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (!is_asked(asked, count, sections[i].name) || !(all || sections[i].to_all))
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

/* With a file of users, what is not for everybody is for administrators. */
struct act server_info_act(const struct acl_user *user, struct request *request,
                           const struct bytes *argv, size_t argc)
{
    struct act act = {.deed = DEED_CONNECTION};

    (void)user;
    if (!acl_has_file(request->engine->acl))
        return act;
    for (size_t i = 1; i < argc; i++)
        for (size_t j = 0; j < sizeof sections / sizeof *sections; j++)
            if (!sections[j].to_all && bytes_equal_nocase(argv[i], sections[j].name))
                act.deed = DEED_ADMIN;
    return act;
}

void server_info(struct request *request)
{
    bool all = session_is_admin(request->session) || !acl_has_file(request->engine->acl);
    struct buf text = {0};

    engine_info(request->engine, request->argv + 1, request->argc - 1, all, &text);
    resp_verbatim(&request->reply, buf_bytes(&text), request->resp3);
    buf_free(&text);
    request_show(request);
}

/* Prometheus's text, or OpenMetrics, which names a counter without its suffix. */

struct exposition {
    struct buf *out;
    bool openmetrics;
};

static const char counter[] = "counter", plain[] = "gauge", histogram[] = "histogram";

/* `name` without the suffix. */
static void print_head(const struct exposition *exposition, const char *name, const char *help,
                       const char *type)
{
    const char *suffix = type == counter && !exposition->openmetrics ? "_total" : "";

    buf_printf(exposition->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name,
               suffix, type);
}

static void print_metric(const struct exposition *exposition, const char *name, const char *help,
                         uint64_t value, bool counts)
{
    char full[96];

    snprintf(full, sizeof full, "stockade_%s", name);
    print_head(exposition, full, help, counts ? counter : plain);
    buf_printf(exposition->out, "%s%s %" PRIu64 "\n", full, counts ? "_total" : "", value);
}

/* Microseconds as seconds. */
static void print_time(const struct exposition *exposition, const char *name, const char *help,
                       const char *type, uint64_t us)
{
    print_head(exposition, name, help, type);
    buf_printf(exposition->out, "%s%s %" PRIu64 ".%06" PRIu64 "\n", name,
               type == counter ? "_total" : "", us / 1000000, us % 1000000);
}

/* One series; `group` is a label, or NULL. */
static void print_series(const struct exposition *exposition, const char *name, const char *group,
                         const struct durations *durations)
{
    char label[32] = "", only[32] = "";
    uint64_t count = 0;

    if (group != NULL) {
        snprintf(label, sizeof label, "group=\"%s\",", group);
        snprintf(only, sizeof only, "{group=\"%s\"}", group);
    }
    for (size_t i = 0; i <= DURATIONS_BOUNDS; i++) {
        count += durations->counts[i];
        buf_printf(exposition->out, "%s_bucket{%sle=\"%s\"} %" PRIu64 "\n", name, label,
                   i < DURATIONS_BOUNDS ? durations_bounds_text[i] : "+Inf", count);
    }
    buf_printf(exposition->out, "%s_sum%s %" PRIu64 ".%06" PRIu64 "\n%s_count%s %" PRIu64 "\n",
               name, only, durations->sum_us / 1000000, durations->sum_us % 1000000, name, only,
               count);
}

static void print_histogram(const struct exposition *exposition, const char *name, const char *help,
                            const struct durations *durations)
{
    print_head(exposition, name, help, histogram);
    print_series(exposition, name, NULL, durations);
}

static void print_histograms(const struct exposition *exposition, const struct engine *engine)
{
    static const char *const groups[COMMANDS_GROUPS] = {
#define X(id, label) label,
        COMMAND_GROUPS(X)
#undef X
    };
    static const char commands_name[] = "stockade_command_seconds";
    const struct store_stats store = store_stats(engine->options.store);
    const struct engine_times *times = &engine->times;

    print_head(exposition, commands_name,
               "From the start of a command to its reply, by group of commands; wait: commands for "
               "leases that waited in line",
               histogram);
    for (size_t i = 0; i < COMMANDS_GROUPS; i++)
        print_series(exposition, commands_name, groups[i], &times->commands[i]);
    print_histogram(exposition, "stockade_lease_service_grant_seconds",
                    "Time that the lease service took to say whether it grants a lease",
                    &times->grants);
    print_histogram(exposition, "stockade_wait_seconds",
                    "Time that ACQUIREs waited in line, until they were granted or gave up",
                    &times->waits);
    print_histogram(exposition, "stockade_store_queue_seconds",
                    "Time that writes waited for their transaction to begin", &store.queued);
    print_histogram(exposition, "stockade_store_commit_seconds",
                    "Time that a commit took, until it was on the disk", &store.commits_took);
    print_histogram(exposition, "stockade_store_barrier_seconds",
                    "Time that reads of a database took, until what they tell was replicated",
                    &store.barriers);
}

static void print_process(const struct exposition *exposition, const struct engine *engine)
{
    struct engine_usage usage = usage_of(engine);

    print_head(exposition, "stockade_build_info", "1, with the version as a label", plain);
    buf_append_text(exposition->out, "stockade_build_info{version=\"" STOCKADE_VERSION "\"} 1\n");
    print_time(exposition, "process_start_time_seconds", "When the daemon started, since 1970",
               plain, (uint64_t)engine->started_wall_us);
    print_time(exposition, "process_cpu_seconds", "CPU time that the daemon has used", counter,
               usage.cpu_user_us + usage.cpu_system_us);
    print_head(exposition, "process_resident_memory_bytes", "Memory that the daemon has now",
               plain);
    buf_printf(exposition->out, "process_resident_memory_bytes %" PRIu64 "\n", usage.rss_bytes);
}

/* For who keeps it out of reach of those who can write the audit and the store. */
static void print_audit_head(const struct exposition *exposition, const struct engine *engine)
{
    const struct audit *audit = &engine->options.audit;

    if (audit->note == NULL)
        return;
    const struct audit_state state = audit->state(audit->context);
    print_head(exposition, "stockade_audit_head",
               "The number of the audit's newest line on disk, with its hash as a label", plain);
    buf_printf(exposition->out, "stockade_audit_head{chain=\"%s\",hash=\"%s\"} %" PRIu64 "\n",
               state.chain, state.head, state.lines);
}

void engine_metrics(struct engine *engine, bool openmetrics, struct buf *out)
{
    const struct exposition exposition = {out, openmetrics};
    struct gauges gauges = {.count = 0};

    requests_count_times(engine);
#define X(name, help) print_metric(&exposition, #name, help, engine->counters.name, true);
    ENGINE_COUNTERS(X)
#undef X
    lease_gauges(engine, &gauges);
    own_gauges(engine, &gauges);
    store_gauges(engine, &gauges);
    audit_gauges(engine, &gauges);
    for (size_t i = 0; i < gauges.count; i++)
        print_metric(&exposition, gauges.all[i].name, gauges.all[i].help, gauges.all[i].value,
                     gauges.all[i].counts);
    print_histograms(&exposition, engine);
    print_process(&exposition, engine);
    print_audit_head(&exposition, engine);
    if (openmetrics)
        buf_append_text(out, "# EOF\n");
}
