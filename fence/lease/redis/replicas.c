/* SPDX-License-Identifier: Apache-2.0 */
/* Two lists: those whom the WAIT under way covers, and those who come after it was sent. */
#include "fence/lease/redis/replicas.h"

#include <hiredis/hiredis.h>
#include <stdio.h>

#include "fence/base/check.h"

static void answer(struct list *waits, const char *why)
{
    while (!list_empty(waits)) {
        struct replicas_wait *wait = list_entry(waits->next, struct replicas_wait, link);
        list_remove(&wait->link);
        wait->done(wait, why);
    }
}

static void send_next(struct replicas *replicas)
{
    char needed[16], time_ms[16];

    if (replicas->under_way || list_empty(&replicas->next))
        return;
    if (!redis_link_ready(replicas->link)) {
        answer(&replicas->next, redis_link_reason(replicas->link));
        return;
    }
    list_splice(&replicas->covered, &replicas->next);
    replicas->under_way = true;
    snprintf(needed, sizeof needed, "%d", replicas->needed);
    snprintf(time_ms, sizeof time_ms, "%d", replicas->timeout_ms);
    redis_link_send_command(replicas->link, &replicas->request, 3,
                            (const char *[]){"WAIT", needed, time_ms});
}

static void on_done(struct redis_request *request, const struct redisReply *reply, const char *why)
{
    struct replicas *replicas = (struct replicas *)(void *)request;
    char error[SCRIPT_ERROR_MAX];

    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        script_error(reply, error);
        why = error;
    } else if (reply != NULL &&
               (reply->type != REDIS_REPLY_INTEGER || reply->integer < replicas->needed)) {
        snprintf(error, sizeof error, "%lld of %d replicas have the grant within %d ms",
                 reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0, replicas->needed,
                 replicas->timeout_ms);
        why = error;
    }
    replicas->under_way = false;
    answer(&replicas->covered, why);
    send_next(replicas);
}

void replicas_init(struct replicas *replicas, struct redis_link *link, int needed, int timeout_ms)
{
    replicas->request.done = on_done;
    replicas->link = link;
    replicas->needed = needed;
    replicas->timeout_ms = timeout_ms < 4 ? 1 : timeout_ms / 4;
    list_init(&replicas->covered);
    list_init(&replicas->next);
}

void replicas_await(struct replicas *replicas, struct replicas_wait *wait)
{
    check(replicas->needed > 0);
    list_append(&replicas->next, &wait->link);
    send_next(replicas);
}
