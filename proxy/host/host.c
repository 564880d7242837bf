/* SPDX-License-Identifier: Apache-2.0 */
/* First the loop's turn, then the parts, in the order in which they are opened and closed. */
#include "proxy/host/host.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/open.h"
#include "store/open.h"

enum { QUEUE_OPS_MAX = 65536, BATCH_OPS_MAX = 4096, ROUNDS_MAX = 8, LATE_MS = 10 };

struct host {
    struct host_options options;
    uv_prepare_t turn;
    uv_check_t polled;
    uv_timer_t timer;    /* the engine's next turn */
    uv_async_t wake;     /* the store has finished something */
    int64_t timer_at_ms; /* on the engine's clock; -1: the timer is not set */
    bool closing, lost, woken;
    void (*closed)(void *context);
    struct store *store; /* NULL: not open; so the next two */
    struct lease_provider *provider;
    struct engine *engine;
};

static void on_timer(uv_timer_t *timer)
{
    struct host *host = timer->data;
    host->timer_at_ms = -1; /* the turn follows */
}

static void set_timer(struct host *host)
{
    int64_t at_ms = engine_next_ms(host->engine), now_ms;

    if (at_ms == host->timer_at_ms)
        return;
    host->timer_at_ms = at_ms;
    if (at_ms < 0) {
        uv_timer_stop(&host->timer);
        return;
    }
    now_ms = clock_now_ms(&clock_monotonic);
    uv_update_time(host->options.loop);
    uv_timer_start(&host->timer, on_timer, at_ms > now_ms ? (uint64_t)(at_ms - now_ms) : 0, 0);
}

static void collect(struct host *host)
{
    if (host->store == NULL || host->lost)
        return; /* it is being opened, or is of no more use */
    store_collect(host->store);
    host->lost = store_lost(host->store);
    if (host->lost)
        host->options.lost(host->options.context);
}

static void on_wake(uv_async_t *wake)
{
    struct host *host = wake->data;
    host->woken = true;
}

/* Collect after everything that came in with the wake-up: a client that has left by then gets no
 * lease. */
static void on_polled(uv_check_t *polled)
{
    struct host *host = polled->data;

    if (host->woken) {
        if (host->engine != NULL)
            engine_read_clock(host->engine);
        collect(host);
    }
    host->woken = false;
}

/* Let the store do at once what it can, at the end of a turn. True: it did, and that is collected.
 * Where it took long, sockets come first. */
static bool do_at_once(struct host *host)
{
    int64_t start_us = engine_read_clock(host->engine);

    if (!store_flush(host->store))
        return false;
    if (engine_read_clock(host->engine) - start_us >= LATE_MS * 1000) {
        uv_async_send(&host->wake);
        return false;
    }
    collect(host);
    return true;
}

static void on_turn(uv_prepare_t *turn)
{
    struct host *host = turn->data;
    int round = 0;

    /* What the store has done at once may lead to more, as the steps of an ACQUIRE do. */
    do {
        engine_turn(host->engine);
        host->options.turned(host->options.context);
    } while ((do_at_once(host) || engine_wants_turn(host->engine)) && !host->closing &&
             ++round < ROUNDS_MAX);
    if (!host->closing)
        set_timer(host);
    if (round == ROUNDS_MAX)
        uv_async_send(&host->wake); /* the turn is not over, but sockets have waited long enough */
}

/* Called on the store's threads. */
static void wake(void *context)
{
    struct host *host = context;
    uv_async_send(&host->wake);
}

struct host *host_new(const struct host_options *options)
{
    struct host *host = mem_zalloc(sizeof *host);

    host->options = *options;
    host->timer_at_ms = -1;
    if (uv_async_init(options->loop, &host->wake, on_wake) != 0) {
        free(host);
        return NULL;
    }
    check(uv_prepare_init(options->loop, &host->turn) == 0);
    check(uv_check_init(options->loop, &host->polled) == 0);
    check(uv_timer_init(options->loop, &host->timer) == 0);
    host->turn.data = host->polled.data = host->timer.data = host->wake.data = host;
    return host;
}

bool host_open(struct host *host, const char *store, const char *lease, char *why, size_t why_size)
{
    const struct store_options store_options = {
        .threads = true,
        .queue_ops_max = QUEUE_OPS_MAX,
        .batch_ops_max = BATCH_OPS_MAX,
        .cache_mb = host->options.cache_mb,
        .passes = host->options.store_passes,
        .wake = wake,
        .context = host,
        .log = host->options.log,
    };
    const struct lease_surroundings surroundings = {
        .loop = host->options.loop,
        .clock = &clock_monotonic,
        .chance = &chance_system,
        .log = host->options.log,
    };
    struct lease_uri uri;

    if (!lease_uri_parse(lease, &uri, why, why_size))
        return false;
    host->store = store_open(store, store_options, why, why_size);
    if (host->store == NULL)
        return false;
    host->provider = lease_open(&uri, &surroundings, why, why_size);
    return host->provider != NULL;
}

struct engine *host_open_engine(struct host *host, struct engine_options options)
{
    options.store = host->store;
    options.provider = host->provider;
    options.clock = &clock_monotonic;
    options.chance = &chance_system;
    options.log = host->options.log;
    host->engine = engine_new(&options);
    return host->engine;
}

void host_start(struct host *host, void (*ready)(void *context))
{
    check(uv_prepare_start(&host->turn, on_turn) == 0);
    check(uv_check_start(&host->polled, on_polled) == 0);
    lease_on_first_attempt(host->provider, ready, host->options.context);
}

struct engine *host_engine(const struct host *host)
{
    return host->engine;
}

struct store *host_store(const struct host *host)
{
    return host->store;
}

struct lease_provider *host_provider(const struct host *host)
{
    return host->provider;
}

static void close_handles(void *context)
{
    struct host *host = context;

    uv_close((uv_handle_t *)&host->turn, NULL);
    uv_close((uv_handle_t *)&host->polled, NULL);
    uv_close((uv_handle_t *)&host->timer, NULL);
    uv_close((uv_handle_t *)&host->wake, NULL);
    host->closed(host->options.context);
}

void host_close(struct host *host, void (*closed)(void *context))
{
    host->closing = true;
    host->closed = closed;
    if (host->provider != NULL)
        lease_provider_close(host->provider, close_handles, host);
    else
        close_handles(host);
}

void host_free(struct host *host)
{
    if (host->engine != NULL && !host->lost)
        engine_free(host->engine);
    if (host->store != NULL)
        store_close(host->store);
    free(host);
}
