/* SPDX-License-Identifier: Apache-2.0 */
/* The queue is a binary heap by time, then by order of scheduling. */
#include "tests/sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

#define EPOCH_US 1700000000000000

static bool before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->number < b->number;
}

static void push(struct queue *queue, struct event *event)
{
    if (queue->count == queue->room) {
        queue->room = queue->room * 2 + 256;
        queue->heap = mem_realloc(queue->heap, queue->room * sizeof(struct event *));
    }
    size_t at = queue->count++;
    for (; at > 0 && before(event, queue->heap[(at - 1) / 2]); at = (at - 1) / 2)
        queue->heap[at] = queue->heap[(at - 1) / 2];
    queue->heap[at] = event;
}

static struct event *pop(struct queue *queue)
{
    struct event *first = queue->heap[0], *last = queue->heap[--queue->count];
    size_t at = 0;

    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= queue->count)
            break;
        if (child + 1 < queue->count && before(queue->heap[child + 1], queue->heap[child]))
            child++;
        if (!before(queue->heap[child], last))
            break;
        queue->heap[at] = queue->heap[child];
        at = child;
    }
    if (queue->count > 0)
        queue->heap[at] = last;
    return first;
}

static void event_free(struct event *event)
{
    buf_free(&event->bytes);
    free(event);
}

void queue_free(struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        event_free(queue->heap[i]);
    free(queue->heap);
    *queue = (struct queue){0};
}

static struct event *add(struct world *world, const struct event *like)
{
    struct event *event = mem_zalloc(sizeof *event);

    check(like->at_us >= world->now_us);
    *event = *like;
    push(&world->queue, event);
    return event;
}

struct event *world_at(struct world *world, int64_t at_us, struct party *party,
                       void (*run)(void *context, struct event *event), void *context)
{
    return add(world, &(struct event){.at_us = at_us,
                                      .number = ++world->queue.numbers,
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
    if (world->queue.count == 0 || world->queue.heap[0]->at_us > until_us)
        return false;
    struct event *event = pop(&world->queue);
    const struct party *party = event->party;
    world->now_us = event->at_us;
    if (party != NULL && event->life == party->life && party->paused_until_us > world->now_us) {
        event->at_us = party->paused_until_us; /* its number keeps it in order */
        push(&world->queue, event);
        return true;
    }
    if (party == NULL || event->life == party->life) {
        digest_number(&world->digest, event->at_us);
        digest_number(&world->digest, (int64_t)event->number);
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
