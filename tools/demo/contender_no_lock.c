/* SPDX-License-Identifier: Apache-2.0 */
/* No lock: read, work, write. Also the plain string key that several contenders keep the stock in.
 */
#include "tools/demo/contender.h"

bool stock_set(struct client *client, const struct sale *sale)
{
    return client_do(client, "SET %s %lld", sale->key, (long long)sale->stock);
}

bool stock_clear(struct client *client, const struct sale *sale)
{
    return client_do(client, "DEL %s", sale->key);
}

bool stock_of(struct client *client, redisReply *reply, int64_t *stock)
{
    if (reply == NULL) {
        return failure_set(&client->failure, "reading the stock: %s", client->failure.text);
    }
    bool read = client_to_int64(reply, stock);
    if (!read) {
        (void)failure_set(&client->failure, "reading the stock: the server said: %s",
                          client_text(reply));
    }
    freeReplyObject(reply);
    return read;
}

bool stock_read(struct client *client, const char *key, int64_t *stock)
{
    return stock_of(client, client_call(client, "GET %s", key), stock);
}

bool stock_left(struct client *client, const struct sale *sale, int64_t *left)
{
    return stock_read(client, sale->key, left);
}

static enum purchase no_lock_buy(struct buyer *buyer)
{
    int64_t stock = 0;

    if (!stock_read(&buyer->client, buyer->sale->key, &stock)) {
        return PURCHASE_FAILED;
    }
    if (stock <= 0) {
        return PURCHASE_SOLD_OUT;
    }
    int64_t read_us = ledger_now_us();
    buyer_work(buyer);
    buyer_note_stale(buyer, ledger_has_passed(buyer->ledger, read_us), false);
    int64_t write_us = ledger_now_us();
    if (!client_do(&buyer->client, "SET %s %lld", buyer->sale->key, (long long)(stock - 1))) {
        return PURCHASE_FAILED;
    }
    ledger_passes(buyer->ledger, write_us);
    buyer_sold(buyer, stock - 1);
    return PURCHASE_MADE;
}

const struct contender contender_no_lock = {
    .name = "none",
    .title = "no lock",
    .stock = stock_set,
    .left = stock_left,
    .clear = stock_clear,
    .buy = no_lock_buy,
};
