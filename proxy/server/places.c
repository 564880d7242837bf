/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/places.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"

/* Longer than libmicrohttpd lets a silent connection be, which a request may end late. */
enum { REQUEST_MS = 20000, TICK_MS = 500 };
/* Whoever has just come is given time for a first request, as far as others can make room: those
 * that send one request behind the other, and read nothing, always have a newer step. */
enum { NEWCOMER_MS = 1000 };

enum state { AWAITED, ANSWERED, KEPT, ENDED };

struct places {
    uv_timer_t timer;  /* runs while a request is awaited */
    struct list steps; /* AWAITED and ANSWERED, the oldest step first */
    size_t max, kept_max;
    size_t taken, kept; /* taken: all but the ENDED ones; kept: of these */
    size_t count;       /* all */
    void (*closed)(void *context);
    void *context;
};

struct place {
    struct list link; /* places->steps; KEPT, ENDED: in none */
    struct places *places;
    enum state state;
    uint64_t until_ms; /* AWAITED */
    bool asked;        /* a request has arrived */
    void (*end)(void *context);
    void *context;
};

static void end(struct place *place)
{
    check(place->state == AWAITED || place->state == ANSWERED);
    list_remove(&place->link);
    place->state = ENDED;
    place->places->taken--;
    place->end(place->context);
}

static void on_tick(uv_timer_t *timer)
{
    struct places *places = timer->data;
    bool awaits = false;

    for (struct list *link = places->steps.next, *next; link != &places->steps; link = next) {
        struct place *place = list_entry(link, struct place, link);
        next = link->next;
        if (place->state != AWAITED)
            continue;
        if (place->until_ms <= uv_now(timer->loop))
            end(place);
        else
            awaits = true;
    }
    if (!awaits)
        uv_timer_stop(timer);
}

/* Begin a step. One that was ended stays so: its connection is on its way out. */
static bool step(struct place *place, enum state state)
{
    struct places *places = place->places;

    if (place->state == ENDED)
        return false;
    places->kept -= place->state == KEPT;
    places->kept += state == KEPT;
    place->state = state;
    place->asked |= state != AWAITED;
    list_remove(&place->link);
    if (state != KEPT)
        list_append(&places->steps, &place->link);
    return true;
}

void place_await(struct place *place)
{
    uv_timer_t *timer = &place->places->timer;

    if (!step(place, AWAITED))
        return;
    place->until_ms = uv_now(timer->loop) + REQUEST_MS;
    if (!uv_is_active((uv_handle_t *)timer) && !uv_is_closing((uv_handle_t *)timer))
        uv_timer_start(timer, on_tick, TICK_MS, TICK_MS);
}

void place_answer(struct place *place)
{
    (void)step(place, ANSWERED);
}

void place_keep(struct place *place)
{
    (void)step(place, KEPT);
    check(place->places->kept <= place->places->kept_max);
}

/* Whose step has taken the longest, newcomers aside. There is one that is not KEPT. */
static struct place *longest(const struct places *places)
{
    uint64_t now_ms = uv_now(places->timer.loop);

    check(!list_empty(&places->steps)); /* kept_max leaves some that are not KEPT */
    for (struct list *at = places->steps.next; at != &places->steps; at = at->next) {
        struct place *place = list_entry(at, struct place, link);
        if (place->asked || place->until_ms <= now_ms + REQUEST_MS - NEWCOMER_MS)
            return place;
    }
    return list_entry(places->steps.next, struct place, link);
}

struct place *place_take(struct places *places, void (*end_connection)(void *context),
                         void *context)
{
    struct place *place = mem_zalloc(sizeof *place);

    if (places->taken == places->max)
        end(longest(places));
    places->taken++;
    places->count++;
    *place = (struct place){.places = places, .end = end_connection, .context = context};
    list_init(&place->link);
    place_await(place);
    return place;
}

void place_leave(struct place *place)
{
    struct places *places = place->places;

    list_remove(&place->link);
    places->kept -= place->state == KEPT;
    places->taken -= place->state != ENDED;
    places->count--;
    free(place);
}

bool places_are_crowded(const struct places *places)
{
    return places->kept >= places->kept_max;
}

struct places *places_new(uv_loop_t *loop, size_t max, size_t kept_max)
{
    struct places *places = mem_zalloc(sizeof *places);

    check(kept_max < max);
    places->max = max;
    places->kept_max = kept_max;
    list_init(&places->steps);
    check(uv_timer_init(loop, &places->timer) == 0);
    places->timer.data = places;
    return places;
}

static void on_closed(uv_handle_t *handle)
{
    struct places *places = handle->data;

    places->closed(places->context);
    free(places);
}

void places_close(struct places *places, void (*closed)(void *context), void *context)
{
    check(places->count == 0);
    places->closed = closed;
    places->context = context;
    uv_close((uv_handle_t *)&places->timer, on_closed);
}
