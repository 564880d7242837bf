/* SPDX-License-Identifier: Apache-2.0 */
/* How leases look in ZooKeeper's tree. No I/O.
 *
 *   /chroot/prefix/sku%2F1/                          a resource: a container, which the server
 *                                                    removes when it has been empty for a while
 *   /chroot/prefix/sku%2F1/9f0c...e1-0000000012      a node of the daemon 9f0c...e1, ephemeral;
 *                                                    the lowest number has the resource
 *
 * A node says "q", in line, or "<+|=> <token> <ttl_ms> <nonce>": a lease that lives so long from
 * its last change. `=`: under this token. `+`: under this one or, where that is larger, the number
 * of the transaction (zxid) that made the node. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_NODE_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/lease/provider.h"
#include "fence/lease/uri.h"

#define NODE_ORIGIN_LEN   16 /* hexadecimal digits that tell sessions apart */
#define NODE_NAME_MAX     (NODE_ORIGIN_LEN + 1 + 11)
#define NODE_DATA_MAX     128
#define NODE_BASE_MAX     384  /* the URI's name and prefix, encoded */
#define NODE_RESOURCE_MAX 1536 /* a resource's name, encoded */
#define NODE_PATH_MAX     (NODE_BASE_MAX + 1 + NODE_RESOURCE_MAX + 1 + NODE_NAME_MAX)

struct node_name {
    char text[NODE_NAME_MAX + 1]; /* "": none */
    int32_t number;
};

struct node_lease {
    bool queued; /* in line; nothing else counts */
    int64_t token, ttl_ms;
    char nonce[LEASE_NONCE_LEN + 1];
};

/* "/chroot/prefix" */
void node_base(const struct lease_uri *uri, char out[NODE_BASE_MAX + 1]);
/* "<base>/<resource>"; `out` takes NODE_PATH_MAX and a zero. */
void node_parent(const char *base, struct bytes resource, char *out);
/* False: this is no node of any daemon. */
bool node_name_parse(const char *text, struct node_name *name);
bool node_is_of(const struct node_name *name, const char *origin);
/* The same place, under another daemon's name. */
struct node_name node_name_at(const struct node_name *place, const char *origin);
/* Does `a` come before `b`? The numbers of one parent wrap around. */
bool node_before(const struct node_name *a, const struct node_name *b);

/* `exact`: the lease's token as it stands. Returns the length. */
int node_write(const struct node_lease *lease, bool exact, char out[NODE_DATA_MAX]);
/* `zxid`: of the transaction that made the node. False: nothing that a daemon writes. */
bool node_read(struct bytes data, int64_t zxid, struct node_lease *lease);

/* The token of a node made in transaction `zxid`, above `floor`; 0: the tokens are used up. */
int64_t node_token(int64_t zxid, int64_t floor);

#endif
