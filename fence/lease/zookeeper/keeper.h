/* SPDX-License-Identifier: Apache-2.0 */
/* The provider's inside, shared by zookeeper.c (calls and their time, the provider's interface),
 * reach.c (the session), and what is busy at a resource (spot.h). */
#ifndef STOCKADE_FENCE_LEASE_ZOOKEEPER_KEEPER_H
#define STOCKADE_FENCE_LEASE_ZOOKEEPER_KEEPER_H

#include <uthash.h>
#include <uv.h>

#include "fence/base/heap.h"
#include "fence/base/list.h"
#include "fence/lease/open.h"
#include "fence/lease/provider_impl.h"
#include "fence/lease/zookeeper/node.h"
#include "fence/lease/zookeeper/session.h"

enum keeper_state {
    KEEPER_WAITING,    /* no session; another is opened at due_ms */
    KEEPER_CONNECTING, /* it is, or has lost its server and looks for one */
    KEEPER_GREETING,   /* may we use the tree? */
    KEEPER_READY,
    KEEPER_CLOSING,
};

struct errand;
struct spot;

struct keeper {
    struct lease_provider base;
    struct lease_uri uri;
    struct lease_surroundings env;
    char name[160]; /* "zookeeper/chroot of a:2181,b:2181" */
    char base_path[NODE_BASE_MAX + 1];
    char origin[NODE_ORIGIN_LEN + 1]; /* of this session */

    enum keeper_state state;
    struct zk_session *session; /* NULL in KEEPER_WAITING */
    unsigned sessions_closing;
    int64_t due_ms;
    struct zk_op greeting;
    bool greeting_under_way, base_made;
    unsigned failures; /* in a row */
    char reason[128];  /* why there is no session */
    char refusal[128]; /* ZooKeeper answered so; "" */
    bool silent;       /* it has not answered in time, and nothing else since */
    enum { KEEPER_TOLD_NOTHING, KEEPER_TOLD_UP, KEEPER_TOLD_DOWN } told_log;
    uint64_t connections;
    int64_t ahead_ms; /* the server's wall clock less our own clock; at least this much */
    bool ahead_known;

    struct spot *spots;  /* by path */
    struct list lost;    /* struct lost: leases that went with a session */
    struct heap ending;  /* of spots' leases */
    struct heap leaving; /* of spots' places in line */
    uv_timer_t timer;
    bool timer_closed;

    struct list asked; /* errands with a call, the earliest deadline first */
    size_t calls_open;
    int64_t heard_ms;       /* ZooKeeper answered something */
    int64_t grace_until_ms; /* a call's time is up, but the verdict waits until then; 0 */
    uint64_t calls, failed, news;

    void (*on_news)(void *context, const struct lease_news *news);
    void *news_context;
    void (*first)(void *context);
    void *first_context;
    int64_t first_by_ms;
    bool first_ended;
    void (*closed)(void *context);
    void *closed_context;
};

/* A lease that was lost with its session, until watchers can be told. */
struct lost {
    struct list link;
    int64_t token;
    size_t len;
    char resource[];
};

static inline int64_t keeper_now_ms(const struct keeper *keeper)
{
    return clock_now_ms(keeper->env.clock);
}

/* reach.c */
void keeper_reach(struct keeper *keeper);     /* opens a session */
void keeper_reach_due(struct keeper *keeper); /* due_ms has come */
void keeper_leave(struct keeper *keeper);     /* ends the session, if there is one */
const char *keeper_why(const struct keeper *keeper);
/* Something failed: says why. Tells the log where ZooKeeper has begun to refuse, or ceased to. */
void keeper_refused(struct keeper *keeper, int rc, char *why, size_t why_size);
void keeper_accepted(struct keeper *keeper);
void keeper_tell_down(struct keeper *keeper, const char *why);
void keeper_make_base(struct keeper *keeper);
void keeper_end_first(struct keeper *keeper);

/* zookeeper.c */
void keeper_schedule(struct keeper *keeper);
/* Answers the errand's call; harmless where nobody waits for it any more. */
void keeper_answer(struct errand *errand, enum lease_answer answer, int64_t token, int64_t ttl_ms);
void keeper_answer_down(struct errand *errand, const char *why);
void keeper_close_if_over(struct keeper *keeper);

#endif
