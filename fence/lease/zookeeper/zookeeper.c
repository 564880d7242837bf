/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on ZooKeeper: the provider's interface, calls and their time limit.
 *
 *   zookeeper.c  ──▶ recipe.c      what a call does with its resource's znodes
 *                ──▶ resource.c    what this daemon has at each resource
 *                ──▶ connection.c  one session after another ──▶ session.c  the C client
 *
 * A lease is an ephemeral znode. This daemon removes it when its TTL is over. If the daemon is dead
 * or asleep, whoever waits for the lease removes it, once it has not changed for its TTL; at the
 * latest it ends with the daemon's session. A lease whose release could not be delivered is removed
 * like one whose time is over.
 *
 * While ZooKeeper is away a call is answered DOWN at once, and so is one that has waited for its
 * timeout. Its task goes on to its end all the same, and a grant that comes of it is given back. */
#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/zookeeper/recipe.h"

#define CALLS_MAX 100000 /* under way */

struct zookeeper {
    struct lease_provider base;
    struct zk_client client;
    struct zk_connection connection;
    struct zk_resources resources;

    struct list asked; /* tasks with a call, the earliest deadline first */
    size_t asked_count;
    uv_timer_t timer; /* of the first one */
};

static struct zookeeper *of(const struct lease_provider *base)
{
    return (struct zookeeper *)(uintptr_t)base;
}

/* Calls and their time limit. */

static int64_t first_due_ms(const struct zookeeper *zookeeper)
{
    if (list_empty(&zookeeper->asked))
        return INT64_MAX;
    return reconnect_due_ms(
        &zookeeper->connection.reconnect,
        list_entry(zookeeper->asked.next, struct zk_task, in_asked)->ask.deadline_ms);
}

static void on_timer(uv_timer_t *timer);

static void schedule(struct zookeeper *zookeeper)
{
    const struct zk_connection *connection = &zookeeper->connection;
    int64_t grace_ms = connection->reconnect.grace_until_ms;
    int64_t due_ms = grace_ms != 0 ? grace_ms : first_due_ms(zookeeper);

    if (connection->state != ZK_CLOSING)
        reconnect_set_timer(&connection->reconnect, &zookeeper->timer, on_timer, due_ms);
}

static void on_timer(uv_timer_t *timer)
{
    struct zookeeper *zookeeper = timer->data;
    struct reconnect *reconnect = &zookeeper->connection.reconnect;
    int64_t now_ms = reconnect_now_ms(reconnect);
    char why[64];

    if (reconnect_is_overdue(reconnect, first_due_ms(zookeeper))) {
        reconnect->grace_until_ms = 0;
        zookeeper->connection.silent = true;
        text_print(why, sizeof why, "no answer within %d ms", reconnect->timeout_ms);
        while (first_due_ms(zookeeper) <= now_ms)
            zk_task_abandon(list_entry(zookeeper->asked.next, struct zk_task, in_asked), why);
    }
    schedule(zookeeper);
}

static void on_answered(struct zk_task *task, struct lease_call *call)
{
    struct zookeeper *zookeeper = list_entry(task->resource->all, struct zookeeper, resources);

    list_remove(&task->in_asked);
    zookeeper->asked_count--;
    lease_answered(&zookeeper->base, call);
}

static bool zookeeper_ask(struct lease_provider *base, struct lease_call *call)
{
    struct zookeeper *zookeeper = of(base);
    const struct zk_connection *connection = &zookeeper->connection;
    bool ready = connection->state == ZK_READY;

    if (!ready || zookeeper->asked_count >= CALLS_MAX) {
        struct zk_resource *known = zk_resource_find(&zookeeper->resources, call->resource);
        if (known != NULL)
            zk_recipe_owe_release(known, call);
        return lease_answer_down(
            call, "%s", ready ? "too many calls under way" : zk_connection_why(connection));
    }
    struct zk_task *task =
        zk_task_new(zk_resource_of(&zookeeper->resources, call->resource), call, on_answered);
    task->ask.asked_ms = zk_now_ms(connection);
    task->ask.deadline_ms = task->ask.asked_ms + connection->reconnect.timeout_ms;
    list_append(&zookeeper->asked, &task->in_asked);
    if (++zookeeper->asked_count == 1)
        schedule(zookeeper);
    zk_task_add(task);
    return false;
}

/* What the connection reports. */

static void on_ready(void *context)
{
    struct zookeeper *zookeeper = context;
    struct zk_resource *resource, *next;

    HASH_ITER(hh, zookeeper->resources.by_path, resource, next)
    {
        bool unwatched = zk_is_in_line(resource) && resource->place.predecessor.text[0] == '\0';
        if (resource->may_have_stray)
            zk_recipe_tidy(resource);
        if (unwatched)
            zk_recipe_line_up(resource);
    }
    zk_resources_ready(&zookeeper->resources);
}

static void on_session_over(void *context)
{
    zk_resources_session_over(&((struct zookeeper *)context)->resources);
}

static void on_watches_lost(void *context)
{
    zk_resources_watches_lost(&((struct zookeeper *)context)->resources);
}

static void on_node(void *context, const char *path, bool removed)
{
    const char *node;
    struct zk_resource *resource =
        zk_resource_at(&((struct zookeeper *)context)->resources, path, &node);

    /* A lease of ours may be the predecessor, too; its watch is set again while it is written. */
    if (resource != NULL && (!zk_hold_changed(resource, node, removed) || removed))
        zk_recipe_line_moved(resource, node);
}

static void on_connection_closed(void *context);

static const struct zk_connection_events connection_events = {
    .on_ready = on_ready,
    .on_session_over = on_session_over,
    .on_watches_lost = on_watches_lost,
    .on_node = on_node,
    .on_closed = on_connection_closed,
};

/* The interface. */

static void zookeeper_health(const struct lease_provider *base, struct lease_health *health)
{
    const struct zk_connection *connection = &of(base)->connection;

    zk_connection_health(connection, health);
    health->watching = connection->state == ZK_READY && base->on_news != NULL;
}

static void zookeeper_on_first_attempt(struct lease_provider *base, void (*ended)(void *context),
                                       void *context)
{
    zk_connection_on_first_attempt(&of(base)->connection, ended, context);
}

/* The end: first the connection, and with it the requests; then the resources; then the rest. */

static void on_timer_closed(uv_handle_t *timer)
{
    struct zookeeper *zookeeper = timer->data;

    check(list_empty(&zookeeper->asked));
    lease_provider_closed(&zookeeper->base);
}

static void on_resources_closed(void *context)
{
    uv_close((uv_handle_t *)&((struct zookeeper *)context)->timer, on_timer_closed);
}

static void on_connection_closed(void *context)
{
    zk_resources_close(&((struct zookeeper *)context)->resources, on_resources_closed, context);
}

static void zookeeper_close_provider(struct lease_provider *base)
{
    struct zookeeper *zookeeper = of(base);

    uv_timer_stop(&zookeeper->timer);
    zk_connection_close(&zookeeper->connection);
    while (!list_empty(&zookeeper->asked))
        zk_task_abandon(list_entry(zookeeper->asked.next, struct zk_task, in_asked),
                        zk_connection_why(&zookeeper->connection));
}

static const struct lease_provider_impl zookeeper_impl = {
    .name = "zookeeper",
    .ask = zookeeper_ask,
    .health = zookeeper_health,
    .close = zookeeper_close_provider,
    .on_first_attempt = zookeeper_on_first_attempt,
};

struct lease_provider *lease_zookeeper_new(const struct lease_uri *uri,
                                           const struct lease_surroundings *surroundings, char *why,
                                           size_t why_size)
{
    struct zk_client client;

    if (!zk_client_load(&client, why, why_size))
        return NULL;
    struct zookeeper *zookeeper = mem_zalloc(sizeof *zookeeper);
    zookeeper->client = client;
    zookeeper->base.impl = &zookeeper_impl;
    list_init(&zookeeper->asked);
    zk_connection_init(&zookeeper->connection, &zookeeper->client, uri, surroundings,
                       &connection_events, zookeeper);
    zk_resources_init(&zookeeper->resources, &zookeeper->base, &zookeeper->connection,
                      zk_recipe_tidy);
    check(uv_timer_init(surroundings->loop, &zookeeper->timer) == 0);
    zookeeper->timer.data = zookeeper;
    return &zookeeper->base;
}
