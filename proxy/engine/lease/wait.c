/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting in line, of one lease or of several: it is counted, has a deadline, and holds up its
 * connection, behind which deadlock.c looks meanwhile. Whose turn it is, line.c says. */
#include "proxy/engine/lease/lease.h"
#include "proxy/engine/scope.h"
#include "proxy/engine/session/behind.h"

static void on_deadline(struct timer *timer)
{
    struct lease_wait *wait = list_entry(timer, struct lease_wait, deadline);

    wait->on_vain(wait, STK_OK);
}

static void on_deadlock(struct deadlock *deadlock)
{
    struct lease_wait *wait = list_entry(deadlock, struct lease_wait, deadlock);

    wait->on_vain(wait, STK_DEADLOCK);
}

void lease_wait_begin(struct lease_wait *wait, struct engine *engine, int64_t until_ms)
{
    if (wait->since_us != 0)
        return;
    wait->since_us = engine->now_us;
    wait->deadlock.on_found = on_deadlock;
    wait->deadline.fire = on_deadline;
    engine->waiters++;
    engine->counters.leases_waited++;
    timer_set(engine, &wait->deadline, until_ms);
}

void lease_wait_end(struct lease_wait *wait, struct engine *engine, struct session *session)
{
    if (wait->since_us == 0)
        return;
    timer_stop(engine, &wait->deadline);
    if (session != NULL)
        behind_end(session);
    engine->waiters--;
    durations_add(&engine->times.waits, engine_read_clock_us(engine) - wait->since_us);
}

struct waiter_about acquire_shown(const struct waiter *waiter)
{
    const struct acquire *acquire = list_entry(waiter, struct acquire, waiter);
    const char *way = acquire_keeps_place(acquire) ? "queue"
                      : acquire->way == WAY_WAITS  ? "wait"
                                                   : NULL;

    return (struct waiter_about){.session = acquire->session,
                                 .resource = acquire->resource,
                                 .owner = scope_name(acquire->options.owner),
                                 .way = way};
}
