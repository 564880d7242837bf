/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on one Redis, or on the master that sentinels name: lease calls become
 * scripts, replies become answers.
 *
 *   lease_ask ──▶ ask ──▶ EVALSHA ──▶ reply ──▶ done
 *                          ├─ NOSCRIPT ─▶ EVAL ─┤
 *                          └─ granted ─▶ WAIT ──┘  (with replicas=n; too few: given back)
 *
 * While Redis is away a call is answered DOWN at once. A release that was not delivered, and a
 * grant whose outcome is unknown, leave a debt (debts.h): a release that is sent first thing when
 * Redis is back. It names a token that was retired, or the attempt, so it can never undo a grant
 * that its owner was told of, here or by another daemon.
 *
 * A Redis that is there but refuses (READONLY, OOM, ...) counts as down until it takes a write
 * again. The provider tries one now and then. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/redis/conn.h"
#include "fence/lease/redis/debts.h"
#include "fence/lease/redis/node.h"
#include "fence/lease/redis/sentinels.h"
#include "fence/lease/redis/slots.h"
#include "fence/token.h"

#define CALLS_MAX         100000 /* under way */
#define PROBE_MS          500
#define PROBE_REPLICAS_MS 1500
#define PROBE_TOKEN       1

struct redis_provider {
    struct lease_provider base;
    struct lease_uri uri;
    struct lease_surroundings surroundings;
    char channel[REDIS_CHANNEL_MAX + 1], origin[SCRIPT_ORIGIN_LEN + 1];
    struct script_self self;
    struct redis_conn *requester;
    struct redis_conn *listener;           /* NULL: nobody watches */
    struct sentinels *sentinels;           /* NULL: the URI names the Redis itself */
    const struct node_events *node_events; /* of a cluster's master; else NULL */
    void *node_context;
    bool asking; /* during node_ask_once */

    size_t under_way;
    uint64_t attempts;       /* the last one's name; counts on from a random number */
    struct script_args args; /* scratch */
    struct debts debts;

    /* Where replicas have to confirm grants (replicas=n). */
    struct redis_request wait; /* WAIT */
    bool waiting;              /* for its answer */
    struct list covered;       /* struct pending: those that the WAIT under way stands for */
    struct list uncovered;     /* granted since it was sent: the next one's */
    bool replicas_missing;     /* the last grant went to too few */

    uv_timer_t probe_timer; /* runs while Redis refuses */
    struct lease_call probe;
    bool probing;

    bool closing;
    unsigned open; /* connections, the sentinels, and the timer */
};

/* A lease call that was sent. */
struct pending {
    struct redis_request request;
    struct redis_provider *provider;
    struct lease_call *call;
    bool by_text;
    bool asking; /* ASKING goes before it */
    struct redis_request ask;
    struct list link; /* in `covered` or `uncovered` */
};

static int64_t now_ms(const struct redis_provider *provider)
{
    return clock_now_ms(provider->surroundings.clock);
}

/* A call goes out, and its answer comes in. */

static void send_script(struct pending *pending)
{
    struct redis_provider *provider = pending->provider;

    script_args(pending->call, &provider->self, &provider->args);
    if (pending->asking)
        redis_conn_send(provider->requester, &pending->ask, 1, (const char *[]){"ASKING"});
    redis_conn_send_script(provider->requester, &pending->request, pending->call->verb,
                           pending->by_text, &provider->args);
}

static void finish(struct pending *pending)
{
    struct redis_provider *provider = pending->provider;
    struct lease_call *call = pending->call;

    provider->under_way--;
    free(pending);
    if (call == &provider->probe)
        call->done(call); /* nobody asked for it: it does not count */
    else
        lease_answered(&provider->base, call);
}

static void on_probe_due(uv_timer_t *timer);

/* Not so soon where replicas are missing: to wait for them holds up everybody else. */
static void probe_later(struct redis_provider *provider)
{
    uv_timer_start(&provider->probe_timer, on_probe_due,
                   provider->replicas_missing ? PROBE_REPLICAS_MS : PROBE_MS, 0);
}

static void note_refusal(struct redis_provider *provider, const char *why)
{
    redis_conn_refused(provider->requester, why);
    if (provider->node_events == NULL && !provider->closing &&
        !uv_is_active((uv_handle_t *)&provider->probe_timer))
        probe_later(provider);
}

/* Whether enough replicas have what the master granted is asked with WAIT, for at most a quarter of
 * the time that a request has: Redis answers nothing else on the connection meanwhile. (It looks at
 * the time of those who wait only ten times a second.) One WAIT is under way at a time, and stands
 * for all grants that were answered before it was sent; those that come meanwhile share the next.
 */

static void pay_debts(void *context);

/* `why`: they are too few, or nobody knows; NULL: enough. */
static void on_replicas(struct pending *pending, const char *why)
{
    struct redis_provider *provider = pending->provider;
    struct lease_call *call = pending->call;

    provider->replicas_missing = why != NULL;
    if (why == NULL) {
        redis_conn_accepted(provider->requester);
    } else {
        int64_t until_ms = now_ms(provider) + call->ttl_ms;
        debts_add(&provider->debts, call, call->answer_token, until_ms, now_ms(provider));
        call->answer = LEASE_UNANSWERED;
        lease_answer_down(call, "%s", why);
        if (redis_conn_is_ready(provider->requester)) {
            note_refusal(provider, why);
            pay_debts(provider);
        }
    }
    finish(pending);
}

static void replicas_answered(struct list *granted, const char *why)
{
    struct list *link;

    while ((link = list_pop(granted)) != NULL)
        on_replicas(list_entry(link, struct pending, link), why);
}

static int wait_ms(const struct redis_provider *provider)
{
    return provider->uri.timeout_ms < 4 ? 1 : provider->uri.timeout_ms / 4;
}

static void send_wait(struct redis_provider *provider)
{
    char needed[16], time_ms[16];

    if (provider->waiting || list_empty(&provider->uncovered))
        return;
    if (!redis_conn_is_ready(provider->requester)) {
        replicas_answered(&provider->uncovered, redis_conn_reason(provider->requester));
        return;
    }
    list_splice(&provider->covered, &provider->uncovered);
    provider->waiting = true;
    snprintf(needed, sizeof needed, "%d", provider->uri.replicas);
    snprintf(time_ms, sizeof time_ms, "%d", wait_ms(provider));
    redis_conn_send(provider->requester, &provider->wait, 3,
                    (const char *[]){"WAIT", needed, time_ms});
}

static void on_waited(struct redis_request *request, const struct redisReply *reply,
                      const char *why)
{
    struct redis_provider *provider = list_entry(request, struct redis_provider, wait);
    int needed = provider->uri.replicas;
    char error[SCRIPT_ERROR_MAX];

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        script_error(reply, error);
        why = error;
    } else if (reply != NULL && (reply->type != REDIS_REPLY_INTEGER || reply->integer < needed)) {
        snprintf(error, sizeof error, "%lld of %d replicas have the grant within %d ms",
                 reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0, needed,
                 wait_ms(provider));
        why = error;
    }
    provider->waiting = false;
    replicas_answered(&provider->covered, why);
    send_wait(provider);
}

static bool is_noscript(const struct redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

/* Has another master of the cluster to answer it, or this one later? */
static bool is_redirect(const struct redis_provider *provider, const struct redisReply *reply)
{
    return provider->node_events != NULL && reply->type == REDIS_REPLY_ERROR &&
           redirect_read((struct bytes){reply->str, reply->len}, &provider->uri.hosts[0]).kind !=
               REDIRECT_NONE;
}

/* Whether ASKING has worked shows in the answer to the call behind it. */
static void on_asked(struct redis_request *request, const struct redisReply *reply, const char *why)
{
    (void)request, (void)reply, (void)why;
}

static void on_reply(struct redis_request *request, const struct redisReply *reply, const char *why)
{
    struct pending *pending = list_entry(request, struct pending, request);
    struct redis_provider *provider = pending->provider;
    struct lease_call *call = pending->call;
    char error[SCRIPT_ERROR_MAX];

    if (reply == NULL) {
        debts_note(&provider->debts, call, now_ms(provider));
        lease_answer_down(call, "%s", why);
    } else if (is_noscript(reply) && !pending->by_text &&
               redis_conn_is_ready(provider->requester)) {
        pending->by_text = true;
        send_script(pending);
        return;
    } else if (is_redirect(provider, reply)) {
        provider->under_way--;
        free(pending);
        provider->node_events->on_redirect(provider->node_context, call,
                                           (struct bytes){reply->str, reply->len});
        return;
    } else if (reply->type == REDIS_REPLY_ERROR) {
        script_error(reply, error);
        if (call->verb == LEASE_RELEASE)
            debts_note(&provider->debts, call, now_ms(provider));
        lease_answer_down(call, "%s", error);
        note_refusal(provider, error);
    } else if (!script_answer(call, reply)) {
        lease_answer_down(call, "an answer that makes no sense (is it Redis?)");
    } else if (call->answer == LEASE_GRANTED && provider->uri.replicas > 0 &&
               (call->verb == LEASE_GRANT || call == &provider->probe)) {
        list_append(&provider->uncovered, &pending->link);
        send_wait(provider);
        return;
    } else if (script_wrote(reply) && !provider->replicas_missing) {
        redis_conn_accepted(provider->requester);
    }
    finish(pending);
}

static void send_call(struct redis_provider *provider, struct lease_call *call)
{
    struct pending *pending = mem_zalloc(sizeof *pending);

    pending->request.done = on_reply;
    pending->ask.done = on_asked;
    pending->asking = provider->asking;
    provider->asking = false;
    pending->provider = provider;
    pending->call = call;
    if (call->verb == LEASE_GRANT)
        call->attempt = ++provider->attempts;
    provider->under_way++;
    send_script(pending);
}

static bool redis_ask(struct lease_provider *base, struct lease_call *call)
{
    struct redis_provider *provider = (struct redis_provider *)(void *)base;
    bool ready = redis_conn_is_ready(provider->requester);

    call->deadline_ms = now_ms(provider) + call->ttl_ms; /* RELEASE: the lock's end */
    if (ready && provider->under_way < CALLS_MAX) {
        send_call(provider, call);
        return false;
    }
    if (call->verb == LEASE_RELEASE)
        debts_note(&provider->debts, call, now_ms(provider));
    return lease_answer_down(
        call, "%s", ready ? "too many calls under way" : redis_conn_reason(provider->requester));
}

/* Paying debts. One that cannot be paid is noted again, as any other release. (Paying may come back
 * here, where a refusal ends the connection.) */

static void on_paid(struct lease_call *call)
{
    free(list_entry(call, struct debt, call));
}

static void pay_debts(void *context)
{
    struct redis_provider *provider = context;
    int64_t began_ms = now_ms(provider);
    struct debt *debt;

    while (redis_conn_is_ready(provider->requester) &&
           (debt = debts_take(&provider->debts, began_ms)) != NULL) {
        debt->call.done = on_paid;
        debt->call.deadline_ms = began_ms + debt->call.ttl_ms;
        send_call(provider, &debt->call);
    }
}

/* Probing a Redis that refuses: renew the lock of a resource that nobody can have, for a moment. */

static void on_probed(struct lease_call *call)
{
    struct redis_provider *provider = list_entry(call, struct redis_provider, probe);
    provider->probing = false;
}

static void on_probe_due(uv_timer_t *timer)
{
    struct redis_provider *provider = timer->data;

    if (!redis_conn_is_refusing(provider->requester))
        return;
    probe_later(provider);
    if (provider->probing)
        return;
    provider->probing = true;
    provider->probe = (struct lease_call){.verb = LEASE_RENEW,
                                          .resource = BYTES_LITERAL(""),
                                          .token = PROBE_TOKEN,
                                          .ttl_ms = 1,
                                          .nonce = "probe",
                                          .done = on_probed};
    send_call(provider, &provider->probe);
}

/* The rest of the interface. */

static void redis_health(const struct lease_provider *base, struct lease_health *health)
{
    const struct redis_provider *provider = (const struct redis_provider *)(const void *)base;

    redis_conn_health(provider->requester, health);
    health->watching = provider->listener != NULL && redis_conn_is_ready(provider->listener);
}

static void on_message(void *context, struct bytes message)
{
    struct redis_provider *provider = context;
    struct lease_news news;

    if (script_news(message, &provider->self, &news))
        lease_tell(&provider->base, &news);
}

static enum redis_located locate(void *context, bool last, struct uri_host *master,
                                 char why[REDIS_WHY_MAX])
{
    const struct redis_provider *provider = context;
    return sentinels_locate(provider->sentinels, last, master, why);
}

static void on_master_lost(void *context)
{
    sentinels_ask_again(((struct redis_provider *)context)->sentinels);
}

static void on_ready(void *context)
{
    struct redis_provider *provider = context;

    if (provider->node_events != NULL)
        provider->node_events->on_ready(provider->node_context);
    pay_debts(provider);
}

static const struct redis_events events = {
    .on_ready = on_ready,
    .on_message = on_message,
    .locate = locate,
    .on_master_lost = on_master_lost,
};

static void redis_watch(struct lease_provider *base)
{
    struct redis_provider *provider = (struct redis_provider *)(void *)base;
    bool at_master = provider->uri.kind == LEASE_URI_SENTINEL;

    check(provider->listener == NULL);
    provider->listener =
        redis_conn_new(at_master ? REDIS_MASTER_LISTENER : REDIS_LISTENER, &provider->uri,
                       &provider->surroundings, provider->channel, &events, provider);
    provider->open++;
}

static void redis_on_first_attempt(struct lease_provider *base, void (*ended)(void *context),
                                   void *context)
{
    redis_conn_on_first_attempt(((struct redis_provider *)(void *)base)->requester, ended, context);
}

static void on_closed(void *context)
{
    struct redis_provider *provider = context;

    if (--provider->open > 0)
        return;
    check(provider->under_way == 0);
    buf_free(&provider->args.text);
    debts_free(&provider->debts);
    lease_provider_closed(&provider->base);
}

static void on_timer_closed(uv_handle_t *timer)
{
    on_closed(timer->data);
}

static void redis_close(struct lease_provider *base)
{
    struct redis_provider *provider = (struct redis_provider *)(void *)base;

    provider->closing = true;
    uv_close((uv_handle_t *)&provider->probe_timer, on_timer_closed);
    redis_conn_close(provider->requester, on_closed, provider);
    if (provider->listener != NULL)
        redis_conn_close(provider->listener, on_closed, provider);
    if (provider->sentinels != NULL)
        sentinels_close(provider->sentinels, on_closed, provider);
}

#define IMPL(name_)                                                                                \
    {                                                                                              \
        .name = (name_), .ask = redis_ask, .watch = redis_watch, .health = redis_health,           \
        .close = redis_close, .on_first_attempt = redis_on_first_attempt,                          \
    }
static const struct lease_provider_impl redis_impl = IMPL("redis");
static const struct lease_provider_impl sentinel_impl = IMPL("sentinel");

static void on_sentinels_change(void *context)
{
    struct redis_provider *provider = context;

    redis_conn_relocate(provider->requester);
    if (provider->listener != NULL)
        redis_conn_relocate(provider->listener);
}

/* The channel, and who we are there. */
static void name_self(struct redis_provider *provider)
{
    const struct chance *chance = provider->surroundings.chance;
    const struct lease_uri *uri = &provider->uri;

    chance_hex(chance, provider->origin, SCRIPT_ORIGIN_LEN);
    chance->fill(chance, &provider->attempts, sizeof provider->attempts);
    if (uri->db == 0)
        snprintf(provider->channel, sizeof provider->channel, "%s:wake", uri->prefix);
    else
        snprintf(provider->channel, sizeof provider->channel, "%s:wake:%d", uri->prefix, uri->db);
    provider->self = (struct script_self){uri->prefix, provider->channel, provider->origin, false};
}

static struct redis_provider *provider_new(const struct lease_uri *uri,
                                           const struct lease_surroundings *surroundings)
{
    struct redis_provider *provider = mem_zalloc(sizeof *provider);

    provider->base.impl = &redis_impl;
    provider->uri = *uri;
    provider->surroundings = *surroundings;
    name_self(provider);
    check(uv_timer_init(surroundings->loop, &provider->probe_timer) == 0);
    provider->probe_timer.data = provider;
    provider->open = 2;
    provider->wait.done = on_waited;
    list_init(&provider->covered);
    list_init(&provider->uncovered);
    return provider;
}

struct lease_provider *lease_redis_new(const struct lease_uri *uri,
                                       const struct lease_surroundings *surroundings)
{
    struct redis_provider *provider = provider_new(uri, surroundings);
    bool at_master = uri->kind == LEASE_URI_SENTINEL;

    if (at_master) {
        provider->base.impl = &sentinel_impl;
        provider->open++;
        provider->sentinels = sentinels_new(uri, surroundings, on_sentinels_change, provider);
    }
    provider->requester = redis_conn_new(at_master ? REDIS_MASTER_REQUESTER : REDIS_REQUESTER, uri,
                                         surroundings, NULL, &events, provider);
    return &provider->base;
}

/* A cluster's master. */

struct lease_provider *lease_redis_node_new(const struct lease_uri *uri,
                                            const struct lease_surroundings *surroundings,
                                            const struct script_self *self,
                                            const struct node_events *node_events, void *context)
{
    struct redis_provider *provider = provider_new(uri, surroundings);

    provider->self = *self;
    provider->node_events = node_events;
    provider->node_context = context;
    provider->requester =
        redis_conn_new(REDIS_REQUESTER, uri, surroundings, NULL, &events, provider);
    return &provider->base;
}

static struct redis_provider *of_node(struct lease_provider *node)
{
    return (struct redis_provider *)(void *)node;
}

bool node_is_ready(const struct lease_provider *node)
{
    return redis_conn_is_ready(((const struct redis_provider *)(const void *)node)->requester);
}

void node_ask_once(struct lease_provider *node, struct lease_call *call)
{
    of_node(node)->asking = true;
    lease_ask(node, call);
    of_node(node)->asking = false;
}

void node_send(struct lease_provider *node, struct redis_request *request, int argc,
               const char **argv)
{
    redis_conn_send(of_node(node)->requester, request, argc, argv);
}

void node_take_debts(struct lease_provider *node, struct debts *debts)
{
    debts_splice(debts, &of_node(node)->debts);
}
