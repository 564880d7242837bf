/* SPDX-License-Identifier: Apache-2.0 */
/* The twin keeps every resource it was ever asked about, each with its state now and at the last
 * mark. Nothing fails by itself here. */
#include "tests/twins/memory_lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"
#include "tests/twins/redis_lock.h"

struct entry {
    UT_hash_handle hh;
    struct redis_lock now, marked;
    char name[];
};

struct lease_service {
    const struct clock *clock;
    struct entry *entries;
    struct list providers;
    uint64_t attempts; /* so far */
    const char *down;  /* why, or NULL */
    bool loses_news;
    int64_t late_ms;
};

struct memory_provider {
    struct lease_provider base;
    struct lease_service *service;
    struct list link; /* in the service */
    struct list late; /* lease_call, answered but not told; deadline_ms: when to tell */
};

static struct redis_lock *lock_of(struct lease_service *service, struct bytes name)
{
    struct entry *entry;

    HASH_FIND(hh, service->entries, name.data, name.len, entry);
    if (entry == NULL) {
        entry = mem_zalloc(sizeof *entry + name.len);
        memcpy(entry->name, name.data, name.len);
        HASH_ADD_KEYPTR(hh, service->entries, entry->name, name.len, entry);
    }
    return &entry->now;
}

/* A provider of another daemon hears of it at once. */
static void tell_others(const struct memory_provider *teller, const struct lease_call *call,
                        int64_t token)
{
    struct lease_service *service = teller->service;
    const struct lease_news news = {
        .revoked = call->revoked, .resource = call->resource, .token = token};

    for (struct list *p = service->providers.next; p != &service->providers; p = p->next) {
        struct memory_provider *other = list_entry(p, struct memory_provider, link);
        if (other == teller || service->loses_news)
            continue;
        lease_tell(&other->base, &news);
    }
}

static void happen(struct memory_provider *teller, struct lease_call *call)
{
    struct lease_service *service = teller->service;

    if (call->verb == LEASE_GRANT)
        call->attempt = ++service->attempts;
    struct redis_answer answer =
        redis_lock_ask(lock_of(service, call->resource), call, clock_now_ms(service->clock) * 1000);
    if (answer.answer == LEASE_DOWN)
        lease_answer_down(call, "the tokens of this resource are used up");
    else
        lease_answer(call, answer.answer, answer.token, answer.ttl_ms);
    if (answer.ended != 0)
        tell_others(teller, call, answer.ended);
}

static bool memory_ask(struct lease_provider *base, struct lease_call *call)
{
    struct memory_provider *provider = (struct memory_provider *)(void *)base;
    struct lease_service *service = provider->service;

    if (service->down != NULL)
        return lease_answer_down(call, "%s", service->down);
    happen(provider, call);
    if (service->late_ms == 0)
        return true;
    call->deadline_ms =
        service->late_ms < 0 ? INT64_MAX : clock_now_ms(service->clock) + service->late_ms;
    list_append(&provider->late, &call->link);
    return false;
}

static void memory_health(const struct lease_provider *base, struct lease_health *health)
{
    const struct memory_provider *provider = (const struct memory_provider *)(const void *)base;

    health->up = provider->service->down == NULL;
    health->watching = base->on_news != NULL && health->up;
    snprintf(health->detail, sizeof health->detail, "memory: %s",
             health->up ? "ready" : provider->service->down);
}

static void fail_late(struct memory_provider *provider, const char *reason)
{
    struct list *link;

    while ((link = list_pop(&provider->late)) != NULL) {
        struct lease_call *call = list_entry(link, struct lease_call, link);
        call->answer = LEASE_UNANSWERED;
        lease_answer_down(call, "%s", reason);
        lease_answered(&provider->base, call);
    }
}

static void memory_close(struct lease_provider *base)
{
    struct memory_provider *provider = (struct memory_provider *)(void *)base;

    fail_late(provider, "the provider is being closed");
    list_remove(&provider->link);
    lease_provider_closed(base);
}

static const struct lease_provider_impl memory_impl = {
    .name = "memory",
    .own_clock = true,
    .ask = memory_ask,
    .health = memory_health,
    .close = memory_close,
};

struct lease_provider *lease_memory_new(struct lease_service *service)
{
    struct memory_provider *provider = mem_zalloc(sizeof *provider);

    provider->base.impl = &memory_impl;
    provider->service = service;
    list_init(&provider->late);
    list_append(&service->providers, &provider->link);
    return &provider->base;
}

struct lease_service *lease_service_new(const struct clock *clock)
{
    struct lease_service *service = mem_zalloc(sizeof *service);

    service->clock = clock;
    list_init(&service->providers);
    return service;
}

void lease_service_free(struct lease_service *service)
{
    struct entry *entry, *next;

    check(list_empty(&service->providers));
    HASH_ITER(hh, service->entries, entry, next)
    {
        HASH_DEL(service->entries, entry);
        free(entry);
    }
    free(service);
}

void lease_service_lose_all(struct lease_service *service)
{
    for (struct entry *entry = service->entries; entry != NULL; entry = entry->hh.next)
        entry->now = (struct redis_lock){0};
}

void lease_service_mark(struct lease_service *service)
{
    for (struct entry *entry = service->entries; entry != NULL; entry = entry->hh.next)
        entry->marked = entry->now;
}

void lease_service_lose_tail(struct lease_service *service)
{
    for (struct entry *entry = service->entries; entry != NULL; entry = entry->hh.next)
        entry->now = entry->marked;
}

void lease_service_set_down(struct lease_service *service, const char *reason)
{
    struct list *link;

    service->down = reason;
    if (reason != NULL)
        for (link = service->providers.next; link != &service->providers; link = link->next)
            fail_late(list_entry(link, struct memory_provider, link), reason);
}

void lease_service_lose_news(struct lease_service *service, bool lose)
{
    service->loses_news = lose;
}

void lease_service_set_late(struct lease_service *service, int64_t late_ms)
{
    service->late_ms = late_ms;
    for (struct list *p = service->providers.next; p != &service->providers; p = p->next) {
        struct list *late = &list_entry(p, struct memory_provider, link)->late;
        for (struct list *c = late->next; c != late; c = c->next) {
            struct lease_call *call = list_entry(c, struct lease_call, link);
            if (late_ms >= 0 && call->deadline_ms == INT64_MAX)
                call->deadline_ms = clock_now_ms(service->clock);
        }
    }
}

size_t lease_service_step(struct lease_service *service)
{
    int64_t now_ms = clock_now_ms(service->clock);
    size_t told = 0;

    for (struct list *p = service->providers.next; p != &service->providers; p = p->next) {
        struct list due, *link, *late = &list_entry(p, struct memory_provider, link)->late;
        list_init(&due);
        while (!list_empty(late) &&
               list_entry(late->next, struct lease_call, link)->deadline_ms <= now_ms)
            list_append(&due, list_pop(late));
        for (; (link = list_pop(&due)) != NULL; told++)
            lease_answered(&list_entry(p, struct memory_provider, link)->base,
                           list_entry(link, struct lease_call, link));
    }
    return told;
}

int64_t lease_service_next_ms(const struct lease_service *service)
{
    int64_t next_ms = INT64_MAX;

    for (struct list *p = service->providers.next; p != &service->providers; p = p->next) {
        const struct list *late = &list_entry(p, struct memory_provider, link)->late;
        if (!list_empty(late)) {
            int64_t due_ms = list_entry(late->next, struct lease_call, link)->deadline_ms;
            next_ms = due_ms < next_ms ? due_ms : next_ms;
        }
    }
    return next_ms == INT64_MAX ? -1 : next_ms;
}
