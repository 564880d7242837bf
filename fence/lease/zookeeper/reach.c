/* SPDX-License-Identifier: Apache-2.0 */
/* From no session to a ready one, and what follows when it is lost.
 *
 *   waiting ─▶ connecting ⇄ greeting ─▶ ready      connection lost: back to connecting
 *      ▲            │           │         │        expired: every lease of ours is gone, waiting
 *      └────────────┴───────────┴─────────┘
 *
 * The client connects by itself; a session that could not begin or has expired is followed by
 * another after 50 ms .. 2 s, doubling, with jitter. The greeting looks at the folder of all
 * leases, and makes it where it is missing: a wrong login shows there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/lease/patience.h"
#include "fence/lease/zookeeper/spot.h"

#define RESUME_MS 1000 /* without a connection, then the session is resumed by a new handle */

static void greet(struct keeper *keeper);

const char *keeper_why(const struct keeper *keeper)
{
    if (keeper->state == KEEPER_CLOSING)
        return "the provider is being closed";
    if (keeper->refusal[0] != '\0')
        return keeper->refusal;
    if (keeper->state == KEEPER_CONNECTING)
        return zk_session_why(keeper->session);
    return keeper->reason[0] != '\0' ? keeper->reason : "not connected yet";
}

void keeper_tell_down(struct keeper *keeper, const char *why)
{
    if (keeper->told_log != KEEPER_TOLD_DOWN)
        log_warn(keeper->env.log, "lease service %s is down: %s; trying again until it is back",
                 keeper->name, why);
    keeper->told_log = KEEPER_TOLD_DOWN;
}

void keeper_refused(struct keeper *keeper, int rc, char *why, size_t why_size)
{
    switch (rc) {
    case ZCONNECTIONLOSS: snprintf(why, why_size, "the connection was lost"); return;
    case ZOPERATIONTIMEOUT: snprintf(why, why_size, "no answer in time"); return;
    case ZCLOSING: snprintf(why, why_size, "the connection is being closed"); return;
    case ZINVALIDSTATE:
    case ZSESSIONEXPIRED: snprintf(why, why_size, "the session has expired"); return;
    case ZNOAUTH:
        snprintf(why, why_size, "no permission at %.64s (is the login right?)", keeper->base_path);
        break;
    case ZUNIMPLEMENTED: snprintf(why, why_size, "ZooKeeper is older than 3.5.3"); break;
    default: snprintf(why, why_size, "ZooKeeper says: %s", zerror(rc));
    }
    if (keeper->refusal[0] == '\0')
        log_warn(keeper->env.log, "lease service %s refuses: %s", keeper->name, why);
    snprintf(keeper->refusal, sizeof keeper->refusal, "%s", why);
}

void keeper_accepted(struct keeper *keeper)
{
    if (keeper->refusal[0] != '\0')
        log_info(keeper->env.log, "lease service %s accepts again", keeper->name);
    keeper->refusal[0] = '\0';
}

void keeper_end_first(struct keeper *keeper)
{
    void (*first)(void *context) = keeper->first;

    keeper->first = NULL;
    keeper->first_ended = true;
    if (first != NULL)
        first(keeper->first_context);
}

/* The leases that went with the last session. */
static void tell_lost(struct keeper *keeper)
{
    struct list lost, *link;

    list_init(&lost);
    list_splice(&lost, &keeper->lost);
    while ((link = list_pop(&lost)) != NULL) {
        struct lost *one = list_entry(link, struct lost, link);
        const struct lease_news news = {
            .revoked = true, .resource = {one->resource, one->len}, .token = one->token};
        if (keeper->on_news != NULL && keeper->state == KEEPER_READY) {
            keeper->news++;
            keeper->on_news(keeper->news_context, &news);
        }
        free(one);
    }
}

static void become_ready(struct keeper *keeper)
{
    struct spot *spot, *next;

    keeper->state = KEEPER_READY;
    keeper->connections++;
    keeper->failures = 0;
    keeper->silent = false;
    keeper->heard_ms = keeper_now_ms(keeper);
    keeper_accepted(keeper);
    if (keeper->told_log != KEEPER_TOLD_UP)
        log_info(keeper->env.log, "lease service %s is ready", keeper->name);
    keeper->told_log = KEEPER_TOLD_UP;
    HASH_ITER(hh, keeper->spots, spot, next)
    {
        if (spot->unsure)
            spot_tidy(spot);
        if (spot->queued.text[0] != '\0' && spot->watched.text[0] == '\0')
            spot_line_up(spot);
    }
    tell_lost(keeper);
    keeper_schedule(keeper);
    keeper_end_first(keeper);
}

static void on_base_made(struct zk_op *op)
{
    free(op);
}

void keeper_make_base(struct keeper *keeper)
{
    char path[NODE_BASE_MAX + 1];

    for (size_t i = 1; i <= strlen(keeper->base_path); i++) {
        if (keeper->base_path[i] != '/' && keeper->base_path[i] != '\0')
            continue;
        memcpy(path, keeper->base_path, i);
        path[i] = '\0';
        struct zk_op *op = mem_zalloc(sizeof *op);
        op->done = on_base_made;
        zk_create(keeper->session, op, path, "", 0, ZK_PERSISTENT);
    }
}

static void on_greeted(struct zk_op *op)
{
    struct keeper *keeper = list_entry(op, struct keeper, greeting);
    char why[128];

    keeper->greeting_under_way = false;
    if (keeper->state != KEEPER_GREETING)
        return;
    if (op->rc == ZOK && op->session == keeper->session) {
        become_ready(keeper);
    } else if (op->rc == ZNONODE && !keeper->base_made) {
        keeper->base_made = true;
        keeper_make_base(keeper);
        greet(keeper);
    } else if (op->rc == ZOK || op->rc > ZAPIERROR) {
        greet(keeper); /* another connection by now */
    } else {
        keeper_refused(keeper, op->rc, why, sizeof why);
        keeper_tell_down(keeper, why);
        keeper->base_made = false;
        keeper->due_ms =
            keeper_now_ms(keeper) + patience_backoff_ms(keeper->env.chance, ++keeper->failures);
        keeper_schedule(keeper);
        keeper_end_first(keeper);
    }
}

static void greet(struct keeper *keeper)
{
    if (keeper->greeting_under_way)
        return;
    keeper->greeting_under_way = true;
    keeper->due_ms = INT64_MAX;
    keeper->greeting.done = on_greeted;
    zk_children(keeper->session, &keeper->greeting, keeper->base_path);
}

void keeper_leave(struct keeper *keeper)
{
    struct zk_session *session = keeper->session;

    keeper->session = NULL;
    if (session == NULL)
        return;
    keeper->sessions_closing++;
    zk_session_free(session);
}

static void session_ended(struct keeper *keeper)
{
    struct spot *spot, *next;

    snprintf(keeper->reason, sizeof keeper->reason, "%s", zk_session_why(keeper->session));
    keeper->state = KEEPER_WAITING;
    keeper->ahead_known = false;
    keeper->due_ms =
        keeper_now_ms(keeper) + patience_backoff_ms(keeper->env.chance, ++keeper->failures);
    keeper_tell_down(keeper, keeper->reason);
    HASH_ITER(hh, keeper->spots, spot, next)
    spot_session_lost(spot);
    keeper_leave(keeper);
    keeper_schedule(keeper);
    keeper_end_first(keeper);
}

static void on_news(void *context, enum zk_news news)
{
    struct keeper *keeper = context;

    if (keeper->state == KEEPER_CLOSING)
        return;
    if (news == ZK_ENDED) {
        session_ended(keeper);
    } else if (news == ZK_CONNECTED) {
        keeper->state = KEEPER_GREETING;
        keeper->base_made = false;
        greet(keeper);
    } else {
        if (keeper->state == KEEPER_READY)
            keeper_tell_down(keeper, zk_session_why(keeper->session));
        keeper->state = KEEPER_CONNECTING;
        keeper->due_ms = keeper_now_ms(keeper) + RESUME_MS;
        keeper_schedule(keeper);
    }
}

static void on_removed(void *context, const char *path)
{
    struct keeper *keeper = context;

    if (keeper->state != KEEPER_CLOSING)
        spot_removed(keeper, path);
}

static void on_written(void *context, const char *path)
{
    struct keeper *keeper = context;

    if (keeper->state == KEEPER_READY)
        spot_written(keeper, path);
}

static void on_closed(void *context)
{
    struct keeper *keeper = context;

    keeper->sessions_closing--;
    keeper_close_if_over(keeper);
}

static const struct zk_events events = {
    .news = on_news,
    .removed = on_removed,
    .written = on_written,
    .closed = on_closed,
};

void keeper_reach(struct keeper *keeper)
{
    const struct chance *chance = keeper->env.chance;
    uint64_t random;

    chance->fill(chance, &random, sizeof random);
    snprintf(keeper->origin, sizeof keeper->origin, "%016llx", (unsigned long long)random);
    keeper->state = KEEPER_CONNECTING;
    keeper->due_ms = INT64_MAX;
    keeper->session = zk_session_open(keeper->env.loop, &keeper->uri, &events, keeper, NULL);
}

static void resume(struct keeper *keeper)
{
    struct zk_session *fresh, *old = keeper->session;
    struct spot *spot, *next;

    keeper->due_ms = keeper_now_ms(keeper) + RESUME_MS;
    if (!zk_session_resumable(old))
        return;
    HASH_ITER(hh, keeper->spots, spot, next)
    spot->watched.text[0] = '\0';
    fresh = zk_session_open(keeper->env.loop, &keeper->uri, &events, keeper, old);
    keeper_leave(keeper);
    keeper->session = fresh;
}

void keeper_reach_due(struct keeper *keeper)
{
    if (keeper->state == KEEPER_WAITING)
        keeper_reach(keeper);
    else if (keeper->state == KEEPER_GREETING)
        greet(keeper);
    else if (keeper->state == KEEPER_CONNECTING)
        resume(keeper);
    else
        keeper->due_ms = INT64_MAX;
}
