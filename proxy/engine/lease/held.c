/* SPDX-License-Identifier: Apache-2.0 */
/* The leases that this daemon has granted and not seen end: who is to be told when one is lost, and
 * which go with their connection. Nothing here decides anything: the lease service says whether a
 * lease is over, the store whether its token is good.
 *
 *   granted ──▶ held ──timer──▶ asking the service ──held still──▶ held
 *                │                     └──free, another's──▶ expired
 *                └──released, revoked, granted to another──▶ gone */
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "fence/base/table.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/events.h"

enum { BEHIND_SAID_MS = 60000 };

/* There may be a million: small. */
struct held {
    struct table_node node; /* in engine->held */
    struct engine *engine;
    struct session *holder; /* NULL: that connection is gone */
    struct list of_session; /* holder->held */
    struct timer timer;     /* when the lease should be over */
    struct look *asking;    /* the call under way, or NULL */
    int64_t token, until_ms;
    int32_t ttl_ms;
    uint16_t name_len, owner_len;
    bool ephemeral;
    char bytes[]; /* the resource's name, then the owner's */
};
_Static_assert(LEASE_TTL_MAX_MS <= INT32_MAX, "ttl_ms fits");

/* Asking the service whether a lease is over. Outlives an entry that goes meanwhile. */
struct look {
    struct engine *engine;
    struct held *held;     /* NULL: gone */
    bool doubted, revoked; /* another daemon says that it ended: how */
    struct lease_call call;
    char name[];
};

static struct bytes name_of(const struct held *held)
{
    return (struct bytes){held->bytes, held->name_len};
}

static struct held *of_node(const struct table_node *node)
{
    return list_entry(node, struct held, node);
}

static struct bytes name_of_node(const struct table_node *node)
{
    return name_of(of_node(node));
}

static struct held *find(const struct engine *engine, struct bytes resource)
{
    struct table_node *node = table_find(&engine->held, resource);
    return node == NULL ? NULL : of_node(node);
}

/* Out of the table. */
static void dispose(struct table_node *node)
{
    struct held *held = of_node(node);

    timer_stop(held->engine, &held->timer);
    list_remove(&held->of_session);
    if (held->asking != NULL)
        held->asking->held = NULL;
    free(held);
}

static void drop(struct held *held)
{
    table_remove(&held->engine->held, &held->node);
    dispose(&held->node);
}

static void publish(const struct held *held, enum event_kind kind)
{
    events_publish(held->engine,
                   &(struct event){.kind = kind,
                                   .resource = name_of(held),
                                   .owner = {held->bytes + held->name_len, held->owner_len},
                                   .token = held->token,
                                   .ttl_ms = held->ttl_ms});
}

static void tell_holder(const struct held *held, const char *reason)
{
    if (held->holder != NULL)
        events_push_lost(held->holder, name_of(held), held->token, reason);
}

/* Another daemon has ended it. */
static void end_elsewhere(struct held *held, bool revoked)
{
    publish(held, revoked ? EVENT_REVOKED : EVENT_RELEASED);
    if (revoked)
        tell_holder(held, "revoked");
    drop(held);
}

static void expire(struct held *held, const char *reason)
{
    held->engine->counters.leases_expired++;
    publish(held, EVENT_EXPIRED);
    tell_holder(held, reason);
    drop(held);
}

static void answered(struct lease_call *call)
{
    struct look *look = list_entry(call, struct look, call);
    struct engine *engine = look->engine;
    struct held *held = look->held;
    bool still = held != NULL && call->answer == LEASE_HELD && call->answer_token == held->token;
    bool ended = look->doubted && (call->answer == LEASE_HELD || call->answer == LEASE_FREE);
    bool revoked = look->revoked;
    int64_t answer_ttl_ms = call->answer_ttl_ms;

    engine->requests_open--;
    free(look);
    if (held == NULL)
        return;
    held->asking = NULL;
    if (ended && !still) {
        end_elsewhere(held, revoked);
        return;
    }
    if (engine_now_ms(engine) >= held->until_ms) {
        if (!still) {
            expire(held, "expired");
            return;
        }
        held->until_ms = engine_now_ms(engine) + answer_ttl_ms; /* renewed elsewhere */
    }
    timer_set(engine, &held->timer, held->until_ms + 1);
}

static void ask(struct held *held, bool doubted, bool revoked)
{
    struct engine *engine = held->engine;
    struct look *look = mem_zalloc(sizeof *look + held->name_len);
    memcpy(look->name, held->bytes, held->name_len);
    look->engine = engine;
    look->held = held;
    look->doubted = doubted;
    look->revoked = revoked;
    look->call = (struct lease_call){
        .verb = LEASE_QUERY,
        .resource = {look->name, held->name_len},
        .token = held->token,
        .memory = {.token = held->token, .live = true, .this_run = true, .ttl_ms = held->ttl_ms},
        .done = answered};
    held->asking = look;
    engine->requests_open++;
    lease_ask(engine->options.provider, &look->call);
}

static void due(struct timer *timer)
{
    struct held *held = list_entry(timer, struct held, timer);

    if (held->engine->draining)
        drop(held);
    else if (held->asking == NULL) /* else its answer looks at the time */
        ask(held, false, false);
}

void held_doubt(struct engine *engine, struct bytes resource, int64_t token, bool revoked)
{
    struct held *held = find(engine, resource);
    if (held != NULL && held->token == token && held->asking == NULL && !engine->draining)
        ask(held, true, revoked);
}

static void set_until(struct held *held, int64_t ttl_ms)
{
    held->ttl_ms = (int32_t)ttl_ms;
    held->until_ms = engine_now_ms(held->engine) + ttl_ms;
    timer_set(held->engine, &held->timer, held->until_ms + 1);
}

static void set_holder(struct held *held, struct session *session)
{
    list_remove(&held->of_session);
    list_append(&session->held, &held->of_session);
    held->holder = session;
}

/* A store that was made at this start cannot know what another one has handed out. The lease
 * service may: then somebody should hear of it, once in a while. (Its counter is ahead, too, where
 * a first grant was not recorded.) */
static void warn_behind(struct engine *engine, const struct held_grant *grant)
{
    int64_t now_ms = engine_now_ms(engine);
    char name[64];

    if (!grant->behind || store_session(engine->options.store) != STORE_SESSION_FIRST)
        return;
    if (engine->counters.grants_behind++ > 0 && now_ms - engine->behind_said_ms < BEHIND_SAID_MS)
        return;
    engine->behind_said_ms = now_ms;
    log_warn(engine->options.log,
             "the lease service has counted %s up to %lld, and the store, which is new, knows "
             "nothing of it: if there was a store before, stop, and put its file back or restore a "
             "backup (stockade restore)",
             log_quoted(grant->resource, name, sizeof name), (long long)grant->token - 1);
}

void held_granted(struct engine *engine, const struct held_grant *grant)
{
    struct held *held = find(engine, grant->resource);

    if (held != NULL && held->token != grant->token) {
        expire(held, "taken"); /* the service gave it to another */
        held = NULL;
    }
    bool fresh = held == NULL;
    if (fresh) {
        held = mem_zalloc(offsetof(struct held, bytes) + grant->resource.len + grant->owner.len);
        held->engine = engine;
        held->timer.fire = due;
        held->token = grant->token;
        held->name_len = (uint16_t)grant->resource.len;
        held->owner_len = (uint16_t)grant->owner.len;
        memcpy(held->bytes, grant->resource.data, grant->resource.len);
        memcpy(held->bytes + held->name_len, grant->owner.data, grant->owner.len);
        list_init(&held->of_session);
        table_add(&engine->held, &held->node);
    }
    held->ephemeral = grant->ephemeral;
    set_holder(held, grant->session);
    set_until(held, grant->ttl_ms);
    warn_behind(engine, grant);
    if (grant->fresh)
        publish(held, EVENT_GRANTED);
}

void held_renewed(struct engine *engine, struct bytes resource, int64_t token, int64_t ttl_ms,
                  struct session *notified)
{
    struct held *held = find(engine, resource);

    if (notified != NULL)
        notified->notified = true;
    if (held == NULL || held->token != token)
        return;
    set_until(held, ttl_ms);
    if (notified != NULL && !held->ephemeral) /* else it goes with the connection that it has */
        set_holder(held, notified);
}

void held_returned(struct engine *engine, struct bytes resource, int64_t token, bool revoked)
{
    struct held *held = find(engine, resource);

    if (held == NULL || held->token != token) { /* granted elsewhere, or in an earlier run */
        events_publish(engine, &(struct event){.kind = revoked ? EVENT_REVOKED : EVENT_RELEASED,
                                               .resource = resource,
                                               .token = token});
        return;
    }
    publish(held, revoked ? EVENT_REVOKED : EVENT_RELEASED);
    if (revoked)
        tell_holder(held, "revoked");
    drop(held);
}

/* A lease that goes with its connection. */
struct closing {
    struct lease_return back;
    struct buf name;
};

static void closed(struct lease_return *back)
{
    struct closing *closing = list_entry(back, struct closing, back);
    struct engine *engine = back->engine;

    engine->requests_open--;
    engine->counters.leases_released += back->error == STK_OK && back->let_go;
    buf_free(&closing->name);
    free(closing);
}

static void give_back(const struct held *held, int64_t connection)
{
    struct closing *closing = mem_zalloc(sizeof *closing);

    buf_append_bytes(&closing->name, name_of(held));
    closing->back = (struct lease_return){.engine = held->engine,
                                          .kind = RETURN_CLOSE,
                                          .resource = buf_bytes(&closing->name),
                                          .token = held->token,
                                          .session = store_session(held->engine->options.store),
                                          .connection = connection,
                                          .own_only = true,
                                          .done = closed};
    held->engine->requests_open++;
    lease_return_start(&closing->back);
}

void held_session_closed(struct session *session)
{
    struct list *link;

    while ((link = list_pop(&session->held)) != NULL) {
        struct held *held = list_entry(link, struct held, of_session);
        held->holder = NULL;
        if (held->ephemeral)
            give_back(held, (int64_t)session->id);
    }
}

void held_init(struct engine *engine)
{
    table_init(&engine->held, name_of_node);
}

void held_free(struct engine *engine)
{
    table_drain(&engine->held, dispose);
    table_free(&engine->held);
}
