/* SPDX-License-Identifier: Apache-2.0 */
/* The lock's value, and the three commands. */
#include "tools/demo/redis_lock.h"

#include <stdio.h>
#include <time.h>

#include "fence/base/clock.h"

#define UNLOCK_SCRIPT                                                                              \
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

enum { RETRY_MS = 20, RETRY_JITTER_MS = 5 };

void redis_lock_value(char out[REDIS_LOCK_VALUE_MAX])
{
    unsigned char bytes[(REDIS_LOCK_VALUE_MAX - 1) / 2];

    chance_system.fill(&chance_system, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++) {
        (void)sprintf(out + 2 * i, "%02x", bytes[i]);
    }
}

bool redis_lock_try(struct client *client, const char *key, const char *value, int64_t ttl_ms,
                    bool *taken)
{
    redisReply *reply =
        client_call(client, "SET %s:lock %s NX PX %lld", key, value, (long long)ttl_ms);
    bool answered = reply != NULL && reply->type != REDIS_REPLY_ERROR;

    *taken = answered && reply->type == REDIS_REPLY_STATUS;
    if (reply != NULL && !answered) {
        (void)failure_set(&client->failure, "the server said: %s", client_text(reply));
    }
    freeReplyObject(reply);
    return answered;
}

void redis_lock_pause(void)
{
    unsigned char byte;
    struct timespec delay = {.tv_sec = 0};

    chance_system.fill(&chance_system, &byte, 1);
    delay.tv_nsec = (RETRY_MS - RETRY_JITTER_MS + byte % (2 * RETRY_JITTER_MS + 1)) * 1000000L;
    (void)nanosleep(&delay, NULL);
}

bool redis_lock_give(struct client *client, const char *key, const char *value)
{
    return client_do(client, "EVAL %s 1 %s:lock %s", UNLOCK_SCRIPT, key, value);
}
