/* SPDX-License-Identifier: Apache-2.0 */
/* A link that only listens: its greeting ends with SUBSCRIBE instead of the scripts, and then
 * messages come by themselves.
 *
 * A connection that is silent may be dead: after LISTEN_QUIET_MS without a word the link subscribes
 * again, which Redis confirms and nothing else minds. (PING's answer in this mode is nothing that
 * hiredis 0.14 can take.)
 *
 * Nobody depends on what is heard, so a loss is no warning: the link to the same Redis that asks
 * questions tells those. Only a Redis that lets nobody listen (an ACL without the right to it) is
 * told, once, and tried again at long distances.
 *
 * A sentinel's link is one of them, too; what becomes of it is told to sentinels.c. */
#include <hiredis/hiredis.h>
#include <stdio.h>

#include "fence/base/mem.h"
#include "fence/lease/redis/link_impl.h"

#define LISTEN_QUIET_MS   2000
#define LISTEN_REFUSED_MS 5000

void link_listen_heard(struct redis_link *link, const struct redisReply *reply)
{
    const redisReply *text = reply->element[2]; /* the wire lets only arrays of three pass */

    if (link->state != LINK_READY)
        return;
    link->asked_again = false;
    link->grace_until_ms = 0;
    link->due_ms = link_now_ms(link) + LISTEN_QUIET_MS;
    if (text->type == REDIS_REPLY_STRING)
        link->heard(link->context, (struct bytes){text->str, text->len});
}

bool link_listen_ask_again(struct redis_link *link)
{
    if (link->heard == NULL || link->state != LINK_READY || link->asked_again)
        return false;
    link->asked_again = true;
    link->due_ms = link_now_ms(link) + link->uri.timeout_ms;
    wire_listen(link->wire, NULL, link->channel);
    return true;
}

void link_listen_ready(struct redis_link *link)
{
    link->asked_again = false;
    link->due_ms = link_now_ms(link) + LISTEN_QUIET_MS;
    if (link->logged == LOGGED_DOWN)
        log_info(link->env.log, "lease service %s lets this daemon listen again", link->name);
    link->logged = LOGGED_UP;
    if (link->named != NULL)
        link->named(link->context, &link->master, NULL);
}

void link_listen_failed(struct redis_link *link, bool refused)
{
    if (!refused)
        return;
    link->due_ms = link_now_ms(link) + LISTEN_REFUSED_MS;
    if (link->logged != LOGGED_DOWN)
        log_warn(link->env.log,
                 "lease service %s does not let this daemon listen to %s: %s; leases that other "
                 "daemons end are noticed within a second, not at once",
                 link->name, link->channel, link->reason);
    link->logged = LOGGED_DOWN;
}

struct redis_link *redis_listener_new(const struct lease_uri *uri,
                                      const struct lease_surroundings *surroundings,
                                      const char *channel,
                                      void (*heard)(void *context, struct bytes message),
                                      void *context)
{
    struct redis_link *link = redis_link_new(uri, surroundings, NULL, context);

    snprintf(link->channel, sizeof link->channel, "%s", channel);
    link->heard = heard;
    return link;
}

struct redis_link *redis_sentinel_new(
    const struct lease_uri *uri, const struct lease_surroundings *surroundings,
    void (*named)(void *context, const struct uri_host *master, const char *why),
    void (*heard)(void *context, struct bytes message), void *context)
{
    struct redis_link *link =
        redis_listener_new(uri, surroundings, "+switch-master", heard, context);

    link->named = named;
    return link;
}
