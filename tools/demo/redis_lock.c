/* SPDX-License-Identifier: Apache-2.0 */
/* The lock is at KEY:lock; who waits asks again until the sale is over. */
#include "tools/demo/redis_lock.h"

#include <stdio.h>

#include "fence/base/clock.h"

#define UNLOCK_SCRIPT                                                                              \
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

void redis_lock_value(char out[REDIS_LOCK_VALUE_MAX])
{
    unsigned char bytes[(REDIS_LOCK_VALUE_MAX - 1) / 2];

    chance_system.fill(&chance_system, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)sprintf(out + 2 * i, "%02x", bytes[i]);
}

enum purchase redis_lock_take(struct buyer *buyer, int sku, const char *key, const char *value,
                              int64_t *granted_us)
{
    while (!buyer_is_late(buyer)) {
        int64_t asked_us = clock_now_us(&clock_monotonic);
        redisReply *reply = client_call(&buyer->client, "SET %s:lock %s NX PX %lld", key, value,
                                        (long long)buyer->sale->ttl_ms);
        if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
            return buyer_failed(buyer, "taking the lock", reply);
        bool taken = reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (taken) {
            *granted_us = clock_now_us(&clock_monotonic);
            buyer_passes(buyer, sku, asked_us);
            buyer_note(buyer, TRACE_LOCKED, sku, 0);
            return PURCHASE_MADE;
        }
        buyer_pause();
    }
    return PURCHASE_AGAIN;
}

bool redis_lock_give(struct client *client, const char *key, const char *value)
{
    return client_do(client, "EVAL %s 1 %s:lock %s", UNLOCK_SCRIPT, key, value);
}
