/* SPDX-License-Identifier: Apache-2.0 */
/* The standing connection to one Redis: it resolves, connects, greets (AUTH, SELECT, CLIENT
 * SETNAME, SCRIPT LOAD), notices silence, and comes back by itself.
 *
 *                             ┌────── address by address ──────┐
 *                             ▼                                │
 *   waiting ─▶ locating ─▶ resolving ─▶ connecting ─▶ greeting ─▶ ready    any ─▶ closing
 *      ▲           │           │            │            │          │
 *      └───────────┴───────────┴────────────┴────────────┴──────────┘
 *       failed: 50 ms .. 2 s, doubling, with jitter
 *
 * Locating asks the sentinels where the master is (locate.c). A link without sentinels skips it.
 * Every step has the same time limit, and every request: where one is not answered in time the
 * connection is dropped, and all its requests fail with it. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_LINK_H
#define STOCKADE_FENCE_LEASE_REDIS_LINK_H

#include <stdbool.h>

#include "fence/lease/open.h"
#include "fence/lease/redis/scripts.h"

struct redisReply;
struct redis_link;

/* One script under way. Owned by the caller until `done`. */
struct redis_request {
    /* `reply` is borrowed; NULL: unanswered, it may or may not have happened, and `why` says more.
     * Exactly once, on the loop's thread. */
    void (*done)(struct redis_request *request, const struct redisReply *reply, const char *why);
    struct list link; /* the link's own, with: */
    int64_t deadline_ms;
    struct redis_link *owner;
};

struct redis_link_health {
    bool up; /* ready, and not known to refuse */
    uint64_t reconnects;
    char detail[160];
};

/* Another kind of link, which sends nothing and listens to a channel (up to LINK_CHANNEL_MAX bytes,
 * copied): `heard` is told each message, borrowed, on the loop's thread. See listen.c. Ends with
 * redis_link_close. */
#define LINK_CHANNEL_MAX 95
struct redis_link *redis_listener_new(const struct lease_uri *uri,
                                      const struct lease_surroundings *surroundings,
                                      const char *channel,
                                      void (*heard)(void *context, struct bytes message),
                                      void *context);

/* And a listener to +switch-master at a sentinel (`uri`: a lease_uri_member), whose greeting asks
 * for the address of the master uri->name. `named` is told it, or with NULL why there is none. */
struct redis_link *redis_sentinel_new(
    const struct lease_uri *uri, const struct lease_surroundings *surroundings,
    void (*named)(void *context, const struct uri_host *master, const char *why),
    void (*heard)(void *context, struct bytes message), void *context);
/* A ready one connects once more, to ask again. */
void redis_link_again(struct redis_link *link);

/* Right after it was made: it goes to the master that they name. They outlive it; whenever they
 * have changed, it is to be told so. */
struct sentinels;
void redis_link_follow(struct redis_link *link, struct sentinels *sentinels);
void redis_link_look(struct redis_link *link);

/* `ready` is called whenever it has (re)connected, before anything else can be sent, and when the
 * service accepts again after a refusal (READONLY, OOM, ...). `uri` is copied. */
struct redis_link *redis_link_new(const struct lease_uri *uri,
                                  const struct lease_surroundings *surroundings,
                                  void (*ready)(void *context), void *context);
bool redis_link_ready(const struct redis_link *link);
/* Why it is not ready: for people, without a password. Borrowed until the next turn of the loop. */
const char *redis_link_reason(const struct redis_link *link);
/* Sends a script, by its SHA or (NOSCRIPT was the answer) by its text. Only while ready. */
void redis_link_send(struct redis_link *link, struct redis_request *request, enum lease_verb verb,
                     bool by_text, const struct script_args *args);
void redis_link_send_command(struct redis_link *link, struct redis_request *request, int argc,
                             const char **argv);
/* The service answered a request with an error (READONLY, OOM, ...); it has done what was asked.
 * The link tells the changes, once each. */
void redis_link_refused(struct redis_link *link, const char *why);
void redis_link_accepted(struct redis_link *link);
bool redis_link_refuses(const struct redis_link *link); /* ready, and that was its last word */
struct redis_link_health redis_link_health(const struct redis_link *link);
/* See lease_on_first_attempt. */
void redis_link_on_first(struct redis_link *link, void (*ended)(void *context), void *context);
/* Fails what is under way from a turn of the loop, then frees everything and calls `closed`. */
void redis_link_close(struct redis_link *link, void (*closed)(void *context), void *context);

#endif
