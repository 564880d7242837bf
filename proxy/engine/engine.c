/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's life: putting its parts together, the turn, draining, health. Only hosts call this
 * file. */
#include "proxy/engine/engine.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/json.h"
#include "fence/base/mem.h"
#include "proxy/engine/acl/log.h"
#include "proxy/engine/command/cursors.h"
#include "proxy/engine/counts.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/lockkeys/lock_keys.h"
#include "proxy/engine/session/identity.h"
#include "proxy/engine/session/notes.h"
#include "proxy/engine/session/session.h"
#include "proxy/engine/sweep.h"
#include "proxy/engine/write/plan.h"

/* So many timers fire in a turn, since a million leases may end in one millisecond. The others do
 * in the next turn, which is due at once. */
enum { TIMERS_MAX = 64 };

static void session_closed(struct session *session)
{
    queue_session_closed(session);
    release_session_closed(session);
    multi_drop(session);
    pubsub_clear(session);
    identity_end(session);
}

struct engine *engine_new(const struct engine_options *options)
{
    struct engine *engine = mem_zalloc(sizeof *engine);

    check(options->store != NULL && options->provider != NULL && options->clock != NULL);
    engine->options = *options;
    engine->acl =
        options->acl != NULL ? options->acl : acl_without_file(NULL, commands, commands_count);
    engine->acl_log = acl_log_new();
    engine->cursors = cursors_new();
    engine->options.address = mem_strdup(options->address != NULL ? options->address : "");
    atomic_init(&engine->replies.bytes, 0);
    atomic_init(&engine->replies.bytes_max, options->replies_max);
    command_index_fill(&engine->index, commands, commands_count);
    list_init(&engine->sessions);
    list_init(&engine->strangers.all);
    engine->strangers.on_too_much = session_make_room;
    engine->strangers.bytes_max =
        options->strangers_bytes_max > 0 ? options->strangers_bytes_max : STRANGERS_BYTES_MAX;
    list_init(&engine->changed);
    list_init(&engine->deferred);
    list_init(&engine->unaudited);
    engine->audit_limit.fire = audit_late;
    list_init(&engine->arrivals);
    engine->on_session_closed = session_closed;
    engine->is_over_unheard = held_is_over_unheard;
    lock_keys_init(engine);
    engine->started_ms = engine_read_clock_us(engine) / 1000;
    engine->started_wall_us = clock_wall_us(options->clock);
    held_init(engine);
    release_init(engine);
    engine->earlier = earlier_new(engine);
    queue_init(engine);
    renewals_init(engine);
    engine->history = history_new(options->history_max, options->clock);
    engine->notes = notes_new(engine);
    engine->sweeper = sweeper_new(engine);
    lease_provider_watch(options->provider, held_on_news, engine);
    store_listen(options->store,
                 &((struct store_news){elsewhere_on_freed, facts_on_refused, engine}));
    return engine;
}

void engine_reconfigure(struct engine *engine, const struct engine_options *options)
{
    engine->options.unfenced_writes = options->unfenced_writes;
    engine->options.limits = options->limits;
    engine->options.user_limits = options->user_limits;
    engine->options.sql_limit_ms = options->sql_limit_ms;
    engine->options.replies_max = options->replies_max;
    engine->options.certificate_ends_s = options->certificate_ends_s;
    atomic_store(&engine->replies.bytes_max, options->replies_max);
}

void engine_free(struct engine *engine)
{
    engine->draining = true; /* who leaves the line wakes nobody */
    counts_check(engine);
    held_free(engine);
    release_free(engine);
    earlier_free(engine->earlier);
    queue_free(engine);
    renewals_free(engine);
    check(list_empty(&engine->sessions) && engine->lines == NULL && engine->accounts == NULL);
    sweeper_free(engine->sweeper);
    notes_free(engine->notes);
    history_free(engine->history);
    requests_free_spares(engine);
    lock_keys_free(engine);
    timer_stop(engine, &engine->audit_limit);
    check(heap_first(&engine->timers) == NULL); /* who sets one stops it */
    heap_free(&engine->timers);
    acl_drop(engine->acl);
    acl_log_free(engine->acl_log);
    cursors_free(engine->cursors);
    free((char *)engine->options.address);
    free(engine);
}

int64_t engine_next_ms(const struct engine *engine)
{
    struct heap_node *first = heap_first(&engine->timers);
    return first == NULL ? -1 : first->at_ms;
}

int64_t engine_read_clock(struct engine *engine)
{
    return engine_read_clock_us(engine);
}

void engine_turn(struct engine *engine)
{
    int64_t now_ms = engine_read_clock_us(engine) / 1000;
    struct heap_node *due;

    engine->looked = 0;
    for (int fired = 0;
         fired < TIMERS_MAX && (due = heap_first(&engine->timers)) != NULL && due->at_ms <= now_ms;
         fired++) {
        struct timer *timer = list_entry(due, struct timer, node);
        heap_remove(&engine->timers, due);
        timer->fire(timer);
    }
    list_splice(&engine->changed, &engine->deferred);
    /* `changed` may close the session, or give it room to start more, which marks it again: the
     * list is emptied from its head, and what is marked meanwhile goes to its tail. */
    struct list *link;
    while ((link = list_pop(&engine->changed)) != NULL) {
        struct session *session = list_entry(link, struct session, changed);
        engine->options.host.changed(session->connection);
    }
    if (engine->shutdown_asked) {
        engine->shutdown_asked = false;
        engine->options.host.shutdown(engine->options.host.context);
    }
}

void engine_count_unsent(struct engine *engine, size_t *counted, size_t bytes)
{
    replies_count(&engine->replies, counted, bytes);
}

bool engine_wants_turn(const struct engine *engine)
{
    return !list_empty(&engine->deferred);
}

void engine_drain(struct engine *engine)
{
    engine->draining = true;
    line_drain(engine);
}

void engine_audit(const struct engine *engine, const struct audit_note *note)
{
    (void)audit_tell(&engine->options.audit, note);
}

bool engine_is_draining(const struct engine *engine)
{
    return engine->draining;
}

void engine_run_aside(const struct engine *engine, struct engine_job *job)
{
    run_aside(engine, job);
}

struct acl *engine_acl(const struct engine *engine)
{
    return engine->acl;
}

bool engine_idle(const struct engine *engine)
{
    return engine->requests_open == 0 && list_empty(&engine->unaudited);
}

bool engine_health(struct engine *engine, struct buf *json)
{
    struct lease_health lease = lease_provider_health(engine->options.provider);
    struct store_stats store = store_stats(engine->options.store);
    bool lost = store_lost(engine->options.store), stopped = store.state == STORE_STOPPED;

    buf_printf(
        json,
        "{\"status\":\"%s\",\"tells\":\"that the process lives; whether leases can be "
        "granted, and what else is wrong: /ready\",\"lease\":{\"provider\":\"%s\",\"up\":%s},",
        engine->draining ? "draining"
        : lost           ? "store lost"
        : stopped        ? "store stopped"
                         : "ok",
        lease_provider_name(engine->options.provider), lease.up ? "true" : "false");
    buf_printf(json, "\"store\":{\"up\":%s,\"detail\":",
               store.state == STORE_FINE && !lost ? "true" : "false");
    json_string(json, bytes_of(store.state == STORE_FINE ? "ok" : store.why));
    if (engine->options.audit.note != NULL) {
        const char *failing = engine->options.audit.state(engine->options.audit.context).failing;
        buf_printf(json, "},\"audit\":{\"up\":%s,\"detail\":", failing == NULL ? "true" : "false");
        json_string(json, bytes_of(failing == NULL ? "ok" : failing));
    }
    buf_printf(json, "},\"connections\":%zu,\"uptime_ms\":%lld}\n", engine->sessions_count,
               (long long)(engine_now_ms(engine) - engine->started_ms));
    return !engine->draining && !lost && !stopped;
}
