/* SPDX-License-Identifier: Apache-2.0 */
/* The host of an engine under test: what proxy/server does with sockets, done with arrays. */
#include "tests/unit/engine/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

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

static void changed(void *connection)
{
    struct client *client = connection;
    struct buf out = {0};

    session_take_output(client->session, &out);
    buf_append_bytes(&client->received, buf_bytes(&out));
    session_set_unsent(client->session, 0);
    buf_free(&out);
    if (session_ended(client->session)) {
        session_close(client->session);
        client->session = NULL;
        client->closed = true;
    }
}

static void shutdown_asked(void *context)
{
    ((struct world *)context)->shutdown = true;
}

static void start_engine(struct world *world)
{
    struct engine_options options = world->options;

    options.host =
        (struct engine_host){.changed = changed, .shutdown = shutdown_asked, .context = world};
    options.store = world->store;
    options.provider = world->provider;
    options.clock = &world->clock;
    options.chance = &world->chance;
    if (options.sessions_max == 0)
        options.sessions_max = WORLD_CLIENTS_MAX;
    if (options.waiters_max == 0)
        options.waiters_max = 1000;
    world->engine = engine_new(&options);
}

static struct world *begin(struct world *world,
                           struct store *(*store_new)(const struct store_options *), bool local,
                           const struct engine_options *options)
{
    *world = (struct world){.now_ms = 1000000};
    world->clock =
        (struct clock){.now_ms = world_now_ms, .wall_us = world_wall_us, .context = world};
    world->chance = (struct chance){world_fill, world};
    world->store = store_new(&(struct store_options){
        .queue_ops_max = 1000, .batch_ops_max = 100, .clock = &world->clock});
    world->service = lease_service_new(&world->clock);
    world->provider = local ? lease_local_new(&world->clock) : lease_memory_new(world->service);
    if (options != NULL)
        world->options = *options;
    start_engine(world);
    return world;
}

struct world *world_new(const struct engine_options *options)
{
    return world_new_on(store_memory_new, options);
}

struct world *world_new_on(struct store *(*store_new)(const struct store_options *),
                           const struct engine_options *options)
{
    return begin(mem_zalloc(sizeof(struct world)), store_new, false, options);
}

struct world *world_new_local(void)
{
    return begin(mem_zalloc(sizeof(struct world)), store_memory_new, true, NULL);
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

static void stop_engine(struct world *world)
{
    for (int i = 0; i < WORLD_CLIENTS_MAX; i++)
        if (world->clients[i].session != NULL)
            world_disconnect(world, i);
    lease_service_set_late(world->service, 0);
    world_settle(world);
    engine_free(world->engine);
}

static void ignore(void *context)
{
    (void)context;
}

static void free_daemon(struct world *world)
{
    stop_engine(world);
    lease_provider_close(world->provider, ignore, NULL);
    for (int i = 0; i < WORLD_CLIENTS_MAX; i++)
        buf_free(&world->clients[i].received);
}

static void end(struct world *world)
{
    struct world *twin = world->twin;

    if (twin != NULL) {
        free_daemon(twin);
        world->twin = NULL;
        free(twin);
    }
    free_daemon(world);
    lease_service_free(world->service);
    if (!world->keeps_store)
        store_close(world->store);
}

void world_free(struct world *world)
{
    end(world);
    free(world);
}

void world_renew(struct world *world, const struct engine_options *options)
{
    end(world);
    begin(world, store_memory_new, false, options);
}

void world_restart_engine(struct world *world)
{
    world_restart_engine_in(world, 0);
}

void world_restart_engine_in(struct world *world, int64_t ms)
{
    stop_engine(world);
    world->now_ms += ms;
    start_engine(world);
}

static bool turn(struct world *world)
{
    int64_t next_ms = engine_next_ms(world->engine);

    engine_turn(world->engine);
    return next_ms >= 0 && next_ms <= clock_now_ms(&world->clock);
}

void world_settle(struct world *world)
{
    /* The end of a turn may start commands: quiet means that nothing moved after it either. */
    for (int turns = 0, quiet = 0; quiet < 2; turns++) {
        check(turns < 100000);
        bool moved = store_step(world->store);
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

struct client *world_connect(struct world *world, int number)
{
    struct client *client = &world->clients[number];
    char peer[32];

    check(client->session == NULL);
    snprintf(peer, sizeof peer, "test:%d", number);
    client->closed = false;
    buf_clear(&client->received);
    client->session = session_open(world->engine, peer, true, client, &client->received);
    return client;
}

void world_disconnect(struct world *world, int number)
{
    session_close(world->clients[number].session);
    world->clients[number].session = NULL;
}

void world_send_only(struct world *world, int number, const char *line)
{
    struct client *client = &world->clients[number];

    if (client->session == NULL)
        world_connect(world, number);
    session_input(client->session, line, strlen(line));
    session_input(client->session, "\r\n", 2);
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

    engine_info(world->engine, NULL, 0, &info);
    buf_append(&info, "", 1);
    snprintf(key, sizeof key, "\n%s:", name);
    const char *at = strstr(info.data, key);
    check(at != NULL);
    long value = strtol(at + strlen(key), NULL, 10);
    buf_free(&info);
    return value;
}
