/* SPDX-License-Identifier: Apache-2.0 */
/* A connection to the server that never blocks: whoever owns it polls its descriptor and gives it
 * its turns. It logs in by itself; it does not reconnect by itself.
 *
 * Losing it is an answer like any other (LINK_LOST, and `failure` says why): what was sent and not
 * answered may have been done or not. */
#ifndef STOCKADE_TOOLS_LOCK_LINK_H
#define STOCKADE_TOOLS_LOCK_LINK_H

#include <poll.h>

#include "tools/client.h"

struct link {
    redisContext *context; /* NULL: closed */
    bool connecting;
    int greetings; /* replies to our login that are still to come */
    struct failure failure;
};

enum link_got { LINK_NOTHING, LINK_REPLY, LINK_LOST };

/* Starts to connect. False: it failed at once. */
bool link_open(struct link *link, const struct client_uri *uri);
void link_close(struct link *link);
static inline bool link_is_open(const struct link *link)
{
    return link->context != NULL;
}

/* What to poll for; a closed link's descriptor is -1, which poll passes over. */
struct pollfd link_poll(const struct link *link);

/* Queues a command, even while connecting; the turns send it. Format as redisCommand's. */
void link_send(struct link *link, const char *format, ...);

/* Sends and reads what can be without waiting. LINK_REPLY: `*reply` is the caller's; ask again,
 * there may be more. LINK_LOST: the link is closed. */
enum link_got link_turn(struct link *link, redisReply **reply);

/* Puts into `uri` the numeric address that the link is connected to, so that connecting again needs
 * no name service. */
void link_pin(const struct link *link, struct client_uri *uri);

#endif
