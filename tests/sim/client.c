/* SPDX-License-Identifier: Apache-2.0 */
/* Coroutines by ucontext. Whoever delivers an event to the client runs it until it waits again. */
#include "tests/sim/client.h"

#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

#define STACK_SIZE (64 << 10)

/* Runs the coroutine until it waits or ends. */
static void resume(struct client *client)
{
    ucontext_t scheduler;

    client->back = &scheduler;
    check(swapcontext(&scheduler, &client->here) == 0);
}

static void yield(struct client *client)
{
    check(swapcontext(&client->here, client->back) == 0);
}

/* makecontext passes ints. */
static void enter(unsigned high, unsigned low)
{
    struct client *client = (struct client *)(((uintptr_t)high << 32) | (uintptr_t)low);

    client_main(client);
    client->runs = false;
    yield(client);
}

static void start(struct client *client)
{
    uintptr_t self = (uintptr_t)client;

    check(getcontext(&client->here) == 0);
    client->here.uc_stack.ss_sp = client->stack;
    client->here.uc_stack.ss_size = STACK_SIZE;
    client->here.uc_link = NULL;
    makecontext(&client->here, (void (*)(void))enter, 2, (unsigned)(self >> 32), (unsigned)self);
    client->runs = true;
    resume(client);
}

static void run_wake(void *context, struct event *event)
{
    struct client *client = context;

    if ((uint64_t)event->value != client->wakes)
        return;
    client->got = false;
    resume(client);
}

/* It may be woken before. */
void client_sleep_until(struct client *client, int64_t at_us)
{
    world_at(client->world, at_us, &client->party, run_wake, client)->value =
        (int64_t)++client->wakes;
    yield(client);
    client->wakes++;
}

void client_sleep(struct client *client, int64_t ms)
{
    client_sleep_until(client, client->world->now_us + ms * 1000);
}

static int choose_daemon(struct client *client)
{
    int daemons = client->world->plan->daemons;
    return rng_per_mille(&client->rng, 700) ? client->home : (int)rng_below(&client->rng, daemons);
}

bool client_call(struct client *client, struct call *call)
{
    int64_t patience_ms = call->wait_ms + (client->world->calm ? 8000 : 0) +
                          (rng_per_mille(&client->rng, 100) ? rng_between(&client->rng, 5, 50)
                                                            : rng_between(&client->rng, 300, 3000));

    if (client->link == NULL)
        client->link = link_open(client->world, client->number, choose_daemon(client));
    call->client = client->number;
    link_send(client->link, call);
    client->waits_reply = true;
    client_sleep(client, patience_ms);
    client->waits_reply = false;
    if (!client->got && client->link != NULL) {
        link_close(client->link); /* nothing else may be asked on it */
        client->link = NULL;
    }
    return client->got;
}

void client_move(struct client *client)
{
    client->home = (client->home + 1) % client->world->plan->daemons;
    if (client->link != NULL)
        link_close(client->link);
    client->link = link_open(client->world, client->number, client->home);
}

void client_replied(struct client *client, struct link *link, struct bytes raw)
{
    if (client->link != link || !client->waits_reply)
        return;
    freeReplyObject(client->reply);
    client->reply = reply_read(raw);
    client->got = true;
    resume(client);
}

void client_closed(struct client *client, struct link *link)
{
    if (client->link != link)
        return;
    client->link = NULL;
    link->client_closed = true;
    if (!client->waits_reply)
        return;
    client->got = false;
    resume(client);
}

static void run_start(void *context, struct event *event)
{
    (void)event;
    start(context);
}

void client_die(struct client *client, int64_t ms, bool silently)
{
    struct world *world = client->world;

    if (client->done || world->plan->client_left_out[client->number])
        return;
    world_tell(world, "client %d dies%s", client->number, silently ? ", silently" : "");
    world_count_fault(world, FAULT_CLIENT_DEATH);
    client->party.life++;
    client->party.paused_until_us = 0;
    client->waits_reply = false;
    if (client->link != NULL && !silently)
        link_close(client->link);
    client->link = NULL;
    client->round++;
    world_at(world, world->now_us + ms * 1000, &client->party, run_start, client);
}

void clients_new(struct world *world)
{
    world->clients = mem_zalloc((size_t)world->plan->clients * sizeof(struct client *));
    for (int i = 0; i < world->plan->clients; i++) {
        struct client *client = mem_zalloc(sizeof *client);
        struct rng rng = rng_of(world->plan->seed, 'C', (uint64_t)i);
        world->clients[i] = client;
        client->world = world;
        client->number = i;
        client->stack = mem_alloc(STACK_SIZE);
        client->home = (int)rng_below(&rng, world->plan->daemons);
        if (world->plan->client_left_out[i])
            client->done = true;
        else
            world_at(world, rng_between(&rng, 0, 200000), &client->party, run_start, client);
    }
}

void clients_free(struct world *world)
{
    for (int i = 0; i < world->plan->clients; i++) {
        freeReplyObject(world->clients[i]->reply);
        free(world->clients[i]->stack);
        free(world->clients[i]);
    }
    free(world->clients);
    world->clients = NULL;
}
