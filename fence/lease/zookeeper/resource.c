/* SPDX-License-Identifier: Apache-2.0 */
/* See resource.h. */
#include "fence/lease/zookeeper/resource.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/provider_impl.h"

#define UNASKED_MS    3000 /* a place in line that nobody asks for so long is given up */
#define TURN_MS       300  /* and sooner once it is our turn */
#define TIDY_AGAIN_MS 1000 /* where it failed */

/* The table. */

struct zk_resource *zk_resource_find(struct zk_resources *all, struct bytes name)
{
    char path[NODE_PATH_MAX + 1];
    struct zk_resource *resource;

    node_parent(all->connection->base_path, name, path);
    HASH_FIND_STR(all->by_path, path, resource);
    return resource;
}

struct zk_resource *zk_resource_of(struct zk_resources *all, struct bytes name)
{
    struct zk_resource *resource = zk_resource_find(all, name);
    char path[NODE_PATH_MAX + 1];

    if (resource != NULL)
        return resource;
    node_parent(all->connection->base_path, name, path);
    size_t path_size = strlen(path) + 1;
    resource = mem_zalloc(sizeof *resource + path_size + name.len);
    resource->all = all;
    resource->path = (char *)(resource + 1);
    memcpy(resource->path, path, path_size);
    memcpy(resource->path + path_size, name.data, name.len);
    resource->name = (struct bytes){resource->path + path_size, name.len};
    list_init(&resource->tasks);
    HASH_ADD_KEYPTR(hh, all->by_path, resource->path, path_size - 1, resource);
    return resource;
}

struct zk_resource *zk_resource_at(struct zk_resources *all, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    struct zk_resource *resource;

    if (slash == NULL)
        return NULL;
    *name = slash + 1;
    HASH_FIND(hh, all->by_path, path, (size_t)(slash - path), resource);
    return resource;
}

void zk_resource_free_if_idle(struct zk_resource *resource)
{
    if (!list_empty(&resource->tasks) || zk_holds(resource) || zk_is_in_line(resource) ||
        resource->may_have_stray)
        return;
    HASH_DEL(resource->all->by_path, resource);
    free(resource);
}

/* Time. */

static int64_t first_due_ms(const struct heap *heap)
{
    const struct heap_node *first = heap_first(heap);
    return first == NULL ? INT64_MAX : first->at_ms;
}

static void on_timer(uv_timer_t *timer);

/* While there is no connection nothing can be done about what is over. */
static void schedule(struct zk_resources *all)
{
    int64_t lease_ms = first_due_ms(&all->leases), place_ms = first_due_ms(&all->places);
    int64_t due_ms = lease_ms < place_ms ? lease_ms : place_ms;

    if (all->connection->state != ZK_READY)
        due_ms = INT64_MAX;
    if (all->connection->state != ZK_CLOSING)
        reconnect_set_timer(&all->connection->reconnect, &all->timer, on_timer, due_ms);
}

static void on_timer(uv_timer_t *timer)
{
    struct zk_resources *all = timer->data;
    int64_t now_ms = zk_now_ms(all->connection);

    while (all->connection->state == ZK_READY && first_due_ms(&all->leases) <= now_ms) {
        struct zk_resource *resource =
            list_entry(heap_first(&all->leases), struct zk_resource, held.due);
        heap_set(&all->leases, &resource->held.due, now_ms + TIDY_AGAIN_MS);
        all->on_over(resource);
    }
    while (all->connection->state == ZK_READY && first_due_ms(&all->places) <= now_ms) {
        struct zk_resource *resource =
            list_entry(heap_first(&all->places), struct zk_resource, place.due);
        heap_set(&all->places, &resource->place.due, now_ms + TIDY_AGAIN_MS);
        all->on_over(resource);
    }
    schedule(all);
}

/* The lease. */

static void set_hold_end(struct zk_resource *resource, int64_t until_ms)
{
    resource->held.until_ms = until_ms;
    heap_set(&resource->all->leases, &resource->held.due, until_ms);
    schedule(resource->all);
}

void zk_hold(struct zk_resource *resource, const struct node_name *node,
             const struct node_lease *lease, int32_t version, int64_t until_ms)
{
    resource->held.node = *node;
    resource->held.lease = *lease;
    resource->held.version = version;
    resource->held.may_differ = resource->held.removing = resource->held.revoked = false;
    set_hold_end(resource, until_ms);
}

void zk_hold_end(struct zk_resource *resource)
{
    set_hold_end(resource, zk_now_ms(resource->all->connection));
}

void zk_hold_forget(struct zk_resource *resource)
{
    resource->held.node.text[0] = '\0';
    heap_remove(&resource->all->leases, &resource->held.due);
}

/* The place in line. */

void zk_place_keep(struct zk_resource *resource)
{
    if (!zk_is_in_line(resource))
        return;
    resource->place.until_ms =
        zk_now_ms(resource->all->connection) + (resource->place.our_turn ? TURN_MS : UNASKED_MS);
    heap_set(&resource->all->places, &resource->place.due, resource->place.until_ms);
    schedule(resource->all);
}

void zk_place_take(struct zk_resource *resource, const struct node_name *node, int64_t zxid)
{
    resource->place.node = *node;
    resource->place.zxid = zxid;
    zk_place_keep(resource);
}

void zk_place_forget(struct zk_resource *resource)
{
    resource->place.node.text[0] = resource->place.predecessor.text[0] = '\0';
    resource->place.our_turn = false;
    heap_remove(&resource->all->places, &resource->place.due);
}

/* News. */

static void tell(struct zk_resources *all, const struct lease_news *news)
{
    if (all->connection->state != ZK_CLOSING)
        lease_tell(all->provider, news);
}

void zk_tell(struct zk_resource *resource, int64_t token, bool revoked)
{
    tell(resource->all,
         &(struct lease_news){.revoked = revoked, .resource = resource->name, .token = token});
}

/* Does the resource hold this node, and not give it up itself? */
static bool keeps(const struct zk_resource *resource, const char *node)
{
    return zk_holds(resource) && !resource->held.removing &&
           strcmp(resource->held.node.text, node) == 0;
}

/* A request for a watch on a lease; it outlives the resource. */
struct watch {
    struct zk_request request;
    struct zk_resources *all;
    bool written; /* it follows a change of the node */
    char path[];
};

/* Whoever takes a lease away by force writes the node before he removes it. */
static void on_watched(struct zk_request *request)
{
    struct watch *watch = list_entry(request, struct watch, request);
    const char *node;
    struct zk_resource *resource = zk_resource_at(watch->all, watch->path, &node);

    if (resource != NULL && keeps(resource, node)) {
        resource->held.revoked |= request->rc == ZOK && request->version != resource->held.version;
        if (request->rc == ZNONODE)
            zk_tell(resource, resource->held.lease.token, watch->written);
    }
    free(watch);
}

static void set_watch(struct zk_resource *resource, bool written)
{
    size_t size = strlen(resource->path) + 1 + strlen(resource->held.node.text) + 1;
    struct watch *watch = mem_zalloc(sizeof *watch + size);

    snprintf(watch->path, size, "%s/%s", resource->path, resource->held.node.text);
    watch->all = resource->all;
    watch->written = written;
    watch->request.on_answer = on_watched;
    zk_watch(resource->all->connection->session, &watch->request, watch->path);
}

void zk_hold_watch(struct zk_resource *resource)
{
    if (resource->all->provider->on_news != NULL && resource->all->connection->state == ZK_READY)
        set_watch(resource, false);
}

bool zk_hold_changed(struct zk_resource *resource, const char *node, bool removed)
{
    if (!keeps(resource, node))
        return false;
    if (removed)
        zk_tell(resource, resource->held.lease.token, resource->held.revoked);
    else if (resource->all->connection->state == ZK_READY)
        set_watch(resource, true); /* we have written it, or are about to lose it */
    return true;
}

/* A lease that went with its session. */
struct lost {
    struct list link;
    int64_t token;
    size_t len;
    char resource[];
};

static void note_lost(struct zk_resource *resource)
{
    struct lost *lost = mem_zalloc(sizeof *lost + resource->name.len);

    lost->token = resource->held.lease.token;
    lost->len = resource->name.len;
    memcpy(lost->resource, resource->name.data, lost->len);
    list_append(&resource->all->lost, &lost->link);
}

static void tell_lost(struct zk_resources *all)
{
    struct list lost, *link;

    list_init(&lost);
    list_splice(&lost, &all->lost);
    while ((link = list_pop(&lost)) != NULL) {
        struct lost *one = list_entry(link, struct lost, link);
        tell(all, &(struct lease_news){
                      .revoked = true, .resource = {one->resource, one->len}, .token = one->token});
        free(one);
    }
}

/* All of them. */

void zk_resources_init(struct zk_resources *all, struct lease_provider *provider,
                       struct zk_connection *connection,
                       void (*on_over)(struct zk_resource *resource))
{
    all->provider = provider;
    all->connection = connection;
    all->on_over = on_over;
    list_init(&all->lost);
    check(uv_timer_init(connection->reconnect.env.loop, &all->timer) == 0);
    all->timer.data = all;
}

void zk_resources_ready(struct zk_resources *all)
{
    tell_lost(all);
    schedule(all);
}

void zk_resources_session_over(struct zk_resources *all)
{
    struct zk_resource *resource, *next;

    HASH_ITER(hh, all->by_path, resource, next)
    {
        if (zk_holds(resource) && all->provider->on_news != NULL)
            note_lost(resource);
        zk_hold_forget(resource);
        zk_place_forget(resource);
        resource->may_have_stray = false;
        zk_resource_free_if_idle(resource);
    }
}

void zk_resources_watches_lost(struct zk_resources *all)
{
    for (struct zk_resource *at = all->by_path; at != NULL; at = at->hh.next)
        at->place.predecessor.text[0] = '\0';
}

static void on_timer_closed(uv_handle_t *timer)
{
    struct zk_resources *all = timer->data;
    struct zk_resource *resource = all->by_path, *next;
    struct list *link;

    HASH_CLEAR(hh, all->by_path);
    for (; resource != NULL; resource = next) {
        next = resource->hh.next;
        check(list_empty(&resource->tasks));
        free(resource);
    }
    while ((link = list_pop(&all->lost)) != NULL)
        free(list_entry(link, struct lost, link));
    heap_free(&all->leases);
    heap_free(&all->places);
    all->on_closed(all->context);
}

void zk_resources_close(struct zk_resources *all, void (*closed)(void *context), void *context)
{
    all->on_closed = closed;
    all->context = context;
    uv_close((uv_handle_t *)&all->timer, on_timer_closed);
}
