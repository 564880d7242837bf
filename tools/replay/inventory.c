/* SPDX-License-Identifier: Apache-2.0 */
/* All SKUs at once: the opening stock is loaded before the replay and audited after it, in batches
 * through one connection. Loading takes two round trips a batch: all ACQUIREs, then all FENCED SETs
 * and RELEASEs. */
#include "tools/replay/replay.h"
#include "tools/term.h"

#include <inttypes.h>
#include <stdio.h>

#include "fence/base/check.h"

enum { BATCH = 64, LOAD_TTL_MS = 60000, NAMED_MAX = 20 };

const char *inventory_key(const struct replay *replay, const struct sku *sku,
                          char out[REPLAY_KEY_MAX])
{
    int length = snprintf(out, REPLAY_KEY_MAX, "%s%s", replay->settings.prefix, sku->name);

    check(length > 0 && length < REPLAY_KEY_MAX);
    return out;
}

/* Derive the opening stock, which the file does not have, from what all sales ask for. */
static int64_t opening_of(const struct replay *replay, const struct sku *sku)
{
    int64_t percent = replay->settings.opening_percent;

    return sku->demand / 100 * percent + sku->demand % 100 * percent / 100;
}

static size_t batch_end(const struct replay *replay, size_t first)
{
    size_t count = replay->orders.sku_count;

    return first + BATCH < count ? first + BATCH : count;
}

/* Give back what was taken: its holder goes no further, and others would wait for the TTL. */
static void release_batch(const struct replay *replay, struct client *client, size_t first,
                          const struct lease *leases, size_t count)
{
    char key[REPLAY_KEY_MAX];
    size_t taken = 0;

    for (size_t i = 0; i < count; i++) {
        if (leases[i].token == 0)
            continue;
        (void)inventory_key(replay, &replay->orders.skus[first + i], key);
        client_append(client, "RELEASE %s %lld", key, (long long)leases[i].token);
        taken++;
    }
    for (redisReply *reply; taken > 0 && (reply = client_next(client)) != NULL; taken--)
        freeReplyObject(reply);
}

static bool acquire_batch(const struct replay *replay, struct client *client, size_t first,
                          struct lease leases[BATCH])
{
    size_t end = batch_end(replay, first);
    char key[REPLAY_KEY_MAX];
    struct failure failure;
    bool good = true;

    for (size_t i = first; i < end; i++)
        client_append(client, "ACQUIRE %s %d", inventory_key(replay, &replay->orders.skus[i], key),
                      (int)LOAD_TTL_MS);
    for (size_t i = first; i < end; i++) {
        struct lease *lease = &leases[i - first];
        redisReply *reply = client_next(client);
        if (reply == NULL)
            return false;
        (void)inventory_key(replay, &replay->orders.skus[i], key);
        if (lease_taken(client, key, reply, lease))
            continue;
        if (good)
            failure = client->failure;
        good = false;
        lease->token = 0;
    }
    if (!good) {
        release_batch(replay, client, first, leases, end - first);
        client->failure = failure;
    }
    return good;
}

/* Take the reply to FENCED ... SET ... NX. */
static bool set_reply(struct client *client, const char *key)
{
    redisReply *reply = client_next(client);

    if (reply == NULL)
        return false;
    bool set = reply->type == REDIS_REPLY_STATUS;
    if (reply->type == REDIS_REPLY_NIL)
        (void)failure_set(&client->failure,
                          "%s is there already; choose another --prefix, or remove it", key);
    else if (!set)
        (void)failure_set(&client->failure, "%s: the server said: %s", key, client_text(reply));
    freeReplyObject(reply);
    return set;
}

static bool set_batch(const struct replay *replay, struct client *client, size_t first,
                      const struct lease leases[BATCH])
{
    size_t end = batch_end(replay, first);
    char key[REPLAY_KEY_MAX];
    bool good = true;

    for (size_t i = first; i < end; i++) {
        const struct sku *sku = &replay->orders.skus[i];
        long long token = leases[i - first].token;
        (void)inventory_key(replay, sku, key);
        client_append(client, "FENCED %lld SET %s %lld NX", token, key,
                      (long long)opening_of(replay, sku));
        client_append(client, "RELEASE %s %lld", key, token);
    }
    for (size_t i = first; i < end && good; i++) {
        good = set_reply(client, inventory_key(replay, &replay->orders.skus[i], key));
        redisReply *released = good ? client_next(client) : NULL;
        good = released != NULL;
        freeReplyObject(released);
    }
    return good;
}

bool inventory_load(const struct replay *replay, struct signals *signals, struct failure *failure)
{
    struct client client;
    struct lease leases[BATCH];
    bool good = client_open(&client, replay->server);

    for (size_t first = 0; good && first < replay->orders.sku_count; first += BATCH) {
        good = acquire_batch(replay, &client, first, leases) &&
               set_batch(replay, &client, first, leases);
        (void)signals_wait(signals, -1, 0);
        if (good && signals->ending != 0)
            good = failure_set(&client.failure, "interrupted");
    }
    client_close(&client);
    return good || failure_set(failure, "loading the opening stock: %s", client.failure.text);
}

static void audit_sku(const struct replay *replay, size_t index, int64_t left, struct audit *audit)
{
    const struct sku *sku = &replay->orders.skus[index];
    int64_t opening = opening_of(replay, sku);
    int64_t sold = atomic_load(&replay->tally->skus[index].sold);
    int64_t returned = atomic_load(&replay->tally->skus[index].returned);

    audit->sold_out += left == 0 ? 1 : 0;
    audit->below_zero += left < 0 ? 1 : 0;
    if (opening - sold + returned == left) {
        audit->right++;
        return;
    }
    audit->wrong++;
    if (audit->wrong <= NAMED_MAX)
        term_error("audit: %s: opening %" PRId64 " - sold %" PRId64 " + returned %" PRId64
                   " is not left %" PRId64 "",
                   sku->name, opening, sold, returned, left);
}

bool inventory_audit(const struct replay *replay, struct audit *audit, struct failure *failure)
{
    struct client client;
    char key[REPLAY_KEY_MAX];
    bool good = client_open(&client, replay->server);

    *audit = (struct audit){.right = 0};
    for (size_t first = 0; good && first < replay->orders.sku_count; first += BATCH) {
        size_t end = batch_end(replay, first);
        for (size_t i = first; i < end; i++)
            client_append(&client, "GET %s", inventory_key(replay, &replay->orders.skus[i], key));
        for (size_t i = first; i < end && good; i++) {
            redisReply *reply = client_next(&client);
            int64_t left = 0;
            good = reply != NULL;
            if (good && !client_to_int64(reply, &left))
                good = failure_set(&client.failure, "%s: the server said: %s",
                                   inventory_key(replay, &replay->orders.skus[i], key),
                                   client_text(reply));
            if (good)
                audit_sku(replay, i, left, audit);
            freeReplyObject(reply);
        }
    }
    client_close(&client);
    return good || failure_set(failure, "the audit: %s", client.failure.text);
}
