/* SPDX-License-Identifier: Apache-2.0 */
/* Events leave the heap by time, then in the order in which they were scheduled: one number stands
 * for both. */
#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"

#define EPOCH_US    1700000000000000
#define NUMBER_BITS 24

static struct event *event_of(struct heap_node *node)
{
    return list_entry(node, struct event, node);
}

static void schedule(struct world *world, struct event *event)
{
    check(event->at_us >= world->now_us && event->number < 1 << NUMBER_BITS);
    heap_set(&world->events, &event->node, (event->at_us << NUMBER_BITS) + event->number);
}

static void event_free(struct event *event)
{
    buf_free(&event->bytes);
    free(event);
}

void world_free_events(struct world *world)
{
    for (size_t i = 0; i < world->events.count; i++)
        event_free(event_of(world->events.nodes[i]));
    heap_free(&world->events);
}

static struct event *add(struct world *world, const struct event *like)
{
    struct event *event = mem_zalloc(sizeof *event);

    *event = *like;
    schedule(world, event);
    return event;
}

struct event *world_at(struct world *world, int64_t at_us, struct party *party,
                       void (*run)(void *context, struct event *event), void *context)
{
    return add(world, &(struct event){.at_us = at_us,
                                      .number = ++world->events_count,
                                      .party = party,
                                      .life = party != NULL ? party->life : 0,
                                      .run = run,
                                      .context = context});
}

void world_at_once(struct world *world, void (*run)(void *context, struct event *event),
                   void *context)
{
    (void)add(world, &(struct event){.at_us = world->now_us, .run = run, .context = context});
}

bool world_step(struct world *world, int64_t until_us)
{
    struct heap_node *first = heap_first(&world->events);

    if (first == NULL || event_of(first)->at_us > until_us)
        return false;
    heap_remove(&world->events, first);
    struct event *event = event_of(first);
    const struct party *party = event->party;
    world->now_us = event->at_us;
    if (party != NULL && event->life == party->life && party->paused_until_us > world->now_us) {
        event->at_us = party->paused_until_us; /* its number keeps it in order */
        schedule(world, event);
        return true;
    }
    if (party == NULL || event->life == party->life) {
        digest_number(&world->digest, event->at_us);
        digest_number(&world->digest, event->number);
        world->tally->events++;
        event->run(event->context, event);
    }
    event_free(event);
    return true;
}

void party_pause(struct world *world, struct party *party, int64_t us)
{
    if (party->paused_until_us < world->now_us + us)
        party->paused_until_us = world->now_us + us;
}

bool party_is_paused(const struct world *world, const struct party *party)
{
    return party->paused_until_us > world->now_us;
}

int64_t world_latency_us(const struct world *world, struct rng *rng)
{
    int64_t usual = rng_between(rng, 50, 400), slow = rng_between(rng, 1000, 60000);

    if (world->plan->calm_messages)
        return 200;
    if (rng_per_mille(rng, world->slow_net_per_mille)) {
        world->tally->faults[FAULT_SLOW]++;
        return slow * rng_between(rng, 1, 20);
    }
    return rng_per_mille(rng, 10) ? slow : usual;
}

int64_t world_wall_us(const struct world *world)
{
    return EPOCH_US + world->now_us + world->wall_ahead_us;
}

void world_count_fault(struct world *world, enum fault_kind kind)
{
    world->tally->faults[kind]++;
}

void world_tell(struct world *world, const char *format, ...)
{
    char text[400];
    va_list args;

    if (world->story == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buf_printf(world->story, "%10.3f ms  %s\n", (double)world->now_us / 1000, text);
}

void world_break(struct world *world, enum promise promise, const char *format, ...)
{
    va_list args;

    if (world->broken != PROMISE_NONE)
        return;
    world->broken = promise;
    va_start(args, format);
    vsnprintf(world->why, sizeof world->why, format, args);
    va_end(args);
    world_tell(world, "*** %s is broken: %s", promise_name(promise), world->why);
}
