/* SPDX-License-Identifier: Apache-2.0 */
/* The link's inside, shared by link.c (states and time), locate.c (whose master?), reach.c (names,
 * addresses, connecting), greet.c (the first commands) and listen.c (a link that listens). */
#ifndef STOCKADE_FENCE_LEASE_REDIS_LINK_IMPL_H
#define STOCKADE_FENCE_LEASE_REDIS_LINK_IMPL_H

#include <uv.h>

#include "fence/lease/redis/link.h"
#include "fence/lease/redis/sentinels.h"
#include "fence/lease/redis/wire.h"

#define SHA_LEN            40
#define LINK_ADDRESSES_MAX 8

enum link_state {
    LINK_WAITING,  /* until due_ms, then tries (again) */
    LINK_LOCATING, /* these four until due_ms at the latest */
    LINK_RESOLVING,
    LINK_CONNECTING,
    LINK_GREETING,
    LINK_READY,
    LINK_CLOSING,
};

struct link_resolving;

struct redis_link {
    struct lease_uri
        uri; /* hosts[0]: where it goes; that follows `sentinels` where there are any */
    struct sentinels *sentinels;
    struct lease_surroundings env;
    char name[128]; /* "redis 127.0.0.1:6379" */
    void (*ready)(void *context);
    void *context;

    enum link_state state;
    int64_t due_ms;
    uv_timer_t timer;
    int handles;            /* libuv's, open */
    struct wire *wire;      /* outlives its state until the timer frees it */
    struct list under_way;  /* redis_request, the oldest first */
    int64_t heard_ms;       /* when the last of them was answered */
    int64_t grace_until_ms; /* the time is up, but the verdict waits until then; 0 */

    struct link_resolving *resolving; /* under way, or NULL */
    char addresses[LINK_ADDRESSES_MAX][INET6_ADDRSTRLEN];
    unsigned addresses_count, addresses_tried;

    unsigned greetings; /* answers to the greeting still to come */
    char shas[SCRIPTS][SHA_LEN + 1];

    unsigned failures;              /* in a row */
    char reason[128];               /* of the last one */
    char refusal[SCRIPT_ERROR_MAX]; /* the last write's error; "" */
    enum { LOGGED_NOTHING, LOGGED_UP, LOGGED_DOWN } logged;
    uint64_t connections;

    /* A listener's; else `heard` is NULL. */
    void (*heard)(void *context, struct bytes message);
    char channel[LINK_CHANNEL_MAX + 1];
    bool asked_again; /* whether the other side is still there */

    /* A sentinel's, which is a listener, too; else `named` is NULL. */
    void (*named)(void *context, const struct uri_host *master, const char *why);
    struct uri_host master; /* what it said in the greeting */

    void (*first)(void *context); /* to be called at first_by_ms at the latest; NULL */
    void *first_context;
    int64_t first_by_ms;
    bool first_ended;
    void (*closed)(void *context);
    void *closed_context;
};

static inline int64_t link_now_ms(const struct redis_link *link)
{
    return clock_now_ms(link->env.clock);
}

/* link.c: to another state, with its time limit; the attempt or the connection failed (harmless
 * where it has failed already); drops what there is and tries at once; one libuv handle less. */
void link_enter(struct redis_link *link, enum link_state state);
void link_fail(struct redis_link *link, const char *reason);
void link_hurry(struct redis_link *link);
void link_handle_closed(void *context);

/* locate.c: is uri.hosts[0] the master that the sentinels name? If not: the state says how it goes
 * on, and `last` that they are not waited for any longer. They are to look again. */
bool link_locate(struct redis_link *link, bool last);
void link_lost_master(struct redis_link *link);

/* reach.c: the next step towards a connection, to a host that is known; no answer is wanted any
 * more. */
void link_reach(struct redis_link *link, bool last);
void link_stop_resolving(struct redis_link *link);
extern const struct wire_events link_wire_events; /* link.c */

/* greet.c: sends the greeting; takes the answers to it. */
void link_greet(struct redis_link *link);
void link_greeted(struct redis_link *link, const char *step, const struct redisReply *reply);

/* listen.c: a listener's message or confirmation; its time in READY is over (false: it had asked
 * already, or is no listener); it is ready; it has failed, by a refusal or else. */
void link_listen_heard(struct redis_link *link, const struct redisReply *reply);
bool link_listen_ask_again(struct redis_link *link);
void link_listen_ready(struct redis_link *link);
void link_listen_failed(struct redis_link *link, bool refused);

#endif
