/* SPDX-License-Identifier: Apache-2.0 */
/* The provider: a call is a round (round.c), and the rest is what the masters say, put together. */
#include "fence/lease/redlock/redlock.h"

#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/redlock/redlock_impl.h"

_Static_assert(LEASE_URI_HOSTS_MAX <= BALLOT_MASTERS_MAX, "every URI has room");

static struct redlock *of(struct lease_provider *base)
{
    return (struct redlock *)(void *)base;
}

static int quorum(const struct redlock *redlock)
{
    return redlock->count / 2 + 1;
}

static bool redlock_ask(struct lease_provider *base, struct lease_call *call)
{
    struct redlock *redlock = of(base);

    redlock->calls++;
    return round_begin(redlock, call);
}

static struct lease_health redlock_health(const struct lease_provider *base)
{
    const struct redlock *redlock = (const struct redlock *)(const void *)base;
    struct lease_health health = {
        .calls = redlock->calls, .failures = redlock->failures, .news = redlock->news};
    struct lease_health bad = {.up = true};
    int ready = 0, watching = 0;

    for (int i = 0; i < redlock->count; i++) {
        struct lease_health master = lease_provider_health(redlock->masters[i].provider);
        ready += master.up;
        watching += master.watching;
        health.reconnects += master.reconnects;
        if (!master.up && bad.up)
            bad = master;
    }
    health.up = ready >= quorum(redlock);
    health.watching = watching >= quorum(redlock);
    snprintf(health.detail, sizeof health.detail, "redlock: %d masters, %d ready%s%.110s",
             redlock->count, ready, bad.up ? "" : "; ", bad.detail);
    return health;
}

static void on_master_news(void *context, const struct lease_news *news)
{
    struct redlock_master *master = context;
    struct redlock *redlock = master->redlock;

    if (!news_votes_add(&redlock->news_votes, news, master->number, quorum(redlock),
                        clock_now_ms(redlock->env.clock)))
        return;
    redlock->news++;
    redlock->on_news(redlock->news_context, news);
}

static void redlock_watch(struct lease_provider *base,
                          void (*on_news)(void *context, const struct lease_news *news),
                          void *context)
{
    struct redlock *redlock = of(base);

    redlock->on_news = on_news;
    redlock->news_context = context;
    for (int i = 0; i < redlock->count; i++)
        lease_provider_watch(redlock->masters[i].provider, on_master_news, &redlock->masters[i]);
}

static void on_first_ended(void *context)
{
    struct redlock *redlock = context;

    if (--redlock->first_open == 0)
        redlock->first(redlock->first_context);
}

static void redlock_on_first(struct lease_provider *base, void (*ended)(void *context),
                             void *context)
{
    struct redlock *redlock = of(base);

    redlock->first = ended;
    redlock->first_context = context;
    redlock->first_open = redlock->count;
    for (int i = 0; i < redlock->count; i++)
        lease_on_first_attempt(redlock->masters[i].provider, on_first_ended, redlock);
}

static void on_closed(void *context)
{
    struct redlock *redlock = context;
    void (*closed)(void *context) = redlock->closed;
    void *closed_context = redlock->closed_context;

    if (--redlock->handles > 0)
        return;
    check(list_empty(&redlock->rounds));
    heap_free(&redlock->pauses);
    free(redlock);
    closed(closed_context);
}

static void redlock_close(struct lease_provider *base, void (*closed)(void *context), void *context)
{
    struct redlock *redlock = of(base);

    redlock->closing = true;
    redlock->closed = closed;
    redlock->closed_context = context;
    redlock->handles = redlock->count + 2;
    rounds_close(redlock);
    for (int i = 0; i < redlock->count; i++)
        lease_provider_close(redlock->masters[i].provider, on_closed, redlock);
    redlock->env.alarm->close(redlock->env.alarm, on_closed, redlock);
    on_closed(redlock);
}

static const struct lease_provider_impl redlock_impl = {
    .name = "redlock",
    .ask = redlock_ask,
    .watch = redlock_watch,
    .health = redlock_health,
    .close = redlock_close,
    .on_first_attempt = redlock_on_first,
};

void redlock_rang(struct lease_provider *base)
{
    struct redlock *redlock = of(base);

    if (!redlock->closing)
        rounds_go_on(redlock);
}

struct lease_provider *redlock_new(struct lease_provider *const *masters, int count,
                                   const struct redlock_surroundings *surroundings)
{
    struct redlock *redlock = mem_zalloc(sizeof *redlock);

    check(count >= 1 && count <= BALLOT_MASTERS_MAX);
    redlock->base.impl = &redlock_impl;
    redlock->env = *surroundings;
    redlock->env.alarm->redlock = &redlock->base;
    redlock->count = count;
    list_init(&redlock->rounds);
    for (int i = 0; i < count; i++)
        redlock->masters[i] = (struct redlock_master){redlock, masters[i], i};
    return &redlock->base;
}
