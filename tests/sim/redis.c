/* SPDX-License-Identifier: Apache-2.0 */
/* First the service: locks by name, on a clock of its own. Then the provider: calls become
 * messages, messages answers. A call without an answer in time ends the connection: all that is
 * under way is answered DOWN, grants and releases leave debts, and a new connection is tried until
 * the service answers. What an earlier connection has sent may still arrive; its answers are not
 * read any more.
 */
#include "tests/sim/redis.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/redis/debts.h"
#include "tests/twins/redis_lock.h"

#define REDIS_KEYS_MAX 16
#define REDIS_NAME_MAX 16

struct redis_key {
    char name[REDIS_NAME_MAX];
    struct redis_lock lock;
    int64_t busy_us; /* when somebody was last seen to have the lock, in true time */
};

/* A call on its way: a copy, for the call may be over before it arrives. */
struct redis_ask {
    uint64_t number;
    int daemon;
    uint64_t life, connection; /* of the daemon, of its connection */
    char name[REDIS_NAME_MAX];
    struct lease_call call; /* its resource is the name */
};

struct redis {
    struct world *world;
    int number;
    struct rng rng;
    struct redis_key keys[REDIS_KEYS_MAX], marked[REDIS_KEYS_MAX];
    int count;
    int64_t clock_us, clock_set_us, rate_per_mille;
    bool down;
    struct redis_provider *providers[DAEMONS_MAX]; /* by daemon; NULL: there is none now */
};

struct redis_provider {
    struct lease_provider base;
    struct redis *redis;
    int daemon;
    struct party *party;
    const struct clock *clock;
    struct rng rng;
    bool up, cut_off, retry_due;
    uint64_t connection;
    uint64_t asks;          /* numbers handed out, over all lives */
    int64_t to_us, from_us; /* when the latest message of each direction arrives */
    struct list under_way;  /* struct pending */
    struct debts debts;
    void (*turned)(void *context);
    void *context;
};

struct pending {
    struct list link;
    struct lease_call *call;
    uint64_t number;
};

struct redis *redis_new(struct world *world, int number)
{
    struct redis *redis = mem_zalloc(sizeof *redis);

    redis->world = world;
    redis->number = number;
    redis->rate_per_mille = 1000;
    redis->rng = rng_of(world->plan->seed, 'r', (uint64_t)number);
    return redis;
}

void redis_free(struct redis *redis)
{
    free(redis);
}

/* Its own clock, in microseconds. */
static int64_t service_us(const struct redis *redis)
{
    return redis->clock_us +
           (redis->world->now_us - redis->clock_set_us) * redis->rate_per_mille / 1000;
}

void redis_set_rate(struct redis *redis, int64_t per_mille)
{
    redis->clock_us = service_us(redis);
    redis->clock_set_us = redis->world->now_us;
    redis->rate_per_mille = per_mille;
}

static struct redis_key *key_of(struct redis *redis, const char *name)
{
    int i = 0;

    while (i < redis->count && strcmp(redis->keys[i].name, name) != 0)
        i++;
    if (i == redis->count) {
        check(i < REDIS_KEYS_MAX);
        redis->count++;
        redis->keys[i] = redis->marked[i] = (struct redis_key){0};
        strcpy(redis->keys[i].name, name);
        strcpy(redis->marked[i].name, name);
    }
    redis_lock_expire(&redis->keys[i].lock, service_us(redis));
    return &redis->keys[i];
}

static void send_news(struct redis *redis, int daemon, const struct redis_ask *ask, int64_t token);

/* Do what is asked at once, as a script does. */
static struct redis_answer execute(struct redis *redis, const struct redis_ask *ask)
{
    struct redis_key *key = key_of(redis, ask->name);
    struct redis_answer answer = redis_lock_ask(&key->lock, &ask->call, service_us(redis));

    if (answer.answer == LEASE_GRANTED || answer.answer == LEASE_OWN)
        key->busy_us = redis->world->now_us;
    for (int i = 0; answer.ended != 0 && i < redis->world->plan->daemons; i++)
        if (i != ask->daemon)
            send_news(redis, i, ask, answer.ended);
    return answer;
}

void redis_flush(struct redis *redis)
{
    for (int i = 0; i < redis->count; i++)
        redis->keys[i].lock = (struct redis_lock){0};
}

void redis_mark(struct redis *redis)
{
    memcpy(redis->marked, redis->keys, sizeof redis->marked);
}

void redis_go_back(struct redis *redis)
{
    memcpy(redis->keys, redis->marked, sizeof redis->keys);
}

int64_t redis_free_since_us(struct redis *redis, const char *name)
{
    struct redis_key *key = key_of(redis, name);

    if (key->lock.token != 0)
        key->busy_us = redis->world->now_us;
    return key->lock.token != 0 ? -1 : key->busy_us;
}

/* The provider. */

static struct redis_provider *of(struct lease_provider *base)
{
    return (struct redis_provider *)(void *)base;
}

/* Messages. */

/* Drawn anew from the time: what others do, or leave, does not shift it. */
static struct rng now_rng(const struct redis_provider *provider, uint64_t what)
{
    const struct world *world = provider->redis->world;
    return rng_of(world->plan->seed,
                  what + ((uint64_t)provider->daemon << 8) +
                      ((uint64_t)provider->redis->number << 16),
                  (uint64_t)world->now_us);
}

/* When a message (the first copy of it, or the second) that is sent now arrives; -1: never. */
static int64_t arrival_us(struct redis_provider *provider, int64_t *latest_us, int copy)
{
    struct world *world = provider->redis->world;
    provider->rng = now_rng(provider, (latest_us == &provider->to_us ? 't' : 'f') + (uint64_t)copy);
    int64_t at_us = world->now_us + world_latency_us(world, &provider->rng);

    if (rng_per_mille(&provider->rng, world->lossy_per_mille)) {
        world_count_fault(world, FAULT_LOST);
        return -1;
    }
    if (world->lossy_per_mille > 0 || world->doubling_per_mille > 0)
        return at_us; /* and so out of order */
    if (at_us <= *latest_us)
        at_us = *latest_us + 1;
    *latest_us = at_us;
    return at_us;
}

static bool doubled(struct redis_provider *provider)
{
    struct world *world = provider->redis->world;

    provider->rng = now_rng(provider, '2');
    if (!rng_per_mille(&provider->rng, world->doubling_per_mille))
        return false;
    world_count_fault(world, FAULT_DOUBLED);
    return true;
}

static void give_up(struct redis_provider *provider, const char *why);

static void answer_arrived(void *context, struct event *event)
{
    struct redis *redis = context;
    struct redis_ask ask;
    struct redis_answer answer;

    memcpy(&ask, event->bytes.data, sizeof ask);
    memcpy(&answer, event->bytes.data + sizeof ask, sizeof answer);
    struct redis_provider *provider = redis->providers[ask.daemon];
    if (provider == NULL || provider->connection != ask.connection)
        return;
    for (struct list *at = provider->under_way.next; at != &provider->under_way; at = at->next) {
        struct pending *pending = list_entry(at, struct pending, link);
        if (pending->number != ask.number)
            continue;
        struct lease_call *call = pending->call;
        list_remove(&pending->link);
        free(pending);
        lease_answer(call, answer.answer, answer.token, answer.ttl_ms);
        lease_answered(&provider->base, call);
        provider->turned(provider->context);
        return;
    }
}

/* At the service. */
static void ask_arrived(void *context, struct event *event)
{
    struct redis *redis = context;
    struct redis_ask ask;

    memcpy(&ask, event->bytes.data, sizeof ask);
    struct redis_provider *provider = redis->providers[ask.daemon];
    if (redis->down)
        return;
    struct redis_answer answer = execute(redis, &ask);
    if (ask.call.verb != LEASE_QUERY)
        world_tell(redis->world, "lease service: daemon %d's %s %s is answered %s, token %lld",
                   ask.daemon, (const char *const[]){"grant", "renew", "release"}[ask.call.verb],
                   ask.name,
                   (const char *const[]){"", "granted", "own", "held", "free"}[answer.answer],
                   (long long)answer.token);
    if (provider == NULL || provider->party->life != ask.life)
        return;
    for (int copies = doubled(provider) ? 2 : 1; copies > 0; copies--) {
        int64_t at_us = arrival_us(provider, &provider->from_us, copies);
        if (at_us < 0)
            continue;
        struct event *reply = world_at(redis->world, at_us, provider->party, answer_arrived, redis);
        buf_append(&reply->bytes, &ask, sizeof ask);
        buf_append(&reply->bytes, &answer, sizeof answer);
    }
}

static void timed_out(void *context, struct event *event)
{
    struct redis_provider *provider = context;

    for (struct list *at = provider->under_way.next; at != &provider->under_way; at = at->next)
        if (list_entry(at, struct pending, link)->number == (uint64_t)event->value) {
            give_up(provider, "the lease service does not answer");
            provider->turned(provider->context);
            return;
        }
}

static void send(struct redis_provider *provider, struct lease_call *call)
{
    struct world *world = provider->redis->world;
    struct pending *pending = mem_zalloc(sizeof *pending);

    if (call->verb == LEASE_GRANT)
        call->attempt = ((uint64_t)(provider->daemon + 1) << 56) + (provider->party->life << 32) +
                        provider->asks + 1;
    struct redis_ask ask = {.number = ++provider->asks,
                            .daemon = provider->daemon,
                            .life = provider->party->life,
                            .connection = provider->connection,
                            .call = *call};

    check(call->resource.len < sizeof ask.name);
    memcpy(ask.name, call->resource.data, call->resource.len);
    pending->call = call;
    pending->number = ask.number;
    list_append(&provider->under_way, &pending->link);
    world_at(world, world->now_us + REDIS_TIMEOUT_MS * 1000, provider->party, timed_out, provider)
        ->value = (int64_t)ask.number;
    for (int copies = doubled(provider) ? 2 : 1; copies > 0; copies--) {
        int64_t at_us = arrival_us(provider, &provider->to_us, copies);
        if (at_us >= 0)
            buf_append(&world_at(world, at_us, NULL, ask_arrived, provider->redis)->bytes, &ask,
                       sizeof ask);
    }
}

/* Debts and connections. */

static void note_debt(struct redis_provider *provider, const struct lease_call *call)
{
    if (!provider->cut_off)
        debts_note(&provider->debts, call, clock_now_ms(provider->clock));
}

static void retry_soon(struct redis_provider *provider);

static void paid(struct lease_call *call)
{
    free(list_entry(call, struct debt, call));
}

static void pay(struct redis_provider *provider)
{
    int64_t now_ms = clock_now_ms(provider->clock);
    struct debt *debt;

    while ((debt = debts_take(&provider->debts, now_ms)) != NULL) {
        debt->call.done = paid;
        debt->call.deadline_ms = now_ms + debt->call.ttl_ms;
        debt->call.answer = LEASE_UNANSWERED;
        send(provider, &debt->call);
    }
}

static void retry(void *context, struct event *event)
{
    struct redis_provider *provider = context;

    (void)event;
    provider->retry_due = false;
    if (provider->redis->down) {
        retry_soon(provider);
        return;
    }
    provider->up = true;
    pay(provider);
    provider->turned(provider->context);
}

static void retry_soon(struct redis_provider *provider)
{
    struct world *world = provider->redis->world;

    if (provider->retry_due)
        return;
    provider->retry_due = true;
    world_at(world, world->now_us + rng_between(&provider->rng, 20000, 120000), provider->party,
             retry, provider);
}

/* Answers all that is under way. Their ends may ask again, which is refused by then. */
static void give_up(struct redis_provider *provider, const char *why)
{
    struct list calls, *link;

    provider->up = false;
    provider->connection++;
    list_init(&calls);
    list_splice(&calls, &provider->under_way);
    while ((link = list_pop(&calls)) != NULL) {
        struct pending *pending = list_entry(link, struct pending, link);
        struct lease_call *call = pending->call;
        free(pending);
        note_debt(provider, call);
        lease_answer_down(call, "%s", why);
        lease_answered(&provider->base, call);
    }
    if (!provider->cut_off)
        retry_soon(provider);
}

static void broken(void *context, struct event *event)
{
    struct redis_provider *provider = context;

    (void)event;
    if (provider->up)
        give_up(provider, "the lease service has closed the connection");
    provider->turned(provider->context);
}

void redis_break_links(struct redis *redis)
{
    for (int i = 0; i < DAEMONS_MAX; i++)
        if (redis->providers[i] != NULL)
            world_at(redis->world, redis->world->now_us + rng_between(&redis->rng, 50, 3000),
                     redis->providers[i]->party, broken, redis->providers[i]);
}

void redis_set_down(struct redis *redis, bool down)
{
    redis->down = down;
    if (down && rng_below(&redis->rng, 2) == 0)
        redis_break_links(redis); /* else they find out */
}

/* News. */

static void news_arrived(void *context, struct event *event)
{
    struct redis_provider *provider = context;
    struct redis_ask ask;

    memcpy(&ask, event->bytes.data, sizeof ask);
    if (provider->base.on_news == NULL || !provider->up)
        return;
    lease_tell(&provider->base, &(struct lease_news){.revoked = ask.call.revoked,
                                                     .resource = bytes_of(ask.name),
                                                     .token = event->value});
    provider->turned(provider->context);
}

static void send_news(struct redis *redis, int daemon, const struct redis_ask *ask, int64_t token)
{
    struct redis_provider *provider = redis->providers[daemon];

    if (provider == NULL)
        return;
    for (int copies = doubled(provider) ? 2 : 1; copies > 0; copies--) {
        int64_t at_us = arrival_us(provider, &provider->from_us, copies);
        if (at_us < 0)
            continue;
        struct event *event =
            world_at(redis->world, at_us, provider->party, news_arrived, provider);
        event->value = token;
        buf_append(&event->bytes, ask, sizeof *ask);
    }
}

/* As lease_ask and its kin call it. */

static bool provider_ask(struct lease_provider *base, struct lease_call *call)
{
    struct redis_provider *provider = of(base);

    call->deadline_ms = clock_now_ms(provider->clock) + call->ttl_ms;
    if (provider->up) {
        send(provider, call);
        return false;
    }
    if (call->verb == LEASE_RELEASE)
        note_debt(provider, call);
    return lease_answer_down(call, "the lease service is away");
}

static void provider_health(const struct lease_provider *base, struct lease_health *health)
{
    health->up = ((const struct redis_provider *)(const void *)base)->up;
}

static void provider_close(struct lease_provider *base)
{
    struct redis_provider *provider = of(base);

    check(list_empty(&provider->under_way));
    provider->redis->providers[provider->daemon] = NULL;
    debts_free(&provider->debts);
    lease_provider_closed(base);
}

static const struct lease_provider_impl impl = {
    .name = "redis",
    .ask = provider_ask,
    .health = provider_health,
    .close = provider_close,
};

struct lease_provider *redis_provider_new(struct redis *redis, int daemon, struct party *party,
                                          const struct clock *clock, void (*turned)(void *context),
                                          void *context)
{
    struct redis_provider *provider = mem_zalloc(sizeof *provider);

    provider->base.impl = &impl;
    provider->redis = redis;
    provider->daemon = daemon;
    provider->party = party;
    provider->clock = clock;
    provider->rng = rng_of(redis->world->plan->seed, 'p',
                           (uint64_t)daemon + (party->life << 8) + ((uint64_t)redis->number << 48));
    provider->turned = turned;
    provider->context = context;
    list_init(&provider->under_way);
    redis->providers[daemon] = provider;
    retry_soon(provider);
    return &provider->base;
}

void redis_provider_cut_off(struct lease_provider *base)
{
    struct redis_provider *provider = of(base);

    provider->cut_off = true;
    provider->up = false;
}

void redis_provider_fail_all(struct lease_provider *base)
{
    give_up(of(base), "the daemon is gone");
}
