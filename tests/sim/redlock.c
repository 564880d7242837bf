/* SPDX-License-Identifier: Apache-2.0 */
/* The timer counts by the daemon's clock, which may be slow: one that fires too early is set again
 * by the provider. */
#include "tests/sim/redlock.h"

#include <stdlib.h>

#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/lease/redlock/redlock.h"

struct sim_redlock {
    struct daemon *daemon;
    struct lease_provider *provider;
    struct redlock_timer timer;
    struct clock clock;
    bool over; /* all its pauses are */
    int64_t fires_us;
    void (*turned)(void *context);
};

static int64_t redlock_now_ms(const struct clock *clock)
{
    const struct sim_redlock *redlock = clock->context;
    return redlock->over ? INT64_MAX / 2 : clock_now_ms(&redlock->daemon->clock);
}

static void fire(void *context, struct event *event)
{
    struct sim_redlock *redlock = context;

    if (redlock->fires_us != event->value)
        return;
    redlock_on_timer(redlock->provider);
    redlock->turned(redlock->daemon);
}

static void set(struct redlock_timer *timer, int64_t delay_ms)
{
    struct sim_redlock *redlock = list_entry(timer, struct sim_redlock, timer);
    struct world *world = redlock->daemon->world;

    redlock->fires_us = world->now_us + delay_ms * 1000 + 10;
    world_at(world, redlock->fires_us, &redlock->daemon->party, fire, redlock)->value =
        redlock->fires_us;
}

static void close_timer(struct redlock_timer *timer, void (*closed)(void *context), void *context)
{
    free(list_entry(timer, struct sim_redlock, timer));
    closed(context);
}

struct sim_redlock *sim_redlock_new(struct daemon *daemon, void (*turned)(void *context))
{
    struct sim_redlock *redlock = mem_zalloc(sizeof *redlock);

    redlock->daemon = daemon;
    redlock->turned = turned;
    redlock->clock = (struct clock){.now_ms = redlock_now_ms, .context = redlock};
    redlock->timer = (struct redlock_timer){set, close_timer, NULL};
    redlock->provider = redlock_new(
        daemon->masters, daemon->world->plan->masters,
        &(struct redlock_surroundings){&redlock->clock, &daemon->chance, &redlock->timer});
    return redlock;
}

struct lease_provider *sim_redlock_provider(const struct sim_redlock *redlock)
{
    return redlock->provider;
}

void sim_redlock_end_pauses(struct sim_redlock *redlock)
{
    redlock->over = true;
    redlock_on_timer(redlock->provider);
}
