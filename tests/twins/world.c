/* SPDX-License-Identifier: Apache-2.0 */
/* The host of the engine: what proxy/host does on a loop, done by hand. */
#include "tests/twins/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/open.h"
#include "tests/twins/memory_store.h"

static int64_t world_now_ms(const struct clock *clock)
{
    return ((const struct world *)clock->context)->now_ms;
}

static int64_t world_wall_us(const struct clock *clock)
{
    return world_now_ms(clock) * 1000;
}

/* Not random at all, and never twice the same. */
static void world_fill(const struct chance *chance, void *bytes, size_t len)
{
    struct world *world = chance->context;
    for (size_t i = 0; i < len; i++) {
        world->chance_state = world->chance_state * 6364136223846793005u + 1442695040888963407u;
        ((unsigned char *)bytes)[i] = (unsigned char)(world->chance_state >> 56);
    }
}

static void shutdown_asked(void *context)
{
    ((struct world *)context)->shutdown = true;
}

static void run_aside(void *context, struct engine_job *job)
{
    struct world *world = context;

    if (world->holds_asides) {
        check(world->asides_count < WORLD_CLIENTS_MAX);
        world->asides[world->asides_count++] = job;
        return;
    }
    job->run(job);
    job->done(job);
}

void world_hold_asides(struct world *world, bool held)
{
    size_t count = world->asides_count;

    world->holds_asides = held;
    world->asides_count = 0;
    for (size_t i = 0; i < count; i++)
        run_aside(world, world->asides[i]);
    world_settle(world);
}

static void start_engine(struct world *world)
{
    struct engine_options options = world->options;

    options.host = (struct engine_host){.changed = memory_conn_changed,
                                        .shutdown = shutdown_asked,
                                        .run_aside = run_aside,
                                        .context = world};
    options.store = world->store;
    options.provider = world->provider;
    options.clock = world->clock;
    options.chance = &world->chance;
    if (options.sessions_max == 0)
        options.sessions_max = WORLD_CLIENTS_MAX;
    if (options.history_max == 0)
        options.history_max = 1000;
    if (options.limits.things[ACCOUNT_WAITERS] == 0)
        options.limits.things[ACCOUNT_WAITERS] = 1000;
    if (options.acl != NULL) /* each engine has its own hold on it */
        acl_keep(options.acl);
    world->engine = engine_new(&options);
}

static struct world *begin(struct world *world, bool local, const struct engine_options *options)
{
    *world = (struct world){.now_ms = 1000000, .clock = &world->own_clock};
    world->own_clock =
        (struct clock){.now_ms = world_now_ms, .wall_us = world_wall_us, .context = world};
    if (options != NULL)
        world->options = *options;
    if (world->options.clock != NULL)
        world->clock = world->options.clock;
    world->chance = (struct chance){world_fill, world};
    world->store = world->options.store;
    if (world->store == NULL)
        world->store = store_memory_new(&(struct store_options){
            .queue_ops_max = 1000, .batch_ops_max = 100, .clock = world->clock});
    world->service = lease_service_new(world->clock);
    world->provider = local ? lease_local_new(world->clock) : lease_memory_new(world->service);
    start_engine(world);
    return world;
}

struct world *world_new(const struct engine_options *options)
{
    return begin(mem_zalloc(sizeof(struct world)), false, options);
}

struct world *world_new_local(const struct engine_options *options)
{
    return begin(mem_zalloc(sizeof(struct world)), true, options);
}

struct world *world_add_twin(struct world *world)
{
    struct world *twin = mem_zalloc(sizeof *twin);

    check(world->twin == NULL);
    *twin = (struct world){.clock = world->clock,
                           .store = world->store,
                           .service = world->service,
                           .provider = lease_memory_new(world->service),
                           .chance_state = ~world->chance_state,
                           .options = world->options,
                           .twin = world};
    twin->chance = (struct chance){world_fill, twin};
    start_engine(twin);
    world->twin = twin;
    return twin;
}

static void ignore(void *context)
{
    (void)context;
}

/* All that the clients asked for is over then, unless the store is lost. */
static void stop_engine(struct world *world)
{
    for (int i = 0; i < WORLD_CLIENTS_MAX; i++)
        world_disconnect(world, i);
    lease_service_set_late(world->service, 0);
    world_settle(world);
    if (!store_lost(world->store))
        engine_free(world->engine);
}

static void free_daemon(struct world *world)
{
    stop_engine(world);
    for (int i = 0; i < WORLD_CLIENTS_MAX; i++)
        memory_conn_free(&world->clients[i]);
    if (!store_lost(world->store))
        lease_provider_close(world->provider, ignore, NULL);
}

/* Whether its memory is free to be used again. */
static bool end(struct world *world)
{
    static struct world *lost_worlds; /* not forgotten, only never used again */

    if (world->twin != NULL)
        free_daemon(world->twin);
    free(world->twin);
    world->twin = NULL;
    free_daemon(world);
    bool lost = store_lost(world->store);
    if (world->options.store == NULL)
        store_close(world->store);
    if (!lost) {
        acl_drop(world->options.acl);
        lease_service_free(world->service);
        return true;
    }
    world->lost = lost_worlds;
    lost_worlds = world;
    return false;
}

void world_free(struct world *world)
{
    if (end(world))
        free(world);
}

void world_renew(struct world *world, const struct engine_options *options)
{
    check(end(world));
    begin(world, false, options);
}

void world_restart_engine(struct world *world, int64_t ms)
{
    stop_engine(world);
    world->now_ms += ms;
    start_engine(world);
}

static bool turn(struct world *world)
{
    int64_t next_ms = engine_next_ms(world->engine);

    engine_turn(world->engine);
    return next_ms >= 0 && next_ms <= clock_now_ms(world->clock);
}

void world_settle(struct world *world)
{
    /* The end of a turn may start commands: quiet means that nothing moved after it either. */
    for (int turns = 0, quiet = 0; quiet < 2; turns++) {
        check(turns < 100000);
        bool moved = store_step(world->store);
        if (store_lost(world->store))
            return;
        store_collect(world->store);
        moved |= lease_service_step(world->service) > 0;
        moved |= turn(world);
        moved |= world->twin != NULL && turn(world->twin);
        quiet = moved ? 0 : quiet + 1;
    }
}

void world_pass(struct world *world, int64_t ms)
{
    world_settle(world);
    for (; ms > 0; ms--) {
        world->now_ms++;
        world_settle(world);
    }
}

void world_step_store(struct world *world)
{
    (void)store_step(world->store);
    store_collect(world->store);
}

void world_connect(struct world *world, int number)
{
    char peer[32];

    snprintf(peer, sizeof peer, "test:%d", number);
    memory_conn_open(&world->clients[number], world->engine, peer);
}

void world_disconnect(struct world *world, int number)
{
    memory_conn_close(&world->clients[number]);
}

void world_send_only(struct world *world, int number, const char *line)
{
    if (world->clients[number].session == NULL)
        world_connect(world, number);
    session_input(world->clients[number].session, line, strlen(line));
    session_input(world->clients[number].session, "\r\n", 2);
}

void world_send(struct world *world, int number, const char *line)
{
    world_send_only(world, number, line);
    world_settle(world);
}

const char *world_received(struct world *world, int number)
{
    struct buf *received = &world->clients[number].received;

    buf_append(received, "", 1);
    received->len = 0; /* the text stays where it is until more arrives */
    return received->data;
}

const char *world_call(struct world *world, int number, const char *line)
{
    world_send(world, number, line);
    return world_received(world, number);
}

long world_counter(struct world *world, const char *name)
{
    struct buf info = {0};
    char key[80];

    engine_info(world->engine, NULL, 0, true, &info);
    buf_append(&info, "", 1);
    snprintf(key, sizeof key, "\n%s:", name);
    const char *at = strstr(info.data, key);
    check(at != NULL);
    long value = strtol(at + strlen(key), NULL, 10);
    buf_free(&info);
    return value;
}
