/* SPDX-License-Identifier: Apache-2.0 */
/* Plain Redis, as people write it: a lock for each article, MULTI, a DECRBY for each, the order's
 * rows into a list, EXEC. The transaction is whole; nothing ties it to the locks. */
#include <inttypes.h>
#include <stdio.h>

#include "fence/base/clock.h"
#include "tools/demo/basket.h"
#include "tools/demo/redis_lock.h"

static bool redis_open(struct client *client, const struct basket_sale *sale)
{
    char stock[BASKET_KEY_MAX], price[BASKET_KEY_MAX];
    bool opened = true;

    for (int sku = 0; sku < (int)sale->skus && opened; sku++) {
        opened = client_do(client, "MSET %s %lld %s %lld", basket_key(sale, "stock", sku, stock),
                           (long long)sale->stock, basket_key(sale, "price", sku, price),
                           (long long)basket_price(sku));
    }
    return opened;
}

static bool redis_orders(struct client *client, const struct basket_sale *sale,
                         basket_each_row *each, void *context)
{
    redisReply *reply = client_call(client, "LRANGE %s:orders 0 -1", sale->key);
    bool read = reply != NULL && reply->type == REDIS_REPLY_ARRAY;

    for (size_t i = 0; read && i < reply->elements; i++) {
        int64_t order, sku, quantity, price;
        read = sscanf(reply->element[i]->str, "%" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64,
                      &order, &sku, &quantity, &price) == 4;
        if (read) {
            each(context, order, sku, quantity);
        }
    }
    if (reply != NULL && !read) {
        (void)failure_set(&client->failure, "reading the orders: the server said: %s",
                          client_text(reply));
    }
    freeReplyObject(reply);
    return read;
}

static bool redis_clear(struct client *client, const struct basket_sale *sale)
{
    char stock[BASKET_KEY_MAX], price[BASKET_KEY_MAX];
    bool cleared = client_do(client, "DEL %s:orders", sale->key);

    for (int sku = 0; sku < (int)sale->skus && cleared; sku++) {
        (void)basket_key(sale, "stock", sku, stock);
        cleared = client_do(client, "DEL %s %s %s:lock", stock,
                            basket_key(sale, "price", sku, price), stock);
    }
    return cleared;
}

static enum purchase redis_lock(struct basket_buyer *buyer, struct basket_line *line)
{
    char key[BASKET_KEY_MAX];

    (void)basket_key(buyer->sale, "stock", line->sku, key);
    if (buyer->lock_value[0] == '\0') {
        redis_lock_value(buyer->lock_value); /* of this buyer, which holds one set at a time */
    }
    while (clock_now_ms(&clock_monotonic) < buyer->deadline_ms) {
        int64_t asked_us = ledger_now_us();
        bool taken;
        if (!redis_lock_try(&buyer->client, key, buyer->lock_value, buyer->sale->ttl_ms, &taken)) {
            return PURCHASE_FAILED;
        }
        if (taken) {
            line->mark = ledger_now_us();
            ledger_raise(&buyer->ledger->newest[line->sku], asked_us);
            return PURCHASE_MADE;
        }
        redis_lock_pause();
    }
    return PURCHASE_AGAIN;
}

static bool redis_unlock(struct basket_buyer *buyer, const struct basket_line *line)
{
    char key[BASKET_KEY_MAX];

    return redis_lock_give(&buyer->client, basket_key(buyer->sale, "stock", line->sku, key),
                           buyer->lock_value);
}

static int redis_queue(struct basket_buyer *buyer)
{
    char key[BASKET_KEY_MAX];

    for (size_t i = 0; i < buyer->count; i++) {
        const struct basket_line *line = &buyer->lines[i];
        client_append(&buyer->client, "DECRBY %s %lld",
                      basket_key(buyer->sale, "stock", line->sku, key), (long long)line->quantity);
        client_append(&buyer->client, "RPUSH %s:orders %b", buyer->sale->key, key,
                      (size_t)snprintf(key, sizeof key, "%" PRId64 " %d %" PRId64 " %" PRId64,
                                       buyer->order, line->sku, line->quantity, line->price));
    }
    return 2 * (int)buyer->count;
}

const struct basket_contender basket_redis_locks = {
    .name = "redis-locks",
    .title = "Redis locks",
    .open = redis_open,
    .orders = redis_orders,
    .clear = redis_clear,
    .lock = redis_lock,
    .unlock = redis_unlock,
    .queue = redis_queue,
};
