/* SPDX-License-Identifier: Apache-2.0 */
/* One master of a cluster: a lease provider like that on one Redis (redis.c), which hands back what
 * another master has to answer. Nobody watches it, and it does not probe. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_NODE_H
#define STOCKADE_FENCE_LEASE_REDIS_NODE_H

#include "fence/lease/redis/conn.h"
#include "fence/lease/redis/debts.h"

struct node_events {
    /* It is connected (again). */
    void (*on_ready)(void *context);
    /* It has answered MOVED, ASK, TRYAGAIN or CLUSTERDOWN: it has done nothing, and the call is the
     * cluster's again, unanswered. It may be a release of the node's own, which was owed. */
    void (*on_redirect)(void *context, struct lease_call *call, struct bytes error);
};

/* `self` and `events` are borrowed; the rest is copied. */
struct lease_provider *lease_redis_node_new(const struct lease_uri *uri,
                                            const struct lease_surroundings *surroundings,
                                            const struct script_self *self,
                                            const struct node_events *events, void *context);
bool node_is_ready(const struct lease_provider *node);
/* Ask it this call, whose slot is still on its way here: ASKING goes before it. */
void node_ask_once(struct lease_provider *node, struct lease_call *call);
/* While it is ready: send something else than a script. */
void node_send(struct lease_provider *node, struct redis_request *request, int argc,
               const char **argv);
/* Take the releases that it owes, for another master to be told. */
void node_take_debts(struct lease_provider *node, struct debts *debts);

#endif
