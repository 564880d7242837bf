/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE's three answers, and one fenced write under a lease of its own. */
#ifndef STOCKADE_TOOLS_LEASE_H
#define STOCKADE_TOOLS_LEASE_H

#include <stdint.h>

#include "tools/client.h"

struct lease {
    int64_t token;
    int64_t ttl_ms; /* left when the reply was sent */
};

enum acquire_reply {
    ACQUIRE_GRANTED,
    ACQUIRE_HELD,    /* null: another holds it, the wait ran out */
    ACQUIRE_REFUSED, /* an error reply */
};

enum acquire_reply lease_of(const redisReply *reply, struct lease *lease);

/* Return whether RELEASE has done no harm: a lease that has run out meanwhile (STALE), or that will
 * (BUSY), delays nobody for long. False for any other error, and for NULL. */
bool lease_released(const redisReply *reply);

/* ACQUIRE, FENCED `token` COMMAND KEY [VALUE], RELEASE. `value` NULL: the command has none. */
bool lease_write(struct client *client, const char *command, const char *key, const char *value);

#endif
