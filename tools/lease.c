/* SPDX-License-Identifier: Apache-2.0 */
/* Reading ACQUIRE's reply; writing a single value. */
#include "tools/lease.h"

#include <stddef.h>

enum { WRITE_TTL_MS = 10000, WRITE_WAIT_MS = 3000 };

enum lease_answer lease_of(const redisReply *reply, struct lease *lease)
{
    if (reply->type == REDIS_REPLY_NIL) {
        return LEASE_HELD;
    }
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
        client_to_int64(reply->element[0], &lease->token) &&
        client_to_int64(reply->element[1], &lease->ttl_ms)) {
        return LEASE_GRANTED;
    }
    return LEASE_REFUSED;
}

bool lease_write(struct client *client, const char *command, const char *key, const char *value)
{
    struct lease lease = {.token = 0};
    redisReply *reply =
        client_call(client, "ACQUIRE %s %d WAIT %d", key, WRITE_TTL_MS, WRITE_WAIT_MS);

    if (reply == NULL) {
        return false;
    }
    enum lease_answer answer = lease_of(reply, &lease);
    if (answer != LEASE_GRANTED) {
        (void)failure_set(&client->failure, "no lease on %s: %s", key,
                          answer == LEASE_HELD ? "another holds it" : client_text(reply));
    }
    freeReplyObject(reply);
    if (answer != LEASE_GRANTED) {
        return false;
    }
    bool written =
        value == NULL ? client_do(client, "FENCED %lld %s %s", (long long)lease.token, command, key)
                      : client_do(client, "FENCED %lld %s %s %s", (long long)lease.token, command,
                                  key, value);
    return written && client_do(client, "RELEASE %s %lld", key, (long long)lease.token);
}
