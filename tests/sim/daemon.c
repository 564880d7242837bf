/* SPDX-License-Identifier: Apache-2.0 */
/* The death of a daemon has to leave nothing behind in this process, though a killed process frees
 * nothing: so the lease service and the disk are cut off first, and then the engine is led to its
 * end, which nobody out there can notice. */
#include "tests/sim/daemon.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"
#include "fence/lease/open.h"
#include "store/open.h"
#include "tests/sim/disk.h"
#include "tests/sim/link.h"
#include "tests/sim/oracle.h"
#include "tests/sim/redis.h"

#define RECEIPTS_KEEP_MS (24 * 3600 * 1000)

static int64_t daemon_now_ms(const struct clock *clock)
{
    const struct daemon *daemon = clock->context;
    return daemon->clock_ms + daemon->world->now_us / 1000 * daemon->rate_ppm / 1000000;
}

static int64_t daemon_wall_us(const struct clock *clock)
{
    return world_wall_us(((const struct daemon *)clock->context)->world);
}

static void daemon_fill(const struct chance *chance, void *bytes, size_t len)
{
    rng_fill(&((struct daemon *)chance->context)->rng, bytes, len);
}

static void run_turn(void *context, struct event *event)
{
    struct daemon *daemon = context;

    if (daemon->timer_us == event->value)
        daemon->timer_us = -1;
    daemon_turn(daemon);
}

void daemon_turn(struct daemon *daemon)
{
    struct world *world = daemon->world;

    engine_turn(daemon->engine);
    int64_t due_ms = engine_next_ms(daemon->engine), now_ms = daemon_now_ms(&daemon->clock);
    if (due_ms < 0)
        return;
    int64_t left_ms = due_ms > now_ms ? due_ms - now_ms : 0;
    int64_t at_us = world->now_us + left_ms * 1000 + 10;
    if (daemon->timer_us >= 0 && daemon->timer_us <= at_us)
        return;
    daemon->timer_us = at_us;
    world_at(world, at_us, &daemon->party, run_turn, daemon)->value = at_us;
}

static void turned(void *context)
{
    struct daemon *daemon = context;
    if (daemon->up)
        daemon_turn(daemon);
}

/* The product's Redlock over simulated Redises. Its timer counts by the daemon's clock, which may
 * be slow: one that fires too early is set again by the provider. */

static int64_t redlock_now_ms(const struct clock *clock)
{
    const struct daemon *daemon = clock->context;
    return daemon->redlock.over ? INT64_MAX / 2 : clock_now_ms(&daemon->clock);
}

static void fire(void *context, struct event *event)
{
    struct daemon *daemon = context;

    if (daemon->redlock.fires_us != event->value)
        return;
    redlock_on_timer(daemon->provider);
    turned(daemon);
}

static void set_timer(struct redlock_timer *timer, int64_t delay_ms)
{
    struct daemon *daemon = list_entry(timer, struct daemon, redlock.timer);
    int64_t at_us = daemon->world->now_us + delay_ms * 1000 + 10;

    daemon->redlock.fires_us = at_us;
    world_at(daemon->world, at_us, &daemon->party, fire, daemon)->value = at_us;
}

static void close_timer(struct redlock_timer *timer, void (*closed)(void *context), void *context)
{
    (void)timer;
    closed(context);
}

static void open_redlock(struct daemon *daemon)
{
    daemon->redlock.over = false;
    daemon->redlock.clock = (struct clock){.now_ms = redlock_now_ms, .context = daemon};
    daemon->redlock.timer = (struct redlock_timer){set_timer, close_timer, NULL};
    daemon->provider =
        redlock_new(daemon->masters, daemon->world->plan->masters,
                    &(struct redlock_surroundings){&daemon->redlock.clock, &daemon->chance,
                                                   &daemon->redlock.timer});
}

/* The store has finished something. */
static void woken(void *context)
{
    struct daemon *daemon = context;

    if (store_lost(daemon->store)) {
        world_tell(daemon->world, "daemon %d does not know what became of a commit, and ends",
                   daemon->number);
        daemon_crash(daemon, rng_between(&daemon->rng, 5, 300));
        return;
    }
    store_collect(daemon->store);
    daemon_turn(daemon);
}

/* It fails now and then: nobody is told of what came to pass then. */
enum { AUDIT_FAILS = 200, AUDIT_MIN_US = 50 };

static void audit_synced(void *context, struct event *event)
{
    struct daemon *daemon = context;

    (void)event;
    daemon->audit_busy = false;
    if (rng_below(&daemon->rng, AUDIT_FAILS) == 0)
        engine_audit_failed(daemon->engine);
    else
        engine_audited(daemon->engine, daemon->audit_tickets);
    daemon_turn(daemon);
}

static uint64_t audit_note(void *context, const struct audit_note *note)
{
    struct daemon *daemon = context;
    struct world *world = daemon->world;

    (void)note;
    if (!daemon->audit_busy)
        world_at(world, world->now_us + rng_between(&daemon->rng, AUDIT_MIN_US, AUDIT_MAX_US),
                 &daemon->party, audit_synced, daemon);
    daemon->audit_busy = true;
    return ++daemon->audit_tickets;
}

static struct audit_state audit_state(void *context)
{
    (void)context;
    return (struct audit_state){.chain = "", .head = ""};
}

static struct audit audit_of(struct daemon *daemon)
{
    if (daemon->world->plan->seed % AUDITED_SEEDS != 0)
        return (struct audit){.note = NULL};
    daemon->audit_busy = false;
    return (struct audit){.note = audit_note,
                          .state = audit_state,
                          .durable = AUDIT_BIT(AUDIT_EVENT_COUNT) - 1,
                          .context = daemon};
}

static void no_shutdown(void *context)
{
    (void)context;
}

static void daemon_start(struct daemon *daemon);

static void run_start(void *context, struct event *event)
{
    struct daemon *daemon = context;

    (void)event;
    if (!daemon->up)
        daemon_start(daemon);
}

static void start_in(struct daemon *daemon, int64_t ms)
{
    struct world *world = daemon->world;
    world_at(world, world->now_us + ms * 1000, NULL, run_start, daemon);
}

static void open_provider(struct daemon *daemon)
{
    struct world *world = daemon->world;

    if (world->plan->provider == PROVIDER_LOCAL) {
        daemon->provider = lease_local_new(&daemon->clock);
        return;
    }
    for (int i = 0; i < world->plan->masters; i++)
        daemon->masters[i] = redis_provider_new(world->redises[i], daemon->number, &daemon->party,
                                                &daemon->clock, turned, daemon);
    if (world->plan->provider == PROVIDER_REDIS)
        daemon->provider = daemon->masters[0];
    else
        open_redlock(daemon);
}

/* Nothing reaches the lease services any more, and all that asks them has an answer. */
static void cut_off_provider(struct daemon *daemon)
{
    const struct plan *plan = daemon->world->plan;

    if (plan->provider == PROVIDER_LOCAL)
        return;
    for (int i = 0; i < plan->masters; i++)
        redis_provider_cut_off(daemon->masters[i]);
    for (int i = 0; i < plan->masters; i++)
        redis_provider_fail_all(daemon->masters[i]);
    if (plan->provider == PROVIDER_REDLOCK) { /* what pauses tries again, and so is answered */
        daemon->redlock.over = true;
        redlock_on_timer(daemon->provider);
    }
}

static void daemon_start(struct daemon *daemon)
{
    struct world *world = daemon->world;
    const struct plan *plan = world->plan;

    daemon->clock =
        (struct clock){.now_ms = daemon_now_ms, .wall_us = daemon_wall_us, .context = daemon};
    daemon->chance = (struct chance){daemon_fill, daemon};
    daemon->store = disk_open(world->disk, daemon->number, &daemon->party, woken, daemon);
    if (daemon->store == NULL) {
        start_in(daemon, 200);
        return;
    }
    open_provider(daemon);
    daemon->engine = engine_new(&(struct engine_options){
        .host = {.changed = memory_conn_changed, .shutdown = no_shutdown, .context = daemon},
        .store = daemon->store,
        .provider = daemon->provider,
        .clock = &daemon->clock,
        .chance = &daemon->chance,
        .audit = audit_of(daemon),
        .receipts_keep_ms = RECEIPTS_KEEP_MS,
        .forget_ms = plan->forget_ms,
        .sql_limit_ms = 1000,
        .sessions_max = 200,
        .limits = {.things = {[ACCOUNT_WAITERS] = 200}},
        .history_max = DAEMON_HISTORY_MAX,
    });
    daemon->up = true;
    daemon->started_us = world->now_us;
    daemon->timer_us = -1;
    world_tell(world, "daemon %d is up", daemon->number);
    daemon_turn(daemon);
}

void daemon_pause(struct daemon *daemon, int64_t ms)
{
    if (!daemon->up || party_is_paused(daemon->world, &daemon->party))
        return;
    world_tell(daemon->world, "daemon %d pauses for %lld ms", daemon->number, (long long)ms);
    world_count_fault(daemon->world, FAULT_DAEMON_PAUSE);
    daemon->pauses_us += ms * 1000;
    party_pause(daemon->world, &daemon->party, ms * 1000);
}

static void ignore(void *context)
{
    (void)context;
}

static void daemon_end(struct daemon *daemon)
{
    struct world *world = daemon->world;

    daemon->up = false;
    cut_off_provider(daemon);
    disk_cut_off(daemon->store);
    for (struct link *link = world->links; link != NULL; link = link->next)
        if (link->daemon == daemon->number)
            link_daemon_gone(link);
    check(engine_idle(daemon->engine));
    engine_free(daemon->engine);
    lease_provider_close(daemon->provider, ignore, NULL);
    store_close(daemon->store);
    daemon->engine = NULL;
    daemon->party.life++;
    daemon->party.paused_until_us = 0;
}

void daemon_crash(struct daemon *daemon, int64_t ms)
{
    if (!daemon->up)
        return;
    world_tell(daemon->world, "daemon %d dies", daemon->number);
    daemon_end(daemon);
    start_in(daemon, ms);
}

static void drained(void *context, struct event *event)
{
    (void)event;
    daemon_crash(context, 50);
}

void daemon_drain(struct daemon *daemon, int64_t ms)
{
    if (!daemon->up || party_is_paused(daemon->world, &daemon->party))
        return;
    world_tell(daemon->world, "daemon %d is told to stop", daemon->number);
    world_count_fault(daemon->world, FAULT_DAEMON_DRAIN);
    engine_drain(daemon->engine);
    world_at(daemon->world, daemon->world->now_us + ms * 1000, &daemon->party, drained, daemon);
    daemon_turn(daemon);
}

static void power_off(void *context, struct event *event)
{
    struct world *world = context;

    (void)event;
    world_tell(world, "the power goes off");
    for (int i = 0; i < world->plan->daemons; i++)
        daemon_crash(&world->daemons[i], rng_between(&world->daemons[i].rng, 20, 400));
    disk_power_off(world->disk);
    world->booted_us = world->now_us;
    world->boots++;
}

void daemon_power_off(struct world *world, int64_t us)
{
    if (us > 0)
        world_at(world, world->now_us + us, NULL, power_off, world);
    else
        world_at_once(world, power_off, world);
}

void daemons_new(struct world *world)
{
    int count = world->plan->daemons;

    world->daemons = mem_zalloc((size_t)count * sizeof *world->daemons);
    for (int i = 0; i < count; i++) {
        struct daemon *daemon = &world->daemons[i];
        daemon->world = world;
        daemon->number = i;
        daemon->rng = rng_of(world->plan->seed, 'D', (uint64_t)i);
        daemon->clock_ms = rng_between(&daemon->rng, 1000, 100000000);
        daemon->rate_ppm = rng_between(&daemon->rng, 998000, 1002000);
        daemon_start(daemon);
    }
}

void daemons_free(struct world *world)
{
    for (int i = 0; i < world->plan->daemons; i++)
        if (world->daemons[i].up)
            daemon_end(&world->daemons[i]);
    free(world->daemons);
    world->daemons = NULL;
}
