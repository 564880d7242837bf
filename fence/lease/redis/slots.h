/* SPDX-License-Identifier: Apache-2.0 */
/* Redis Cluster's arithmetic and words: which slot a key is in, which master serves it, where an
 * error sends us. Nothing here does I/O. (Redis Cluster Specification.) */
#ifndef STOCKADE_FENCE_LEASE_REDIS_SLOTS_H
#define STOCKADE_FENCE_LEASE_REDIS_SLOTS_H

#include <stdbool.h>

#include "fence/base/bytes.h"
#include "fence/base/uri.h"

#define SLOTS 16384

struct redisReply;

/* The slot of the key, or of what is in its first braces, where that is not empty. */
unsigned slot_of_key(struct bytes key);

/* A range of slots and the master that serves it. */
struct slot_range {
    unsigned first, last;
    struct uri_host master;
};

/* Call `each` for the ranges of a reply to CLUSTER SLOTS. `asked` is the host that replied: a node
 * that does not know its own address leaves it out. False: it is no such reply. */
bool slots_read(const struct redisReply *reply, const struct uri_host *asked,
                void (*each)(void *context, const struct slot_range *range), void *context);

enum redirect_kind {
    REDIRECT_NONE,  /* another error */
    REDIRECT_MOVED, /* `to` serves the slot now */
    REDIRECT_ASK,   /* `to` is about to; this once */
    REDIRECT_LATER, /* the slot is on its way, or nobody serves it at this moment */
};

struct redirect {
    enum redirect_kind kind;
    struct uri_host to; /* MOVED, ASK */
};

/* Read an error reply of the host `asked`, which stands for a host that the error leaves out. */
struct redirect redirect_read(struct bytes error, const struct uri_host *asked);

#endif
