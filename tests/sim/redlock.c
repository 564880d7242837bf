/* SPDX-License-Identifier: Apache-2.0 */
/* The alarm counts by the daemon's clock, which may be slow: one that rings too early is set again
 * by the provider. */
#include "tests/sim/redlock.h"

#include <stdlib.h>

#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/lease/redlock/redlock.h"

struct sim_redlock {
    struct daemon *daemon;
    struct lease_provider *provider;
    struct redlock_alarm alarm;
    struct clock clock;
    bool over; /* all its pauses are */
    int64_t rings_us;
    void (*turned)(void *context);
};

static int64_t redlock_now_ms(const struct clock *clock)
{
    const struct sim_redlock *redlock = clock->context;
    return redlock->over ? INT64_MAX / 2 : clock_now_ms(&redlock->daemon->clock);
}

static void ring(void *context, struct event *event)
{
    struct sim_redlock *redlock = context;

    if (redlock->rings_us != event->value)
        return;
    redlock_rang(redlock->provider);
    redlock->turned(redlock->daemon);
}

static void set(struct redlock_alarm *alarm, int64_t delay_ms)
{
    struct sim_redlock *redlock = list_entry(alarm, struct sim_redlock, alarm);
    struct world *world = redlock->daemon->world;

    redlock->rings_us = world->now_us + delay_ms * 1000 + 10;
    world_at(world, redlock->rings_us, &redlock->daemon->party, ring, redlock)->value =
        redlock->rings_us;
}

static void close_alarm(struct redlock_alarm *alarm, void (*closed)(void *context), void *context)
{
    free(list_entry(alarm, struct sim_redlock, alarm));
    closed(context);
}

struct sim_redlock *sim_redlock_new(struct daemon *daemon, void (*turned)(void *context))
{
    struct sim_redlock *redlock = mem_zalloc(sizeof *redlock);

    redlock->daemon = daemon;
    redlock->turned = turned;
    redlock->clock = (struct clock){.now_ms = redlock_now_ms, .context = redlock};
    redlock->alarm = (struct redlock_alarm){set, close_alarm, NULL};
    redlock->provider = redlock_new(
        daemon->masters, daemon->world->plan->masters,
        &(struct redlock_surroundings){&redlock->clock, &daemon->chance, &redlock->alarm});
    return redlock;
}

struct lease_provider *sim_redlock_provider(const struct sim_redlock *redlock)
{
    return redlock->provider;
}

void sim_redlock_end_pauses(struct sim_redlock *redlock)
{
    redlock->over = true;
    redlock_rang(redlock->provider);
}
