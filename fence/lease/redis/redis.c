/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on one Redis, or on the one that sentinels name: lease calls to scripts,
 * replies to answers.
 *
 *   lease_ask ──▶ ask ──▶ EVALSHA ──▶ reply ──▶ done
 *                          ├─ NOSCRIPT ─▶ EVAL ─┤
 *                          └─ granted ─▶ WAIT ──┘  (with replicas=n; too few: given back)
 *
 * While Redis is away a call is answered DOWN at once. A release that was not delivered, and a
 * grant whose outcome is unknown, leave a debt (debts.h): releases that are sent first thing when
 * Redis is back. They name a token that was retired, or the attempt, so that a debt can never undo
 * a grant that its owner was told of, here or by another daemon. One that is there and refuses is
 * back when it takes a write again, which is tried until it does. */
#include "fence/lease/redis/redis.h"

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/redis/debts.h"
#include "fence/lease/redis/link.h"
#include "fence/lease/redis/replicas.h"
#include "fence/lease/redis/sentinels.h"
#include "fence/token.h"

#define CALLS_MAX         100000 /* under way */
#define PROBE_MS          500
#define PROBE_REPLICAS_MS 1500
#define PROBE_TOKEN       1

struct redis_provider {
    struct lease_provider base;
    struct lease_uri uri;
    struct lease_surroundings surroundings;
    char channel[LINK_CHANNEL_MAX + 1], origin[SCRIPT_ORIGIN_LEN + 1];
    struct script_self self;
    struct redis_link *link;
    struct redis_link *listener; /* from redis_watch on */
    struct sentinels *sentinels; /* or NULL */
    struct replicas replicas;
    bool replicas_missing; /* the last grant went to too few */
    void (*on_news)(void *context, const struct lease_news *news);
    void *news_context;
    struct script_args args; /* scratch */
    struct debts debts;
    uv_timer_t probe_timer; /* goes while the link refuses */
    struct lease_call probe;
    bool probing, closing;
    size_t under_way;
    uint64_t calls, failures, news;
    uint64_t attempts; /* the last one's name; counts on from a random number */
    unsigned open;     /* links, the sentinels, and the timer */
    void (*closed)(void *context);
    void *closed_context;
};

/* A lease call on its way. */
struct ask {
    struct redis_request request;
    struct redis_provider *provider;
    struct lease_call *call;
    bool by_text;
    struct replicas_wait wait;
};

static void send_ask(struct ask *ask)
{
    struct redis_provider *provider = ask->provider;

    script_args(ask->call, &provider->self, &provider->args);
    redis_link_send(provider->link, &ask->request, ask->call->verb, ask->by_text, &provider->args);
}

/* What a call without a known outcome leaves to be done. A grant may have taken or entered the lock
 * for an owner who will never hear of it. */
static void note_debt(struct redis_provider *provider, const struct lease_call *call)
{
    int64_t now_ms = clock_now_ms(provider->surroundings.clock);

    if (call->verb == LEASE_RELEASE)
        debts_add(&provider->debts, call, call->token, call->deadline_ms, now_ms);
    else if (call->verb == LEASE_GRANT)
        debts_add(&provider->debts, call, 0, now_ms + call->ttl_ms, now_ms);
}

static void pay_debts(void *context);

static void finish(struct ask *ask)
{
    struct redis_provider *provider = ask->provider;
    struct lease_call *call = ask->call;

    provider->failures += call->answer == LEASE_DOWN && call != &provider->probe;
    provider->under_way--;
    free(ask);
    call->done(call);
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
    redis_link_refused(provider->link, why);
    if (!provider->closing && !uv_is_active((uv_handle_t *)&provider->probe_timer))
        probe_later(provider);
}

static void on_replicas(struct replicas_wait *wait, const char *why)
{
    struct ask *ask = list_entry(wait, struct ask, wait);
    struct redis_provider *provider = ask->provider;
    struct lease_call *call = ask->call;
    int64_t now_ms = clock_now_ms(provider->surroundings.clock);

    provider->replicas_missing = why != NULL;
    if (why == NULL) {
        redis_link_accepted(provider->link);
    } else {
        debts_add(&provider->debts, call, call->answer_token, now_ms + call->ttl_ms, now_ms);
        call->answer = LEASE_UNANSWERED;
        lease_answer_down(call, "%s", why);
        if (redis_link_ready(provider->link)) {
            note_refusal(provider, why);
            pay_debts(provider);
        }
    }
    finish(ask);
}

static bool is_noscript(const struct redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

static void on_done(struct redis_request *request, const struct redisReply *reply, const char *why)
{
    struct ask *ask = (struct ask *)(void *)request;
    struct redis_provider *provider = ask->provider;
    struct lease_call *call = ask->call;
    char error[SCRIPT_ERROR_MAX];

    if (reply == NULL) {
        note_debt(provider, call);
        lease_answer_down(call, "%s", why);
    } else if (is_noscript(reply) && !ask->by_text && redis_link_ready(provider->link)) {
        ask->by_text = true;
        send_ask(ask);
        return;
    } else if (reply->type == REDIS_REPLY_ERROR) {
        script_error(reply, error);
        if (call->verb == LEASE_RELEASE)
            note_debt(provider, call);
        lease_answer_down(call, "%s", error);
        note_refusal(provider, error);
    } else if (!script_answer(call, reply)) {
        lease_answer_down(call, "an answer that makes no sense (is it Redis?)");
    } else if (call->answer == LEASE_GRANTED && provider->replicas.needed > 0 &&
               (call->verb == LEASE_GRANT || call == &provider->probe)) {
        ask->wait.done = on_replicas;
        replicas_await(&provider->replicas, &ask->wait);
        return;
    } else if (script_wrote(reply) && !provider->replicas_missing) {
        redis_link_accepted(provider->link);
    }
    finish(ask);
}

static void send_call(struct redis_provider *provider, struct lease_call *call)
{
    struct ask *ask = mem_zalloc(sizeof *ask);

    ask->request.done = on_done;
    ask->provider = provider;
    ask->call = call;
    if (call->verb == LEASE_GRANT)
        call->attempt = ++provider->attempts;
    provider->under_way++;
    send_ask(ask);
}

static bool redis_ask(struct lease_provider *base, struct lease_call *call)
{
    struct redis_provider *provider = (struct redis_provider *)(void *)base;
    bool ready = redis_link_ready(provider->link);

    provider->calls++;
    call->deadline_ms =
        clock_now_ms(provider->surroundings.clock) + call->ttl_ms; /* RELEASE: the lock's end */
    if (ready && provider->under_way < CALLS_MAX) {
        send_call(provider, call);
        return false;
    }
    provider->failures++;
    if (call->verb == LEASE_RELEASE)
        note_debt(provider, call);
    return lease_answer_down(
        call, "%s", ready ? "too many calls under way" : redis_link_reason(provider->link));
}

/* Debts. One that cannot be paid is noted again, as any other release. (Paying may come back here,
 * where a refusal ends the connection.) */

static void on_paid(struct lease_call *call)
{
    free(list_entry(call, struct debt, call));
}

static void pay_debts(void *context)
{
    struct redis_provider *provider = context;
    int64_t now_ms = clock_now_ms(provider->surroundings.clock);
    struct debt *debt;

    while (redis_link_ready(provider->link) &&
           (debt = debts_take(&provider->debts, now_ms)) != NULL) {
        debt->call.done = on_paid;
        debt->call.deadline_ms = now_ms + debt->call.ttl_ms;
        send_call(provider, &debt->call);
    }
}

/* The probe: the lock of a resource that nobody can have, renewed for a moment. */

static void on_probed(struct lease_call *call)
{
    struct redis_provider *provider = list_entry(call, struct redis_provider, probe);
    provider->probing = false;
}

static void on_probe_due(uv_timer_t *timer)
{
    struct redis_provider *provider = timer->data;

    if (!redis_link_refuses(provider->link))
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

static struct lease_health redis_health(const struct lease_provider *base)
{
    const struct redis_provider *provider = (const struct redis_provider *)(const void *)base;
    struct redis_link_health link = redis_link_health(provider->link);
    struct lease_health health = {
        .up = link.up,
        .calls = provider->calls,
        .failures = provider->failures,
        .reconnects = link.reconnects,
        .watching = provider->listener != NULL && redis_link_ready(provider->listener),
        .news = provider->news,
    };

    memcpy(health.detail, link.detail, sizeof health.detail);
    return health;
}

static void on_message(void *context, struct bytes message)
{
    struct redis_provider *provider = context;
    struct lease_news news;

    if (!script_news(message, &provider->self, &news))
        return;
    provider->news++;
    provider->on_news(provider->news_context, &news);
}

static void redis_watch(struct lease_provider *base,
                        void (*on_news)(void *context, const struct lease_news *news),
                        void *context)
{
    struct redis_provider *provider = (struct redis_provider *)(void *)base;

    check(provider->listener == NULL);
    provider->on_news = on_news;
    provider->news_context = context;
    provider->listener = redis_listener_new(&provider->uri, &provider->surroundings,
                                            provider->channel, on_message, provider);
    if (provider->sentinels != NULL)
        redis_link_follow(provider->listener, provider->sentinels);
    provider->open++;
}

static void redis_on_first(struct lease_provider *base, void (*ended)(void *context), void *context)
{
    redis_link_on_first(((struct redis_provider *)(void *)base)->link, ended, context);
}

static void on_closed(void *context)
{
    struct redis_provider *provider = context;
    void (*closed)(void *context) = provider->closed;
    void *closed_context = provider->closed_context;

    if (--provider->open > 0)
        return;
    check(provider->under_way == 0);
    buf_free(&provider->args.text);
    debts_free(&provider->debts);
    free(provider);
    closed(closed_context);
}

static void on_timer_closed(uv_handle_t *timer)
{
    on_closed(timer->data);
}

static void redis_close(struct lease_provider *base, void (*closed)(void *context), void *context)
{
    struct redis_provider *provider = (struct redis_provider *)(void *)base;

    provider->closed = closed;
    provider->closed_context = context;
    provider->closing = true;
    uv_close((uv_handle_t *)&provider->probe_timer, on_timer_closed);
    redis_link_close(provider->link, on_closed, provider);
    if (provider->listener != NULL)
        redis_link_close(provider->listener, on_closed, provider);
    if (provider->sentinels != NULL)
        sentinels_close(provider->sentinels, on_closed, provider);
}

#define IMPL(name_)                                                                                \
    {                                                                                              \
        .name = (name_), .ask = redis_ask, .watch = redis_watch, .health = redis_health,           \
        .close = redis_close, .on_first_attempt = redis_on_first,                                  \
    }
static const struct lease_provider_impl redis_impl = IMPL("redis");
static const struct lease_provider_impl sentinel_impl = IMPL("sentinel");

static void on_sentinels(void *context)
{
    struct redis_provider *provider = context;

    redis_link_look(provider->link);
    if (provider->listener != NULL)
        redis_link_look(provider->listener);
}

/* The channel, and who we are there. */
static void name_self(struct redis_provider *provider)
{
    const struct chance *chance = provider->surroundings.chance;
    const struct lease_uri *uri = &provider->uri;
    uint64_t random;

    chance->fill(chance, &random, sizeof random);
    chance->fill(chance, &provider->attempts, sizeof provider->attempts);
    snprintf(provider->origin, sizeof provider->origin, "%016llx", (unsigned long long)random);
    if (uri->db == 0)
        snprintf(provider->channel, sizeof provider->channel, "%s:wake", uri->prefix);
    else
        snprintf(provider->channel, sizeof provider->channel, "%s:wake:%d", uri->prefix, uri->db);
    provider->self = (struct script_self){uri->prefix, provider->channel, provider->origin};
}

struct lease_provider *lease_redis_new(const struct lease_uri *uri,
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
    provider->link = redis_link_new(uri, surroundings, pay_debts, provider);
    replicas_init(&provider->replicas, provider->link, uri->replicas, uri->timeout_ms);
    if (uri->kind == LEASE_URI_SENTINEL) {
        provider->base.impl = &sentinel_impl;
        provider->open++;
        provider->sentinels = sentinels_new(uri, surroundings, on_sentinels, provider);
        redis_link_follow(provider->link, provider->sentinels);
    }
    return &provider->base;
}
