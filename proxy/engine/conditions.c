/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/engine/conditions.h"

#include <inttypes.h>

#include "fence/base/tls.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/lease/lease.h"

enum {
    LATELY_MS = 60 * 1000,
    IDLE_HOLDER_MS = 10 * 1000, /* that somebody waits behind one that has written nothing */
    LONG_WAIT_MS = 60 * 1000,   /* or behind anybody */
    WAITERS_LOOKED_AT_MAX = 1000,
    SNAPSHOT_OLD_S = 300, /* as the alert StockadeSnapshotOld */
    LOG_LARGE_BYTES = 600 * 1000 * 1000,
};

#define SAY(trouble, ...) text_print((trouble)->text, sizeof(trouble)->text, __VA_ARGS__)
#define BECAUSE(trouble, why)                                                                      \
    text_print((trouble)->reason, sizeof(trouble)->reason, "%s", (why) != NULL ? (why) : "")

/* Counters, and what of them is lately. */

static uint64_t counted(const struct engine *engine, enum lately which)
{
    switch (which) {
    case LATELY_STORE: return engine->counters.store_errors;
    case LATELY_LEASE_SERVICE: return engine->counters.lease_service_errors;
    case LATELY_LOG: return log_lines_lost(engine->options.log);
    case LATELY_COUNT: break;
    }
    return 0;
}

void conditions_look(struct engine *engine)
{
    for (enum lately i = 0; i < LATELY_COUNT; i++) {
        struct lately_seen *seen = &engine->lately[i];
        uint64_t count = counted(engine, i);
        if (count == seen->count)
            continue;
        *seen = (struct lately_seen){count, engine_now_ms(engine), true};
    }
}

static bool is_lately(struct engine *engine, enum lately which)
{
    const struct lately_seen *seen = &engine->lately[which];

    conditions_look(engine);
    return seen->grew && engine_now_ms(engine) - seen->grew_ms < LATELY_MS;
}

/* The conditions. */

static bool is_stopping(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "the daemon is stopping");
    return engine->draining;
}

static bool store_is_lost(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "the store is lost");
    return store_lost(engine->options.store);
}

static bool store_is(struct engine *engine, enum store_state state, struct trouble *trouble)
{
    const struct store_stats stats = store_stats(engine->options.store);

    BECAUSE(trouble, stats.why);
    return stats.state == state;
}

static bool store_is_stopped(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "the store takes no writes until somebody has mended it");
    return store_is(engine, STORE_STOPPED, trouble);
}

static bool store_fails(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "%s",
        store_opening(engine->options.store) == 0 ? "the store has not been reached yet"
                                                  : "the store cannot be written to now");
    return store_is(engine, STORE_FAILING, trouble);
}

static bool service_is_down(struct engine *engine, struct trouble *trouble)
{
    const struct lease_health health = lease_provider_health(engine->options.provider);

    SAY(trouble, "no lease can be granted: the lease service is down");
    BECAUSE(trouble, health.detail);
    return !health.up;
}

static bool audit_stops_grants(struct engine *engine, struct trouble *trouble)
{
    const char *why = audit_refuses(&engine->options.audit, AUDIT_LEASES);

    SAY(trouble, "the audit cannot be written, and grants have to be in it");
    BECAUSE(trouble, why);
    return why != NULL;
}

static bool store_failed_lately(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "commands failed with STORE within the last minute; now the store takes writes");
    return is_lately(engine, LATELY_STORE) && !store_lost(engine->options.store) &&
           store_is(engine, STORE_FINE, &(struct trouble){0});
}

static bool service_failed_lately(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "commands were answered LEASEDOWN within the last minute");
    return is_lately(engine, LATELY_LEASE_SERVICE) &&
           !service_is_down(engine, &(struct trouble){0});
}

static bool audit_fails(struct engine *engine, struct trouble *trouble)
{
    const struct audit *audit = &engine->options.audit;
    const char *failing = audit->note != NULL ? audit->state(audit->context).failing : NULL;

    SAY(trouble, "the audit cannot be written");
    BECAUSE(trouble, failing);
    return failing != NULL && audit_refuses(audit, AUDIT_LEASES) == NULL;
}

static bool releases_are_owed(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "leases that nobody has any more could not be released so far");
    return !list_empty(&engine->owed);
}

static bool snapshot_is_old(struct engine *engine, struct trouble *trouble)
{
    const struct store_stats stats = store_stats(engine->options.store);

    SAY(trouble, "a transaction that somebody keeps open holds up the store, which grows");
    return stats.oldest_snapshot_s > SNAPSHOT_OLD_S || stats.log_bytes > LOG_LARGE_BYTES;
}

static bool guard_is_broken(struct engine *engine, struct trouble *trouble)
{
    const struct store_stats stats = store_stats(engine->options.store);

    SAY(trouble, "a guard is not as it was made, or not where it was put: GUARD LIST");
    BECAUSE(trouble, stats.guard);
    return stats.guard[0] != '\0';
}

static bool store_passes(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "the store is in memory, and goes with the daemon: it is for tests");
    return engine->options.store_passes;
}

static bool log_is_lost(struct engine *engine, struct trouble *trouble)
{
    SAY(trouble, "lines of the log could not be written");
    return is_lately(engine, LATELY_LOG);
}

static bool certificate_ends(struct engine *engine, struct trouble *trouble)
{
    int64_t ends_s = engine->options.certificate_ends_s;
    int64_t left_s = ends_s - clock_wall_us(engine->options.clock) / 1000000;
    int64_t hours = left_s / 3600;

    if (left_s <= 0)
        SAY(trouble, "the certificate for TLS has expired, and clients refuse it");
    else
        SAY(trouble, "the certificate for TLS expires in %" PRId64 " days and %" PRId64 " hours",
            hours / 24, hours % 24);
    return ends_s != 0 && left_s <= TLS_ENDS_SOON_S;
}

/* Does the head of a line wait for too long? Who has held the lease since before it came, and has
 * written nothing, is as like as not hung. */
static bool waits_too_long(struct engine *engine, const struct waiter *waiter, struct trouble *out)
{
    const struct bytes resource = waiter->events->on_shown(waiter).resource;
    int64_t waited_ms = engine_now_ms(engine) - waiter->joined_ms;
    struct held_shown held;
    bool idle = held_find(engine, resource, &held) && held.counted && held.writes == 0 &&
                clock_wall_us(engine->options.clock) / 1000 - held.granted_ms >= waited_ms;
    bool too_long = waited_ms >= (idle ? IDLE_HOLDER_MS : LONG_WAIT_MS);

    if (too_long)
        SAY(out, "%" PRId64 " wait for a resource, the first for %" PRId64 " s%s",
            line_waiters(engine, resource), waited_ms / 1000,
            idle ? ", behind one holder that has written nothing" : "");
    return too_long;
}

static bool line_stands(struct engine *engine, struct trouble *trouble)
{
    const struct list *at = engine->arrivals.next;

    for (int i = 0; i < WAITERS_LOOKED_AT_MAX && at != &engine->arrivals; i++, at = at->next) {
        const struct waiter *waiter = list_entry(at, const struct waiter, in_engine);
        if (engine_now_ms(engine) - waiter->joined_ms < IDLE_HOLDER_MS)
            break; /* those behind came later */
        if (waiter->waits && !waiter->passed_over && line_is_head(waiter) &&
            waits_too_long(engine, waiter, trouble))
            return true;
    }
    return false;
}

const struct condition conditions[] = {
    {"stopping", true, is_stopping},
    {"store_lost", true, store_is_lost},
    {"store_stopped", true, store_is_stopped},
    {"store_failing", true, store_fails},
    {"lease_service_down", true, service_is_down},
    {"audit_stops_grants", true, audit_stops_grants},
    {"audit_failing", false, audit_fails},
    {"store_errors", false, store_failed_lately},
    {"lease_service_errors", false, service_failed_lately},
    {"long_wait", false, line_stands},
    {"releases_owed", false, releases_are_owed},
    {"snapshot_old", false, snapshot_is_old},
    {"guard_broken", false, guard_is_broken},
    {"log_lost", false, log_is_lost},
    {"certificate_ends", false, certificate_ends},
    {"store_in_memory", false, store_passes},
};
const size_t conditions_count = sizeof conditions / sizeof *conditions;

void conditions_each(struct engine *engine,
                     void (*each)(void *context, const struct condition *condition,
                                  const struct trouble *trouble),
                     void *context)
{
    for (size_t i = 0; i < conditions_count; i++) {
        struct trouble trouble = {0};
        if (conditions[i].holds(engine, &trouble))
            each(context, &conditions[i], &trouble);
    }
}

struct telling {
    struct buf *out;
    size_t count;
    bool stops;
};

static void tell(void *context, const struct condition *condition, const struct trouble *trouble)
{
    struct telling *telling = context;

    buf_printf(telling->out, "%s%s", telling->count++ > 0 ? "; " : "", trouble->text);
    telling->stops |= condition->stops_grants;
}

bool conditions_tell(struct engine *engine, struct buf *out)
{
    struct telling telling = {.out = out};

    conditions_each(engine, tell, &telling);
    return !telling.stops;
}

static void count(void *context, const struct condition *condition, const struct trouble *trouble)
{
    (void)condition, (void)trouble;
    ++*(uint64_t *)context;
}

uint64_t conditions_holding(struct engine *engine)
{
    uint64_t holding = 0;

    conditions_each(engine, count, &holding);
    return holding;
}
