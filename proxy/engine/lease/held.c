/* SPDX-License-Identifier: Apache-2.0 */
/* The leases that this daemon watches: who has to be told when one is lost, and which ones end with
 * their connection. Nothing is decided here: the lease service says whether a lease is over, and
 * the store whether its token is good.
 *
 *   confirmed ──▶ held ──timer, news──▶ asking store, service ──held still──▶ held
 *     ▲            │                            └──free, another's──▶ expired, or ended elsewhere
 *     │            └──released, revoked, granted to another──▶ gone          │
 *     └──────────────────────────── taken back by a renewal ─────────────────┘
 *
 * Invariant: each lease that the store and the lease service have confirmed here last is held until
 * its end was seen. So whoever confirms one, in whatever way, ends in held_confirmed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/log.h"
#include "fence/base/mem.h"
#include "fence/base/table.h"
#include "proxy/engine/history/history.h"
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/lease/lock_clients.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/session/facts.h"

enum {
    WARNING_MS = 60000, /* between two that say the same */
    ASK_AGAIN_MS = 100, /* the store had too much to do to say whether a lease is over */
    SLACK_MS = 20,      /* between the lease service's clock and ours */
};

/* There may be a million: small. */
struct held {
    struct table_node node;  /* in engine->held */
    struct account *account; /* whose it is; and its engine */
    struct session *holder;  /* NULL: that connection is gone */
    struct list of_session;  /* holder->held */
    struct timer timer;      /* when the lease should be over */
    struct query *query;     /* under way, or NULL */
    int64_t token, until_ms;
    int64_t granted_ms; /* since 1970 */
    struct lock_client *lock_client;
    struct history_grant *entry; /* NULL: it has made room */
    int32_t ttl_ms;
    uint16_t name_len, owner_len;
    bool ephemeral, presented;
    char bytes[]; /* the resource's name, then the owner's; no padding before it */
};
_Static_assert(LEASE_TTL_MAX_MS <= INT32_MAX, "ttl_ms fits");

/* Store and service are asked whether a lease is over: another daemon may have renewed it, or ended
 * it. Outlives an entry that goes meanwhile. */
struct query {
    struct held *held;       /* NULL: gone */
    bool suspected, revoked; /* another daemon says that it has ended: how */
    struct lease_view view;
    char name[];
};

/* A field of its own would be 8 bytes of each lease. */
static struct engine *engine_of(const struct held *held)
{
    return account_engine(held->account);
}

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

    timer_stop(engine_of(held), &held->timer);
    list_remove(&held->of_session);
    if (held->query != NULL)
        held->query->held = NULL;
    history_let_go(held->entry);
    account_give(held->account, ACCOUNT_LEASES);
    account_drop(held->account);
    free(held);
}

static void drop(struct held *held)
{
    if (held->lock_client != NULL && !engine_of(held)->draining)
        lock_client_ended(held->lock_client, name_of(held), held->presented);
    table_remove(&engine_of(held)->held, &held->node);
    dispose(&held->node);
}

static struct fact about(struct held *held, enum fact_kind kind)
{
    return (struct fact){.kind = kind,
                         .resource = name_of(held),
                         .owner = {held->bytes + held->name_len, held->owner_len},
                         .user = bytes_of(account_name(held->account)),
                         .token = held->token,
                         .ttl_ms = held->ttl_ms,
                         .until_ms = held->until_ms,
                         .holder = held->holder,
                         .entry = &held->entry};
}

/* Another daemon has released or revoked it. */
static void end_elsewhere(struct held *held, bool revoked)
{
    struct fact fact = about(held, revoked ? FACT_REVOKED : FACT_RELEASED);

    fact.elsewhere = true;
    engine_tell(engine_of(held), &fact);
    drop(held);
}

bool held_is_over_unheard(const struct engine *engine, struct bytes resource,
                          struct silence *silence)
{
    const struct held *held = find(engine, resource);

    if (held == NULL || held->holder == NULL || engine_now_ms(engine) + SLACK_MS < held->until_ms)
        return false;
    *silence = (struct silence){held->holder, held->until_ms - held->ttl_ms / 2};
    return held->holder->active_ms <= silence->since_ms;
}

/* Its time is over, or, before that, the service gave it to another. */
static void expire(struct held *held, bool taken)
{
    bool is_taken = taken && history_taken(engine_of(held)->history, held->entry) == HISTORY_TAKEN;
    struct fact fact = about(held, is_taken ? FACT_TAKEN : FACT_EXPIRED);
    struct silence silence;

    engine_tell(engine_of(held), &fact);
    if (!taken && held_is_over_unheard(engine_of(held), name_of(held), &silence))
        line_put_behind(engine_of(held), name_of(held), &silence);
    drop(held);
}

/* What the query has found out, of a lease that is held as far as was known here. */
static void judge(struct held *held, const struct query *query)
{
    const struct lease_view *view = &query->view;
    struct engine *engine = view->engine;
    bool over = engine_now_ms(engine) >= held->until_ms, known = view->error == STK_OK;
    bool newest = known && view->row.fence.token == held->token;
    bool retired = newest && view->row.fence.state != FENCE_LIVE;
    bool still = newest && view->held && view->call.answer_token == held->token;

    if (over && view->error == STK_BUSY) {
        timer_set(engine, &held->timer, engine_now_ms(engine) + ASK_AGAIN_MS);
    } else if (retired) {
        end_elsewhere(held, view->row.fence.state == FENCE_REVOKED);
    } else if (query->suspected && known && !still) {
        end_elsewhere(held, query->revoked);
    } else if (over && !still) {
        expire(held, false);
    } else {
        if (over) { /* renewed elsewhere */
            held->until_ms = engine_now_ms(engine) + view->left_ms;
            history_renewed(held->entry, held->until_ms);
        }
        timer_set(engine, &held->timer, held->until_ms + 1);
    }
}

static void on_seen(struct lease_view *view)
{
    struct query *query = list_entry(view, struct query, view);
    struct held *held = query->held;

    view->engine->requests_open--;
    if (held != NULL) {
        held->query = NULL;
        judge(held, query);
    }
    buf_free(&view->owner);
    free(query);
}

static void ask(struct held *held, bool suspected, bool revoked)
{
    struct engine *engine = engine_of(held);
    struct query *query = mem_zalloc(sizeof *query + held->name_len);
    memcpy(query->name, held->bytes, held->name_len);
    query->held = held;
    query->suspected = suspected;
    query->revoked = revoked;
    query->view.engine = engine;
    query->view.resource = (struct bytes){query->name, held->name_len};
    query->view.on_end = on_seen;
    held->query = query;
    engine->requests_open++;
    lease_view_start(&query->view);
}

static void on_timer(struct timer *timer)
{
    struct held *held = list_entry(timer, struct held, timer);

    if (engine_of(held)->draining)
        drop(held);
    else if (held->query == NULL) /* else its answer minds the time */
        ask(held, false, false);
}

void held_on_news(void *context, const struct lease_news *news)
{
    struct engine *engine = context;
    struct held *held = find(engine, news->resource);

    if (held != NULL && held->token == news->token && held->query == NULL && !engine->draining)
        ask(held, true, news->revoked);
    line_wake(engine, news->resource);
}

static void set_until(struct held *held, int64_t ttl_ms)
{
    held->ttl_ms = (int32_t)ttl_ms;
    held->until_ms = engine_now_ms(engine_of(held)) + ttl_ms;
    timer_set(engine_of(held), &held->timer, held->until_ms + 1);
    history_renewed(held->entry, held->until_ms);
}

static void set_holder(struct held *held, struct session *session)
{
    if (session == NULL)
        return;
    list_remove(&held->of_session);
    list_append(&session->held, &held->of_session);
    held->holder = session;
}

/* A store that was made at this start cannot know what another one has handed out. The lease
 * service may: then somebody should hear of it, once in a while. (Its counter is ahead, too, where
 * a first grant was not recorded.) */
static void warn_counter_ahead(struct engine *engine, const struct grant *grant)
{
    char name[64];

    if (!grant->counter_ahead || store_opening(engine->options.store) != STORE_OPENING_FIRST)
        return;
    int64_t now_ms = engine_now_ms(engine);
    if (engine->counters.grants_behind++ > 0 && now_ms - engine->behind_said_ms < WARNING_MS)
        return;
    engine->behind_said_ms = now_ms;
    log_warn(engine->options.log,
             "the lease service has counted %s up to %lld, and the store, which is new, knows "
             "nothing of it: if there was a store before, stop, and put its file back or restore a "
             "backup (stockade restore)",
             log_quoted(grant->resource, name, sizeof name), (long long)grant->token - 1);
}

/* What it is that a lease becomes known here. */
static enum fact_kind beginning_of(const struct grant *grant)
{
    if (grant->by == GRANT_NEW)
        return FACT_GRANTED;
    if (grant->this_opening) /* it was known here once, and its end told of */
        return FACT_RESUMED;
    return grant->by == GRANT_ENTRY   ? FACT_ENTERED
           : grant->by == GRANT_FOUND ? FACT_FOUND
                                      : FACT_TAKEN_IN;
}

static struct held *add(struct engine *engine, const struct grant *grant)
{
    struct bytes owner = scope_name(grant->owner);
    struct held *held = mem_zalloc(offsetof(struct held, bytes) + grant->resource.len + owner.len);

    held->account = account_keep(grant->account);
    account_add(held->account, ACCOUNT_LEASES);
    held->timer.fire = on_timer;
    held->token = grant->token;
    held->granted_ms = clock_wall_us(engine->options.clock) / 1000 - grant->age_ms;
    held->name_len = (uint16_t)grant->resource.len;
    held->owner_len = (uint16_t)owner.len;
    memcpy(held->bytes, grant->resource.data, grant->resource.len);
    memcpy(held->bytes + held->name_len, owner.data, owner.len);
    list_init(&held->of_session);
    table_add(&engine->held, &held->node);
    return held;
}

/* It was not known. */
static void begin(struct held *held, const struct grant *grant)
{
    struct engine *engine = engine_of(held);
    struct fact fact = about(held, beginning_of(grant));
    const struct history_grant *kept =
        grant->by == GRANT_NEW ? NULL
                               : history_find(engine->history, grant->resource, grant->token);

    if (kept != NULL)
        held->granted_ms = kept->granted_ms;
    if (grant->by < GRANT_RENEWAL)
        fact.until_ms = grant->until_ms;
    fact.ttl_ms = grant->ttl_ms;
    fact.asker = grant->session;
    engine_tell(engine, &fact);
}

bool held_confirmed(struct engine *engine, const struct grant *grant)
{
    struct held *held = find(engine, grant->resource);
    bool renewed = grant->by >= GRANT_RENEWAL;

    if (held != NULL && held->token > grant->token)
        return true; /* it has ended since */
    bool is_known = held != NULL && held->token == grant->token;
    if (!is_known && grant->owner.len == 0)
        return false;
    if (!is_known && held != NULL)
        expire(held, true);
    if (!is_known)
        held = add(engine, grant);
    if (!renewed) {
        if (grant->lock_client != NULL && held->lock_client == NULL)
            lock_client_took(grant->lock_client);
        held->lock_client = grant->lock_client;
    }
    if (!renewed || !is_known)
        held->ephemeral = grant->ephemeral;
    if (!renewed || !is_known || !held->ephemeral) /* else it goes with the one that it has */
        set_holder(held, grant->holder);
    set_until(held, grant->left_ms);
    if (!is_known)
        begin(held, grant);
    warn_counter_ahead(engine, grant);
    return true;
}

void held_presented(struct engine *engine, struct bytes resource, int64_t token)
{
    struct held *held = find(engine, resource);

    if (held != NULL && held->token == token)
        held->presented = true;
}

void held_released(const struct release *release)
{
    struct engine *engine = release->engine;
    struct held *held = find(engine, release->hold.resource);
    enum fact_kind kind = release->kind == RELEASE_REVOKE ? FACT_REVOKED : FACT_RELEASED;
    bool is_known = held != NULL && held->token == release->retired_token;
    struct fact fact = is_known ? about(held, kind)
                                : (struct fact){.kind = kind,
                                                .resource = release->hold.resource,
                                                .token = release->retired_token};

    fact.by = release->by;
    fact.reason = release->reason;
    engine_tell(engine, &fact);
    if (is_known)
        drop(held);
    else
        engine->unknown_ended++;
}

void held_forget_session(struct session *session,
                         void (*each)(struct session *session, struct hold hold))
{
    struct list *link;

    while ((link = list_pop(&session->held)) != NULL) {
        struct held *held = list_entry(link, struct held, of_session);
        held->holder = NULL;
        session->engine->leases_changes++;
        if (held->ephemeral)
            each(session, (struct hold){name_of(held), held->token});
    }
}

static struct held_shown shown_of(const struct held *held)
{
    return (struct held_shown){
        .resource = name_of(held),
        .owner = {held->bytes + held->name_len, held->owner_len},
        .holder = held->holder,
        .token = held->token,
        .granted_ms = held->granted_ms,
        .until_ms = held->until_ms,
        .ttl_ms = held->ttl_ms,
        .writes = held->entry != NULL ? held->entry->writes : 0,
        .counted = held->entry != NULL,
    };
}

bool held_find(struct engine *engine, struct bytes resource, struct held_shown *shown)
{
    const struct held *held = find(engine, resource);

    if (held != NULL)
        *shown = shown_of(held);
    return held != NULL;
}

bool held_walk(struct engine *engine, struct held_walk *walk, size_t max, bool *restarted,
               void (*each)(void *context, const struct held_shown *shown), void *context)
{
    const struct table *table = &engine->held;
    size_t seen = 0;

    *restarted = walk->chains != 0 && walk->chains != table->chains_count;
    if (*restarted)
        walk->chain = 0;
    walk->chains = table->chains_count;
    for (; walk->chain < walk->chains && seen < max; walk->chain++, seen++)
        for (struct table_node *node = table->chains[walk->chain]; node != NULL;
             node = node->next, seen++) {
            const struct held_shown shown = shown_of(of_node(node));
            each(context, &shown);
        }
    return walk->chain < walk->chains;
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
