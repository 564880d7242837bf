/* SPDX-License-Identifier: Apache-2.0 */
/* Reading ACQUIRE's reply; writing a single value. */
#include "tools/lease.h"

#include <stddef.h>

enum { WRITE_TTL_MS = 10000, WRITE_WAIT_MS = 3000 };

enum acquire_reply lease_of(const redisReply *reply, struct lease *lease)
{
    if (reply->type == REDIS_REPLY_NIL) {
        return ACQUIRE_HELD;
    }
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        client_to_int64(reply->element[0], &lease->token) &&
        client_to_int64(reply->element[1], &lease->ttl_ms)) {
        return ACQUIRE_GRANTED;
    }
    return ACQUIRE_REFUSED;
}

bool lease_released(const redisReply *reply)
{
    return reply != NULL && (reply->type != REDIS_REPLY_ERROR || client_is_error(reply, "STALE") ||
                             client_is_error(reply, "BUSY"));
}

bool lease_write(struct client *client, const char *command, const char *key, const char *value)
{
    struct lease lease = {.token = 0};
    redisReply *reply =
        client_call(client, "ACQUIRE %s %d WAIT %d", key, WRITE_TTL_MS, WRITE_WAIT_MS);

    if (reply == NULL) {
        return false;
    }
    enum acquire_reply answer = lease_of(reply, &lease);
    if (answer != ACQUIRE_GRANTED) {
        (void)failure_set(&client->failure, "no lease on %s: %s", key,
                          answer == ACQUIRE_HELD ? "another holds it" : client_text(reply));
    }
    freeReplyObject(reply);
    if (answer != ACQUIRE_GRANTED) {
        return false;
    }
    bool written =
        value == NULL ? client_do(client, "FENCED %lld %s %s", (long long)lease.token, command, key)
                      : client_do(client, "FENCED %lld %s %s %s", (long long)lease.token, command,
                                  key, value);
    return written && client_do(client, "RELEASE %s %lld", key, (long long)lease.token);
}
