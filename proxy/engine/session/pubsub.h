/* SPDX-License-Identifier: Apache-2.0 */
/* Who listens to what: to channels by their name, to patterns by Redis's glob. */
#ifndef STOCKADE_ENGINE_PUBSUB_H
#define STOCKADE_ENGINE_PUBSUB_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"
#include "fence/base/glob.h"
#include "proxy/engine/command/command.h"

#define PUBSUB_CONNECTION_MAX 1024       /* subscriptions of one connection */
#define PUBSUB_TOTAL_MAX      100000     /* of all connections */
#define PUBSUB_WEIGHT         2048       /* bytes of a pattern, compiled, that count as one */
#define PUBSUB_NAME_MAX       GLOB_MAX   /* bytes of a channel or pattern */
#define PUBSUB_UNSENT_MAX     (4 << 20)  /* bytes that may wait for one slow subscriber */
#define PUBSUB_UNSENT_TIGHT   (64 << 10) /* the same where --max-reply-memory is reached */
#define PUBSUB_MESSAGE_MAX    (1 << 20)  /* bytes of a client's message: some fit into that */

struct engine;
struct session;
struct topic;
struct subscriber; /* a session's subscriptions; none: NULL */

struct pubsub {
    struct topic *channels, *patterns; /* uthashes by name */
    size_t subscriptions, subscribers;
    size_t weight; /* of all subscriptions: what is bounded */
};

/* Send `text` to all who listen to the channel, each in its own protocol, and disconnect those
 * who have let too much pile up. `about`: only to those who may read this name; empty: to all.
 * Return how many it was sent to. */
size_t pubsub_send(struct engine *engine, struct bytes channel, struct bytes text,
                   struct bytes about);
/* May a client publish this? False: the request has failed. */
bool pubsub_admits(struct request *request, struct bytes channel, struct bytes text);
/* May its user listen to all that it has subscribed to? */
bool pubsub_may_listen(const struct session *session);
/* End those subscriptions to which its user may not listen, and say so. */
void pubsub_drop_unheard(struct session *session);
/* End all subscriptions of a session, without replies. */
void pubsub_clear(struct session *session);

command_start pubsub_subscribe, pubsub_unsubscribe, pubsub_psubscribe, pubsub_punsubscribe,
    pubsub_publish;
extern const struct subcommand pubsub_subcommands[];

#endif
