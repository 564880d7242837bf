/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy/server/overdue.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"

/* Longer than libmicrohttpd lets a silent connection be, which a request may end late. */
enum { REQUEST_MS = 20000, TICK_MS = 500 };

struct overdue {
    uv_timer_t timer; /* runs while something is awaited */
    struct list awaited;
    void (*closed)(void *context);
    void *context;
};

struct arrival {
    struct list link; /* overdue->awaited, the oldest first; else in none */
    struct overdue *overdue;
    uint64_t until_ms;
    int fd;
};

static void on_tick(uv_timer_t *timer)
{
    struct overdue *overdue = timer->data;

    while (!list_empty(&overdue->awaited)) {
        struct arrival *arrival = list_entry(overdue->awaited.next, struct arrival, link);
        if (arrival->until_ms > uv_now(timer->loop))
            return;
        list_remove(&arrival->link);
        (void)shutdown(arrival->fd, SHUT_RDWR); /* its owner sees that it has ended */
    }
    uv_timer_stop(timer);
}

void overdue_await(struct arrival *arrival)
{
    uv_timer_t *timer = &arrival->overdue->timer;

    list_remove(&arrival->link);
    list_append(&arrival->overdue->awaited, &arrival->link);
    arrival->until_ms = uv_now(timer->loop) + REQUEST_MS;
    if (!uv_is_active((uv_handle_t *)timer) && !uv_is_closing((uv_handle_t *)timer))
        uv_timer_start(timer, on_tick, TICK_MS, TICK_MS);
}

void overdue_arrived(struct arrival *arrival)
{
    list_remove(&arrival->link);
}

struct arrival *overdue_begin(struct overdue *overdue, int fd)
{
    struct arrival *arrival = mem_zalloc(sizeof *arrival);

    arrival->overdue = overdue;
    arrival->fd = fd;
    list_init(&arrival->link);
    overdue_await(arrival);
    return arrival;
}

void overdue_end(struct arrival *arrival)
{
    list_remove(&arrival->link);
    free(arrival);
}

struct overdue *overdue_new(uv_loop_t *loop)
{
    struct overdue *overdue = mem_zalloc(sizeof *overdue);

    list_init(&overdue->awaited);
    check(uv_timer_init(loop, &overdue->timer) == 0);
    overdue->timer.data = overdue;
    return overdue;
}

static void on_closed(uv_handle_t *handle)
{
    struct overdue *overdue = handle->data;

    overdue->closed(overdue->context);
    free(overdue);
}

void overdue_close(struct overdue *overdue, void (*closed)(void *context), void *context)
{
    check(list_empty(&overdue->awaited));
    overdue->closed = closed;
    overdue->context = context;
    uv_close((uv_handle_t *)&overdue->timer, on_closed);
}
