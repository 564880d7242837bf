/* SPDX-License-Identifier: Apache-2.0 */
/* The provider's standing connection to ZooKeeper: one session after another.
 *
 *                        ┌──── no server ────┐
 *                        ▼                   │
 *   WAITING ──▶ CONNECTING ──▶ GREETING ──▶ READY      a pause (reconnect.h) before each new
 *      ▲             │             │          │        session, and before greeting again
 *      └─────────────┴── expired ──┴──────────┘
 *
 * Without a server the session lives on for its timeout, and so do its znodes. When it has expired
 * all of them are gone.
 *
 * The greeting lists the folder that all leases are in, and makes it where it is missing. A wrong
 * login or a server that is too old shows there. */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_CONNECTION_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_CONNECTION_H

#include <uv.h>

#include "fence/lease/reconnect.h"
#include "fence/lease/zookeeper/node.h"
#include "fence/lease/zookeeper/session.h"

struct zk_connection_events {
    void (*on_ready)(void *context);
    void (*on_session_over)(void *context); /* its znodes are gone */
    void (*on_watches_lost)(void *context); /* the session goes on without those set so far */
    void (*on_node)(void *context, const char *path, bool removed); /* see zk_session_events */
    void (*on_closed)(void *context);
};

struct zk_connection {
    struct reconnect reconnect;
    const struct zk_client *client;
    struct lease_uri uri;
    char base_path[NODE_BASE_MAX + 1];
    char origin[NODE_ORIGIN_LEN + 1]; /* of this session's znodes */
    const struct zk_connection_events *events;
    void *context;

    enum { ZK_WAITING, ZK_CONNECTING, ZK_GREETING, ZK_READY, ZK_CLOSING } state;
    struct zk_session *session; /* NULL in ZK_WAITING */
    unsigned sessions_closing;
    int64_t due_ms;    /* of the next step, where it waits for one */
    int64_t resume_ms; /* ZK_CONNECTING: the time that the handle has, once it is lost */
    uv_timer_t timer;
    bool timer_closed;
    struct zk_request greeting;
    bool greeting_under_way, base_made;
    bool silent; /* a call was not answered in time, and no answer has come since */

    /* The servers' wall clock less our own clock, as of the last write; at least this much. */
    int64_t server_ahead_ms;
    bool server_ahead_known;
};

/* Begin to connect. `client` and `events` outlive it. */
void zk_connection_init(struct zk_connection *connection, const struct zk_client *client,
                        const struct lease_uri *uri, const struct lease_surroundings *surroundings,
                        const struct zk_connection_events *events, void *context);
/* End the session and all it has under way; `on_closed` says when. */
void zk_connection_close(struct zk_connection *connection);
/* See lease_on_first_attempt. */
void zk_connection_on_first_attempt(struct zk_connection *connection, void (*ended)(void *context),
                                    void *context);

static inline int64_t zk_now_ms(const struct zk_connection *connection)
{
    return reconnect_now_ms(&connection->reconnect);
}

/* Why it is not ready: for people. */
const char *zk_connection_why(const struct zk_connection *connection);
/* Fill in `up`, `reconnects` and `detail`. */
void zk_connection_health(const struct zk_connection *connection, struct lease_health *health);
/* A request has been answered with `rc`. */
void zk_connection_heard(struct zk_connection *connection, int rc);
/* A request has failed with `rc`: write why. If ZooKeeper itself refused, that is noted. */
void zk_connection_refused(struct zk_connection *connection, int rc, char *why, size_t why_size);
/* Something was written just now, at `mtime_ms` by the servers' clock. */
void zk_connection_note_time(struct zk_connection *connection, int64_t mtime_ms);
/* Make the folder of all leases, and those that it is in. Nobody waits for it. */
void zk_connection_make_base(struct zk_connection *connection);

#endif
