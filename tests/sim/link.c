/* SPDX-License-Identifier: Apache-2.0 */
/* A reply counts as given, and is judged by the oracle, when it leaves the daemon, even if it never
 * arrives. */
#include "tests/sim/link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"
#include "tests/sim/client.h"
#include "tests/sim/daemon.h"
#include "tests/sim/oracle.h"

static int64_t arrival_us(struct link *link, int64_t *latest_us)
{
    int64_t at_us = link->world->now_us + world_latency_us(link->world, &link->rng);

    if (at_us <= *latest_us)
        at_us = *latest_us + 1;
    *latest_us = at_us;
    return at_us;
}

/* The client learns that its connection is gone. */
static void closed_arrived(void *context, struct event *event)
{
    struct link *link = context;

    (void)event;
    if (!link->client_closed)
        client_closed(link->world->clients[link->client], link);
}

static void tell_client_closed(struct link *link, int64_t us)
{
    struct party *party = &link->world->clients[link->client]->party;
    int64_t at_us = link->world->now_us + us;

    if (party->life == link->client_life)
        world_at(link->world, at_us > link->from_us ? at_us : link->from_us + 1, party,
                 closed_arrived, link);
}

static void end_session(struct link *link)
{
    if (link->conn.session == NULL)
        return;
    memory_conn_close(&link->conn);
    oracle_gone(link->world->oracle, link);
}

static void bytes_arrived(void *context, struct event *event)
{
    struct link *link = context;
    struct daemon *daemon = &link->world->daemons[link->daemon];
    char peer[32];

    if (link->cut)
        return;
    if (!link->opened && daemon->up) {
        snprintf(peer, sizeof peer, "sim:%d", link->number);
        link->opened = true;
        memory_conn_open(&link->conn, daemon->engine, peer);
    }
    if (link->conn.session == NULL) {
        tell_client_closed(link, 100);
        return;
    }
    oracle_arrived(link->world->oracle, link->call);
    session_input(link->conn.session, event->bytes.data, event->bytes.len);
    daemon_turn(daemon);
}

void link_send(struct link *link, struct call *call)
{
    struct world *world = link->world;
    struct event *event = world_at(world, arrival_us(link, &link->to_us),
                                   &world->daemons[link->daemon].party, bytes_arrived, link);
    char text[300];

    call->link = link;
    link->call = call;
    call_write(call, &event->bytes);
    if (world->story != NULL) {
        call_describe(call, text, sizeof text);
        world_tell(world, "client %d asks daemon %d: %s", link->client, link->daemon, text);
    }
    digest_bytes(&world->digest, event->bytes.data, event->bytes.len);
    world->tally->ops++;
}

static void end_arrived(void *context, struct event *event)
{
    struct link *link = context;

    (void)event;
    if (link->conn.session == NULL || link->cut)
        return;
    if (!session_input_ended(link->conn.session))
        end_session(link);
    daemon_turn(&link->world->daemons[link->daemon]);
}

void link_close(struct link *link)
{
    if (link->client_closed)
        return;
    link->client_closed = true;
    world_at(link->world, arrival_us(link, &link->to_us), &link->world->daemons[link->daemon].party,
             end_arrived, link);
}

static void cut_noticed(void *context, struct event *event)
{
    struct link *link = context;

    (void)event;
    if (link->conn.session == NULL)
        return;
    end_session(link);
    daemon_turn(&link->world->daemons[link->daemon]);
}

static void link_cut(struct link *link)
{
    struct world *world = link->world;

    if (link->cut)
        return;
    link->cut = true;
    world_count_fault(world, FAULT_CUT);
    world_tell(world, "the connection of client %d to daemon %d is cut", link->client,
               link->daemon);
    tell_client_closed(link, rng_between(&link->rng, 1000, 300000));
    world_at(world, world->now_us + rng_between(&link->rng, 1000, 2000000),
             &world->daemons[link->daemon].party, cut_noticed, link);
}

static void reply_arrived(void *context, struct event *event)
{
    struct link *link = context;

    if (!link->cut && !link->client_closed)
        client_replied(link->world->clients[link->client], link, buf_bytes(&event->bytes));
}

/* The call's last reply leaves the daemon. */
static void give_reply(struct link *link, const redisReply *reply, struct bytes raw)
{
    struct world *world = link->world;
    struct client *client = world->clients[link->client];
    char text[200], asked[300];

    if (world->story != NULL) {
        reply_describe(reply, text, sizeof text);
        call_describe(link->call, asked, sizeof asked);
        world_tell(world, "daemon %d answers client %d: %s   (%s)", link->daemon, link->client,
                   text, asked);
    }
    digest_bytes(&world->digest, raw.data, raw.len);
    oracle_answered(world->oracle, link->call, reply);
    if (rng_per_mille(&link->rng, world->cutting_per_mille))
        link_cut(link);
    if (client->party.life != link->client_life)
        return;
    struct event *event =
        world_at(world, arrival_us(link, &link->from_us), &client->party, reply_arrived, link);
    buf_append_bytes(&event->bytes, raw);
}

static void on_reply(struct memory_conn *conn, const redisReply *reply, struct bytes raw)
{
    struct link *link = conn->context;

    if (reply == NULL)
        world_break(link->world, SANE, "what is no reply: %.*s", (int)raw.len, raw.data);
    else if (link->call == NULL || link->call->replies_left == 0)
        world_break(link->world, SANE, "a reply that nobody asked for");
    else if (--link->call->replies_left == 0)
        give_reply(link, reply, raw);
}

static void on_closed(struct memory_conn *conn)
{
    struct link *link = conn->context;

    oracle_gone(link->world->oracle, link);
    tell_client_closed(link, 100);
}

struct link *link_open(struct world *world, int client, int daemon)
{
    struct link *link = mem_zalloc(sizeof *link);

    link->world = world;
    link->number = ++world->links_count;
    link->daemon = daemon;
    link->client = client;
    link->conn =
        (struct memory_conn){.context = link, .on_reply = on_reply, .on_closed = on_closed};
    link->client_life = world->clients[client]->party.life;
    link->rng =
        rng_of(world->plan->seed, 'n' + ((uint64_t)client << 8), world->clients[client]->links++);
    link->next = world->links;
    world->links = link;
    return link;
}

void link_daemon_gone(struct link *link)
{
    if (link->conn.session == NULL)
        return;
    end_session(link);
    if (!link->cut)
        tell_client_closed(link, rng_between(&link->rng, 100, 3000));
}

void links_free(struct world *world)
{
    struct link *next;

    for (struct link *link = world->links; link != NULL; link = next) {
        next = link->next;
        memory_conn_free(&link->conn);
        free(link);
    }
    world->links = NULL;
}
