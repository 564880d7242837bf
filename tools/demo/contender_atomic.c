/* SPDX-License-Identifier: Apache-2.0 */
/* The two remedies without a lock. Both are right here, and the text under the table says so.
 *
 * Conditional decrement: "sell one if there is one" as one script; nothing that was computed
 * between read and write is written. Version column: the stock is a hash with a version beside it;
 * a write names the version that it rests on and fails where that has moved, and the buyer does its
 * work again. (Redis has no statement for it; the script does what UPDATE ... WHERE version = ?
 * does.) */
#include "tools/demo/contender.h"

#define DECREMENT_SCRIPT                                                                           \
    "if tonumber(redis.call('get', KEYS[1])) > 0 then return redis.call('decr', KEYS[1]) end "     \
    "return -1"
#define COMPARE_AND_SET_SCRIPT                                                                     \
    "if redis.call('hget', KEYS[1], 'version') ~= ARGV[1] then return 0 end "                      \
    "redis.call('hset', KEYS[1], 'stock', ARGV[2]) "                                               \
    "redis.call('hincrby', KEYS[1], 'version', 1) return 1"

static enum purchase decrement_buy(struct buyer *buyer)
{
    int64_t left = 0;

    /* The buyer sees the stock first, as on a shop's page, but does not compute with it. */
    if (!stock_read(&buyer->client, buyer->sale->key, &left)) {
        return PURCHASE_FAILED;
    }
    if (left <= 0) {
        return PURCHASE_SOLD_OUT;
    }
    buyer_work(buyer);
    redisReply *reply =
        client_call(&buyer->client, "EVAL %s 1 %s", DECREMENT_SCRIPT, buyer->sale->key);
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER) {
        return buyer_failed(buyer, "the decrement", reply);
    }
    left = reply->integer;
    freeReplyObject(reply);
    if (left < 0) {
        return PURCHASE_SOLD_OUT;
    }
    buyer_sold(buyer, left);
    return PURCHASE_MADE;
}

static bool version_stock(struct client *client, const struct sale *sale)
{
    return client_do(client, "HSET %s stock %lld version 1", sale->key, (long long)sale->stock);
}

static bool version_left(struct client *client, const struct sale *sale, int64_t *left)
{
    return stock_of(client, client_call(client, "HGET %s stock", sale->key), left);
}

static enum purchase version_buy(struct buyer *buyer)
{
    struct client *client = &buyer->client;
    const char *key = buyer->sale->key;
    int64_t stock = 0, version = 0;
    redisReply *reply = client_call(client, "HMGET %s stock version", key);

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        !client_to_int64(reply->element[0], &stock) ||
        !client_to_int64(reply->element[1], &version)) {
        return buyer_failed(buyer, "reading stock and version", reply);
    }
    freeReplyObject(reply);
    if (stock <= 0) {
        return PURCHASE_SOLD_OUT;
    }
    buyer_work(buyer);
    reply = client_call(client, "EVAL %s 1 %s %lld %lld", COMPARE_AND_SET_SCRIPT, key,
                        (long long)version, (long long)(stock - 1));
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER) {
        return buyer_failed(buyer, "the compare and set", reply);
    }
    bool written = reply->integer == 1;
    freeReplyObject(reply);
    if (!written) {
        buyer_note_stale(buyer, true, true);
        return PURCHASE_AGAIN;
    }
    buyer_sold(buyer, stock - 1);
    return PURCHASE_MADE;
}

const struct contender contender_decrement = {
    .name = "decrement",
    .title = "atomic decrement",
    .stock = stock_set,
    .left = stock_left,
    .clear = stock_clear,
    .buy = decrement_buy,
};

const struct contender contender_version = {
    .name = "version",
    .title = "version column",
    .stock = version_stock,
    .left = version_left,
    .clear = stock_clear,
    .buy = version_buy,
};
