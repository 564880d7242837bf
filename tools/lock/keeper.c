/* SPDX-License-Identifier: Apache-2.0 */
/* One RENEW at a time. One without an answer within a third of the TTL is given up with its
 * connection: a new one may reach the server where the old one leads nowhere. */
#include "tools/lock/keeper.h"

#include <string.h>
#include <time.h>

#include "fence/base/check.h"

enum { ANSWER_LIMIT_MS = 5000, RETRY_MIN_MS = 5, RETRY_MAX_MS = 500, LISTEN_AGAIN_MS = 2000 };

int64_t keeper_now_ms(void)
{
    struct timespec now;

    check(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t between(int64_t value, int64_t min, int64_t max)
{
    return value < min ? min : value > max ? max : value;
}

static int64_t answer_limit_ms(const struct keeper *keeper)
{
    return between(keeper->ttl_ms / 3, 1, ANSWER_LIMIT_MS);
}

static int64_t retry_ms(const struct keeper *keeper)
{
    return between(keeper->ttl_ms / 20, RETRY_MIN_MS, RETRY_MAX_MS);
}

static int64_t renew_at_ms(const struct keeper *keeper)
{
    return keeper->looks ? 0 : keeper->renew_at_ms;
}

/* A grant or renewal for `left_ms` whose command was sent at `sent_ms`. */
static void renewed(struct keeper *keeper, int64_t sent_ms, int64_t left_ms)
{
    if (left_ms > keeper->ttl_ms)
        left_ms = keeper->ttl_ms;
    keeper->sure_until_ms = sent_ms + left_ms - left_ms / 100 - 1;
    keeper->renew_at_ms = sent_ms + left_ms / 3;
}

void keeper_start(struct keeper *keeper, const struct link *link, int64_t token, int64_t sent_ms,
                  int64_t left_ms)
{
    keeper->link = *link;
    keeper->token = token;
    link_pin(&keeper->link, &keeper->uri);
    renewed(keeper, sent_ms, left_ms);
}

void keeper_look(struct keeper *keeper)
{
    keeper->looks = true;
}

static void try_later(struct keeper *keeper, const char *why)
{
    (void)failure_set(&keeper->failure, "%s", why);
    keeper->sent_ms = 0;
    keeper->looks = false;
    keeper->renew_at_ms = keeper_now_ms() + retry_ms(keeper);
}

static void judge(struct keeper *keeper, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_INTEGER) {
        renewed(keeper, keeper->sent_ms, reply->integer);
        keeper->sent_ms = 0;
    } else if (client_is_error(reply, "STALE") || client_is_error(reply, "UNKNOWN")) {
        keeper->lost = true;
        (void)failure_set(&keeper->failure, "%s", client_text(reply));
    } else {
        try_later(keeper, client_text(reply));
    }
}

static void read_renewals(struct keeper *keeper)
{
    redisReply *reply = NULL;

    for (;;) {
        switch (link_turn(&keeper->link, &reply)) {
        case LINK_NOTHING: return;
        case LINK_LOST: try_later(keeper, keeper->link.failure.text); return;
        case LINK_REPLY: break;
        }
        if (keeper->sent_ms != 0) {
            judge(keeper, reply);
        }
        freeReplyObject(reply);
    }
}

static void send_renewal(struct keeper *keeper, int64_t now_ms)
{
    if (!link_is_open(&keeper->link) && !link_open(&keeper->link, &keeper->uri)) {
        try_later(keeper, keeper->link.failure.text);
        return;
    }
    keeper->sent_ms = now_ms;
    keeper->looks = false;
    link_send(&keeper->link, "RENEW %s %lld %lld", keeper->resource, (long long)keeper->token,
              (long long)keeper->ttl_ms);
}

/* Is it time to look: an end, or the beginning of what we hear: an end before that passed unheard.
 */
static bool calls_for_a_look(const redisReply *reply)
{
    static const char *const ends[] = {"\"released\"", "\"expired\"", "\"revoked\"", "\"granted\""};

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->type != REDIS_REPLY_STRING) {
        return false;
    }
    if (strcmp(reply->element[0]->str, "subscribe") == 0) {
        return true;
    }
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (reply->element[2]->type == REDIS_REPLY_STRING &&
            strstr(reply->element[2]->str, ends[i]) != NULL) {
            return true;
        }
    }
    return false;
}

static void listen(struct keeper *keeper, int64_t now_ms)
{
    redisReply *reply = NULL;

    if (!link_is_open(&keeper->events)) {
        if (now_ms < keeper->listen_at_ms) {
            return;
        }
        keeper->listen_at_ms = now_ms + LISTEN_AGAIN_MS;
        if (!link_open(&keeper->events, &keeper->uri)) {
            return;
        }
        link_send(&keeper->events, "SUBSCRIBE stockade:events:%s", keeper->resource);
    }
    while (link_turn(&keeper->events, &reply) == LINK_REPLY) {
        if (calls_for_a_look(reply)) {
            keeper_look(keeper);
        }
        freeReplyObject(reply);
    }
}

void keeper_turn(struct keeper *keeper)
{
    int64_t now_ms;

    if (keeper->lost) {
        return;
    }
    read_renewals(keeper);
    now_ms = keeper_now_ms();
    listen(keeper, now_ms);
    if (keeper->lost) {
        return;
    }
    if (keeper->sent_ms != 0 && now_ms >= keeper->sent_ms + answer_limit_ms(keeper)) {
        link_close(&keeper->link);
        try_later(keeper, "no answer in time");
    }
    if (keeper->sent_ms == 0 && now_ms >= renew_at_ms(keeper)) {
        send_renewal(keeper, now_ms);
        read_renewals(keeper); /* sends it */
    }
}

int64_t keeper_next_ms(const struct keeper *keeper)
{
    int64_t next_ms =
        keeper->sent_ms != 0 ? keeper->sent_ms + answer_limit_ms(keeper) : renew_at_ms(keeper);

    if (keeper->lost) {
        return INT64_MAX;
    }
    return link_is_open(&keeper->events) || keeper->listen_at_ms > next_ms ? next_ms
                                                                           : keeper->listen_at_ms;
}

void keeper_stop(struct keeper *keeper)
{
    link_close(&keeper->events);
}
