/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on ZooKeeper: calls, their time, and what is over by our clock.
 *
 * A lease is an ephemeral node, so it ends with this daemon's session at the latest, and before
 * that with its TTL: this daemon removes it then, and if it is dead or asleep whoever waits for it
 * does, when it has not changed for so long. A release that could not be delivered is a lease whose
 * time is over.
 *
 * While ZooKeeper is away a call is answered DOWN at once; one that is not answered within its time
 * is answered DOWN, too, while its errand goes on to its end: a grant that comes out of it is given
 * back. */
#include "fence/lease/zookeeper/zookeeper.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/base/text.h"
#include "fence/lease/patience.h"
#include "fence/lease/zookeeper/spot.h"

#define CALLS_MAX     100000 /* under way */
#define TIDY_AGAIN_MS 1000   /* where it failed */

/* Answers. */

static void answered(struct errand *errand)
{
    struct lease_call *call = errand->call;

    errand->call = NULL;
    list_remove(&errand->in_asked);
    errand->spot->keeper->calls_open--;
    call->done(call);
}

void keeper_answer(struct errand *errand, enum lease_answer answer, int64_t token, int64_t ttl_ms)
{
    keeper_accepted(errand->spot->keeper);
    if (errand->call == NULL)
        return;
    lease_answer(errand->call, answer, token, ttl_ms);
    answered(errand);
}

void keeper_answer_down(struct errand *errand, const char *why)
{
    if (errand->call == NULL)
        return;
    errand->spot->keeper->failed++;
    lease_answer_down(errand->call, "%s", why);
    answered(errand);
}

/* A release that will not be delivered now. */
static void note_debt(struct keeper *keeper, const struct lease_call *call)
{
    char path[NODE_PATH_MAX + 1];

    node_parent(keeper->base_path, call->resource, path);
    struct spot *spot = spot_find(keeper, path);
    if (call->verb == LEASE_RELEASE && spot != NULL && spot->held.text[0] != '\0' &&
        strcmp(spot->lease.nonce, call->nonce) == 0 && call->token == spot->lease.token)
        spot_end_held(spot);
}

static bool zookeeper_ask(struct lease_provider *base, struct lease_call *call)
{
    struct keeper *keeper = (struct keeper *)(void *)base;
    bool ready = keeper->state == KEEPER_READY;

    keeper->calls++;
    if (!ready || keeper->calls_open >= CALLS_MAX) {
        keeper->failed++;
        note_debt(keeper, call);
        return lease_answer_down(call, "%s",
                                 ready ? "too many calls under way" : keeper_why(keeper));
    }
    struct spot *spot = spot_of(keeper, call->resource);
    struct errand *errand = spot_errand_new(spot, ERRAND_CALL);
    errand->ask = *call;
    errand->ask.resource = spot->resource;
    errand->call = call;
    errand->ask.asked_ms = keeper_now_ms(keeper);
    errand->ask.deadline_ms = errand->ask.asked_ms + keeper->uri.timeout_ms;
    list_append(&keeper->asked, &errand->in_asked);
    if (++keeper->calls_open == 1)
        keeper_schedule(keeper);
    spot_add(spot, errand);
    return false;
}

/* Time. */

/* When the oldest call's is up. */
static int64_t call_due_ms(const struct keeper *keeper)
{
    if (list_empty(&keeper->asked))
        return INT64_MAX;
    return patience_due_ms(list_entry(keeper->asked.next, struct errand, in_asked)->ask.deadline_ms,
                           keeper->heard_ms, keeper->uri.timeout_ms);
}

static int64_t sooner(int64_t a_ms, int64_t b_ms)
{
    return a_ms < b_ms ? a_ms : b_ms;
}

static int64_t heap_due_ms(const struct heap *heap)
{
    const struct heap_node *first = heap_first(heap);
    return first == NULL ? INT64_MAX : first->at_ms;
}

static void on_timer(uv_timer_t *timer);

void keeper_schedule(struct keeper *keeper)
{
    int64_t due_ms = keeper->grace_until_ms != 0 ? keeper->grace_until_ms : call_due_ms(keeper);

    if (keeper->state == KEEPER_CLOSING)
        return;
    due_ms = sooner(due_ms, keeper->due_ms);
    if (keeper->first != NULL)
        due_ms = sooner(due_ms, keeper->first_by_ms);
    if (keeper->state == KEEPER_READY)
        due_ms =
            sooner(due_ms, sooner(heap_due_ms(&keeper->ending), heap_due_ms(&keeper->leaving)));
    int64_t delay_ms = due_ms - keeper_now_ms(keeper);
    if (due_ms == INT64_MAX)
        uv_timer_stop(&keeper->timer);
    else
        uv_timer_start(&keeper->timer, on_timer, delay_ms < 0 ? 0 : (uint64_t)delay_ms, 0);
}

/* Its errand goes on, unless it has not begun. */
static void give_up(struct keeper *keeper, struct errand *errand)
{
    struct spot *spot = errand->spot;
    bool running = spot->errands.next == &errand->link;
    char why[64];

    snprintf(why, sizeof why, "no answer within %d ms", keeper->uri.timeout_ms);
    keeper->silent = true;
    keeper_answer_down(errand, why);
    if (running)
        return;
    note_debt(keeper, &errand->ask);
    list_remove(&errand->link);
    free(errand);
}

static void look_at_calls(struct keeper *keeper, int64_t now_ms)
{
    int64_t due_ms = call_due_ms(keeper);

    if (now_ms < due_ms) {
        keeper->grace_until_ms = 0;
    } else if (keeper->grace_until_ms == 0) {
        keeper->grace_until_ms = patience_grace_ms(now_ms, due_ms, keeper->uri.timeout_ms);
    } else if (now_ms >= keeper->grace_until_ms) {
        keeper->grace_until_ms = 0;
        while (call_due_ms(keeper) <= now_ms)
            give_up(keeper, list_entry(keeper->asked.next, struct errand, in_asked));
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct keeper *keeper = timer->data;
    int64_t now_ms = keeper_now_ms(keeper);

    if (keeper->first != NULL && now_ms >= keeper->first_by_ms) {
        if (keeper->state != KEEPER_READY)
            keeper_tell_down(keeper, keeper_why(keeper));
        keeper_end_first(keeper);
    }
    if (now_ms >= keeper->due_ms)
        keeper_reach_due(keeper);
    look_at_calls(keeper, now_ms);
    while (keeper->state == KEEPER_READY && heap_due_ms(&keeper->ending) <= now_ms) {
        struct spot *spot = list_entry(heap_first(&keeper->ending), struct spot, held_due);
        heap_set(&keeper->ending, &spot->held_due, now_ms + TIDY_AGAIN_MS);
        spot_tidy(spot);
    }
    while (keeper->state == KEEPER_READY && heap_due_ms(&keeper->leaving) <= now_ms) {
        struct spot *spot = list_entry(heap_first(&keeper->leaving), struct spot, queued_due);
        heap_set(&keeper->leaving, &spot->queued_due, now_ms + TIDY_AGAIN_MS);
        spot_tidy(spot);
    }
    keeper_schedule(keeper);
}

/* The interface. */

static void zookeeper_watch(struct lease_provider *base,
                            void (*on_news)(void *context, const struct lease_news *news),
                            void *context)
{
    struct keeper *keeper = (struct keeper *)(void *)base;

    check(keeper->on_news == NULL);
    keeper->on_news = on_news;
    keeper->news_context = context;
}

static struct lease_health zookeeper_health(const struct lease_provider *base)
{
    const struct keeper *keeper = (const struct keeper *)(const void *)base;
    bool ready = keeper->state == KEEPER_READY;
    struct lease_health health = {
        .up = ready && !keeper->silent && keeper->refusal[0] == '\0',
        .calls = keeper->calls,
        .failures = keeper->failed,
        .reconnects = keeper->connections > 0 ? keeper->connections - 1 : 0,
        .watching = ready && keeper->on_news != NULL,
        .news = keeper->news,
    };
    size_t size = sizeof health.detail;

    if (health.up)
        text_print(health.detail, size, "%s: ready", keeper->name);
    else if (keeper->refusal[0] != '\0')
        text_print(health.detail, size, "%s: refuses: %s", keeper->name, keeper->refusal);
    else if (ready)
        text_print(health.detail, size, "%s: no answer within %d ms", keeper->name,
                   keeper->uri.timeout_ms);
    else
        text_print(health.detail, size, "%s: %s, trying again", keeper->name, keeper_why(keeper));
    return health;
}

static void zookeeper_on_first(struct lease_provider *base, void (*ended)(void *context),
                               void *context)
{
    struct keeper *keeper = (struct keeper *)(void *)base;

    check(keeper->first == NULL);
    if (keeper->first_ended) {
        ended(context);
        return;
    }
    keeper->first = ended;
    keeper->first_context = context;
    keeper->first_by_ms = keeper_now_ms(keeper) + PATIENCE_FIRST_MS;
    keeper_schedule(keeper);
}

void keeper_close_if_over(struct keeper *keeper)
{
    struct spot *spot, *next;
    void (*closed)(void *context) = keeper->closed;
    void *closed_context = keeper->closed_context;

    if (keeper->state != KEEPER_CLOSING || keeper->sessions_closing > 0 || !keeper->timer_closed)
        return;
    check(list_empty(&keeper->asked) && !keeper->greeting_under_way);
    spot = keeper->spots;
    HASH_CLEAR(hh, keeper->spots);
    for (; spot != NULL; spot = next) {
        next = spot->hh.next;
        check(list_empty(&spot->errands));
        free(spot);
    }
    for (struct list *at = keeper->lost.next, *after; at != &keeper->lost; at = after) {
        after = at->next;
        free(list_entry(at, struct lost, link));
    }
    heap_free(&keeper->ending);
    heap_free(&keeper->leaving);
    free(keeper);
    closed(closed_context);
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct keeper *keeper = timer->data;

    keeper->timer_closed = true;
    keeper_close_if_over(keeper);
}

static void zookeeper_close_provider(struct lease_provider *base, void (*closed)(void *context),
                                     void *context)
{
    struct keeper *keeper = (struct keeper *)(void *)base;

    check(keeper->state != KEEPER_CLOSING);
    keeper->state = KEEPER_CLOSING;
    keeper->closed = closed;
    keeper->closed_context = context;
    keeper->first = NULL;
    while (!list_empty(&keeper->asked))
        keeper_answer_down(list_entry(keeper->asked.next, struct errand, in_asked),
                           keeper_why(keeper));
    uv_close((uv_handle_t *)&keeper->timer, on_timer_closed);
    keeper_leave(keeper);
}

static const struct lease_provider_impl zookeeper_impl = {
    .name = "zookeeper",
    .ask = zookeeper_ask,
    .watch = zookeeper_watch,
    .health = zookeeper_health,
    .close = zookeeper_close_provider,
    .on_first_attempt = zookeeper_on_first,
};

struct lease_provider *lease_zookeeper_new(const struct lease_uri *uri,
                                           const struct lease_surroundings *surroundings)
{
    struct keeper *keeper = mem_zalloc(sizeof *keeper);

    keeper->base.impl = &zookeeper_impl;
    keeper->uri = *uri;
    keeper->env = *surroundings;
    lease_uri_text(uri, keeper->name, sizeof keeper->name);
    node_base(uri, keeper->base_path);
    list_init(&keeper->lost);
    list_init(&keeper->asked);
    check(uv_timer_init(keeper->env.loop, &keeper->timer) == 0);
    keeper->timer.data = keeper;
    keeper_reach(keeper);
    return &keeper->base;
}
