/* SPDX-License-Identifier: Apache-2.0 */
/* What this daemon has at each resource that somebody here is busy with:
 *
 * - the lease, where it is this daemon's: a znode of this session, watched so that its loss can be
 *   told as news;
 * - its one place in line behind another's lease, and a watch on the predecessor;
 * - the tasks (recipe.h) at work there, one after the other, so that this daemon never races with
 *   itself.
 *
 * A resource with none of these is not kept. Nothing here is ever the answer to a question: each
 * answer is ZooKeeper's, asked for that call. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_RESOURCE_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_RESOURCE_H

#include <uthash.h>

#include "fence/base/heap.h"
#include "fence/base/list.h"
#include "fence/lease/provider.h"
#include "fence/lease/zookeeper/connection.h"

struct zk_resource {
    UT_hash_handle hh;
    struct zk_resources *all;
    struct bytes name;
    char *path;          /* of the container of its znodes */
    bool may_have_stray; /* a znode of ours may be there that nobody knows of */

    /* The recipe's. */
    struct list tasks; /* the first is running */
    bool starting_tasks;
    unsigned tasks_ended;

    struct {
        struct node_name node; /* "": none */
        struct node_lease lease;
        int32_t version;
        bool may_differ;  /* somebody else may have written it: read it before believing this */
        bool removing;    /* by ourselves */
        bool revoked;     /* another daemon has marked it as taken away by force */
        int64_t until_ms; /* its end, by our clock */
        struct heap_node due;
    } held;

    struct {
        struct node_name node;        /* "": none */
        struct node_name predecessor; /* that is watched; "": none */
        int64_t zxid;                 /* of the transaction that made the node */
        int64_t awaited_token;        /* of the lease at the head, as far as known */
        bool our_turn;
        int64_t until_ms; /* given up then, if nobody asks for it again */
        struct heap_node due;
    } place;

    /* Another daemon's lease as it was seen last, and since when in this version. */
    struct {
        struct node_name node;
        int32_t version;
        int64_t since_ms;
    } seen;
};

struct zk_resources {
    struct lease_provider *provider; /* is told news */
    struct zk_connection *connection;
    struct zk_resource *by_path;
    struct heap leases, places;   /* by the time they are over */
    char path[NODE_PATH_MAX + 1]; /* the recipe's, to write paths in */
    uv_timer_t timer;
    void (*on_over)(struct zk_resource *resource); /* its lease, or its place */
    void (*on_closed)(void *context);
    void *context;
    struct list lost; /* leases that went with a session, until that can be told */
};

/* `provider` and `connection` are borrowed. */
void zk_resources_init(struct zk_resources *all, struct lease_provider *provider,
                       struct zk_connection *connection,
                       void (*on_over)(struct zk_resource *resource));
/* The connection is ready: remove what is over from now on, and tell what was lost meanwhile. */
void zk_resources_ready(struct zk_resources *all);
/* The session is over, and with it all leases and places. */
void zk_resources_session_over(struct zk_resources *all);
void zk_resources_watches_lost(struct zk_resources *all);
/* Free everything but `all` itself, then call `closed`. No task is left. */
void zk_resources_close(struct zk_resources *all, void (*closed)(void *context), void *context);

/* Find the resource, or make it. */
struct zk_resource *zk_resource_of(struct zk_resources *all, struct bytes name);
/* Find the resource; NULL: it is not kept. */
struct zk_resource *zk_resource_find(struct zk_resources *all, struct bytes name);
/* The resource whose znode this is, and the znode's name. NULL: not kept. */
struct zk_resource *zk_resource_at(struct zk_resources *all, const char *path, const char **name);
void zk_resource_free_if_idle(struct zk_resource *resource);

static inline bool zk_holds(const struct zk_resource *resource)
{
    return resource->held.node.text[0] != '\0';
}

static inline bool zk_is_in_line(const struct zk_resource *resource)
{
    return resource->place.node.text[0] != '\0';
}

/* Note that this daemon holds the lease, as it was written to this node, until `until_ms`. */
void zk_hold(struct zk_resource *resource, const struct node_name *node,
             const struct node_lease *lease, int32_t version, int64_t until_ms);
/* Let the lease be over now: its znode is removed when its turn comes. */
void zk_hold_end(struct zk_resource *resource);
void zk_hold_forget(struct zk_resource *resource);
/* Watch the lease's znode, so that its end is told as news. */
void zk_hold_watch(struct zk_resource *resource);
/* A watched znode is gone, or has been written. Returns whether it is the lease's. */
bool zk_hold_changed(struct zk_resource *resource, const char *node, bool removed);

void zk_place_take(struct zk_resource *resource, const struct node_name *node, int64_t zxid);
/* Somebody waits: keep the place in line for a while longer. */
void zk_place_keep(struct zk_resource *resource);
void zk_place_forget(struct zk_resource *resource);

/* Tell those who watch that the lease with this token has ended. */
void zk_tell(struct zk_resource *resource, int64_t token, bool revoked);

#endif
