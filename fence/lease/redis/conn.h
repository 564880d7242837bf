/* SPDX-License-Identifier: Apache-2.0 */
/* The standing connection to one Redis, or to one sentinel. It connects and greets, notices
 * silence, and comes back by itself. What it is for is its role.
 *
 * Every step of an attempt has the same time limit, and every request: where one is not answered in
 * time the connection is dropped, and all its requests fail with it. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_CONN_H
#define STOCKADE_FENCE_LEASE_REDIS_CONN_H

#include <stdbool.h>

#include "fence/lease/open.h"
#include "fence/lease/redis/scripts.h"

struct redisReply;
struct redis_conn;

enum redis_role {
    REDIS_REQUESTER,        /* sends requests to the Redis that the URI names */
    REDIS_LISTENER,         /* listens to a channel there */
    REDIS_MASTER_REQUESTER, /* these two do the same at the master that sentinels name, */
    REDIS_MASTER_LISTENER,  /* wherever that is */
    REDIS_SENTINEL,         /* asks a sentinel where the master is, then listens to it */
};

enum redis_located {
    REDIS_LOCATED,  /* `master` is where it is */
    REDIS_LOCATING, /* not known yet: redis_conn_relocate follows when that changes */
    REDIS_NOWHERE,  /* nobody knows: `why` */
};

#define REDIS_WHY_MAX 128

/* All called on the loop's thread. A role's own events must be there, the others may be NULL. */
struct redis_events {
    /* Requesters: it is connected (again), and nothing was sent yet; or the service accepts again
     * after it had refused (READONLY, OOM, ...). */
    void (*on_ready)(void *context);
    /* Listeners, sentinels: a message on the channel; borrowed. */
    void (*on_message)(void *context, struct bytes message);
    /* Sentinels: the address of the master uri->name; or NULL, and why there is none. */
    void (*on_master)(void *context, const struct uri_host *master, const char *why);
    /* Roles at a master: where is it? `last`: there is no more time to find out. */
    enum redis_located (*locate)(void *context, bool last, struct uri_host *master,
                                 char why[REDIS_WHY_MAX]);
    /* REDIS_MASTER_REQUESTER: the master is gone, or seems to be none. */
    void (*on_master_lost)(void *context);
};

/* One request under way. Owned by the caller until `done`. */
struct redis_request {
    /* `reply` is borrowed; NULL: unanswered, it may or may not have happened, and `why` says more.
     * Exactly once, on the loop's thread. */
    void (*done)(struct redis_request *request, const struct redisReply *reply, const char *why);
    /* The connection's own: */
    struct list link;
    int64_t deadline_ms;
};

#define REDIS_CHANNEL_MAX 95

/* `uri` is copied (a sentinel's: lease_uri_member), and so is `channel`, of at most
 * REDIS_CHANNEL_MAX bytes, which requesters do not need. `events` is borrowed. */
struct redis_conn *redis_conn_new(enum redis_role role, const struct lease_uri *uri,
                                  const struct lease_surroundings *surroundings,
                                  const char *channel, const struct redis_events *events,
                                  void *context);
bool redis_conn_is_ready(const struct redis_conn *conn);
/* Why it is not: for people, without a password. Borrowed until the next turn of the loop. */
const char *redis_conn_reason(const struct redis_conn *conn);
/* Fill in `up`, `reconnects` and `detail`. */
void redis_conn_health(const struct redis_conn *conn, struct lease_health *health);
/* See lease_on_first_attempt. */
void redis_conn_on_first_attempt(struct redis_conn *conn, void (*ended)(void *context),
                                 void *context);

/* Requesters, while ready: send a script, by its SHA, or (where NOSCRIPT was the answer to that) by
 * its text. */
void redis_conn_send_script(struct redis_conn *conn, struct redis_request *request,
                            enum lease_verb verb, bool by_text, const struct script_args *args);
void redis_conn_send(struct redis_conn *conn, struct redis_request *request, int argc,
                     const char **argv);
/* The service has answered a request with an error (READONLY, OOM, ...). */
void redis_conn_refused(struct redis_conn *conn, const char *why);
/* The service has written as asked, so it does not refuse any more. */
void redis_conn_accepted(struct redis_conn *conn);
/* Return whether it is connected and the service still refuses. */
bool redis_conn_is_refusing(const struct redis_conn *conn);

/* Roles at a master: ask `locate` again, as its answer may have changed. */
void redis_conn_relocate(struct redis_conn *conn);
/* If it is ready, drop the connection and make a new one: so a sentinel is asked again. */
void redis_conn_restart(struct redis_conn *conn);

/* Fail what is under way from a turn of the loop, then free everything and call `closed`. */
void redis_conn_close(struct redis_conn *conn, void (*closed)(void *context), void *context);

#endif
