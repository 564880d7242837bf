/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock on real Redises, with a timer of the loop. */
#include <stdlib.h>
#include <uv.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/redlock/redlock.h"

struct loop_alarm {
    struct redlock_alarm base;
    uv_timer_t timer;
    void (*closed)(void *context);
    void *context;
};

static void on_timer(uv_timer_t *timer)
{
    redlock_rang(((struct loop_alarm *)timer->data)->base.redlock);
}

static void set(struct redlock_alarm *base, int64_t delay_ms)
{
    struct loop_alarm *alarm = (struct loop_alarm *)(void *)base;

    uv_update_time(alarm->timer.loop); /* counts from now, not from when this turn began */
    uv_timer_start(&alarm->timer, on_timer, (uint64_t)delay_ms, 0);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct loop_alarm *alarm = handle->data;
    void (*closed)(void *context) = alarm->closed;
    void *context = alarm->context;

    free(alarm);
    closed(context);
}

static void close_alarm(struct redlock_alarm *base, void (*closed)(void *context), void *context)
{
    struct loop_alarm *alarm = (struct loop_alarm *)(void *)base;

    alarm->closed = closed;
    alarm->context = context;
    uv_close((uv_handle_t *)&alarm->timer, on_timer_closed);
}

struct lease_provider *lease_redlock_new(const struct lease_uri *uri,
                                         const struct lease_surroundings *surroundings)
{
    struct lease_provider *masters[LEASE_URI_HOSTS_MAX];
    struct loop_alarm *alarm = mem_zalloc(sizeof *alarm);

    alarm->base = (struct redlock_alarm){set, close_alarm, NULL};
    check(uv_timer_init(surroundings->loop, &alarm->timer) == 0);
    alarm->timer.data = alarm;
    for (int i = 0; i < uri->hosts_count; i++) {
        struct lease_uri member = lease_uri_member(uri, i);
        masters[i] = lease_open(&member, surroundings);
    }
    return redlock_new(
        masters, uri->hosts_count,
        &(struct redlock_surroundings){surroundings->clock, surroundings->chance, &alarm->base});
}
