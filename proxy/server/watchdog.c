/* SPDX-License-Identifier: Apache-2.0 */
/* See watchdog.h. */
#include "proxy/server/watchdog.h"

#include <stdbool.h>
#include <systemd/sd-daemon.h>

#include "fence/base/check.h"

/* Several, so that one late check does not end the daemon. */
enum { CHECKS_PER_PERIOD = 4 };

/* Return whether each thread that has work has done some since the last check. */
static bool store_gets_on(struct watchdog *watchdog)
{
    struct store_stats now = store_stats(watchdog->store);
    bool writer_stands = !now.writer_rests && now.writes == watchdog->writes;
    bool reader_stands = !now.reader_rests && now.reads == watchdog->reads;

    watchdog->writes = now.writes;
    watchdog->reads = now.reads;
    return !writer_stands && !reader_stands;
}

static void on_check(uv_timer_t *timer)
{
    if (store_gets_on(timer->data))
        (void)sd_notify(0, "WATCHDOG=1");
}

void watchdog_init(struct watchdog *watchdog, uv_loop_t *loop)
{
    check(uv_timer_init(loop, &watchdog->timer) == 0);
    watchdog->timer.data = watchdog;
}

void watchdog_start(struct watchdog *watchdog, const struct store *store)
{
    uint64_t period_us, check_ms;

    if (sd_watchdog_enabled(0, &period_us) <= 0)
        return;
    watchdog->store = store;
    check_ms = period_us / 1000 / CHECKS_PER_PERIOD;
    uv_timer_start(&watchdog->timer, on_check, 0, check_ms > 0 ? check_ms : 1);
}

void watchdog_close(struct watchdog *watchdog)
{
    uv_close((uv_handle_t *)&watchdog->timer, NULL);
}
