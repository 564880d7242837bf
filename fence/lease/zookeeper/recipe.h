/* SPDX-License-Identifier: Apache-2.0 */
/* The lock recipe on ZooKeeper: what a lease call does, step by step, with the znodes of its
 * resource, and what this daemon tidies up there by itself. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_RECIPE_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_RECIPE_H

#include "fence/lease/zookeeper/resource.h"

enum zk_task_kind {
    ZK_TASK_CALL,
    ZK_TASK_TIDY,    /* removes what is over or left behind */
    ZK_TASK_LINE_UP, /* takes a place in line, or sees what has happened in front of it */
};

/* One run of the recipe at one resource. */
struct zk_task {
    struct list link; /* in the resource's tasks */
    struct zk_resource *resource;
    enum zk_task_kind kind;
    struct lease_call ask;   /* the question, copied */
    struct lease_call *call; /* NULL: nobody waits for the answer (any more) */
    void (*on_answered)(struct zk_task *task, struct lease_call *call);
    struct list in_asked; /* the provider's, until it is answered */
    struct zk_request request, listing;
    void (*next)(struct zk_task *task); /* what the answer to `request` leads to */
    int steps;

    /* What it has found at the resource: */
    enum { ZK_NOBODY, ZK_OUR_PLACE, ZK_OTHERS_PLACE, ZK_LEASE } found; /* the head */
    bool no_container;
    struct node_name head;        /* the lowest znode */
    struct node_name predecessor; /* the one in front of our place */
    struct node_lease lease;
    int32_t version;
    int64_t left_ms;

    /* What it has made there: */
    int made_rc;
    struct node_name made;
    int64_t made_zxid;
    int32_t made_version;
};

/* Make a task for the call, which is borrowed until `on_answered`. */
struct zk_task *zk_task_new(struct zk_resource *resource, struct lease_call *call,
                            void (*on_answered)(struct zk_task *task, struct lease_call *call));
/* Queue the task behind those of its resource, and begin if there are none; it may be gone after
 * this. Only while the connection is ready. */
void zk_task_add(struct zk_task *task);
/* Answer its call DOWN: nobody waits for it any longer. Once begun it goes on to its end all the
 * same, and a grant that comes of it is given back. */
void zk_task_abandon(struct zk_task *task, const char *why);

/* Remove the lease or the place if it is over, and strays. Only while ready. */
void zk_recipe_tidy(struct zk_resource *resource);
/* Take a place in line, or see what has happened in front of it. Only while ready. */
void zk_recipe_line_up(struct zk_resource *resource);
/* A znode that may be the predecessor has changed or is gone. */
void zk_recipe_line_moved(struct zk_resource *resource, const char *node);
/* If the call is a release of the lease held here, which cannot be delivered now, let the lease be
 * over: it is removed when ZooKeeper is back. */
void zk_recipe_owe_release(struct zk_resource *resource, const struct lease_call *call);

#endif
