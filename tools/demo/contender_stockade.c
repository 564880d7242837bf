/* SPDX-License-Identifier: Apache-2.0 */
/* Stockade: acquire, read, work, write with the token, release. A buyer whose lease passed to
 * another is told so by the write itself (STALE), has sold nothing, and starts over. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/demo/contender.h"
#include "tools/lease.h"

enum { WAIT_MS = 2000 };

static bool fenced_stock(struct client *client, const struct sale *sale)
{
    char stock[32];

    (void)snprintf(stock, sizeof stock, "%" PRId64, sale->stock);
    return lease_write(client, "SET", sale->key, stock);
}

static bool fenced_clear(struct client *client, const struct sale *sale)
{
    return lease_write(client, "DEL", sale->key, NULL);
}

static bool fenced_open(struct buyer *buyer)
{
    return client_limit(&buyer->client, WAIT_MS + CLIENT_LIMIT_MS);
}

/* RELEASE. The lease may have run out meanwhile (STALE), or run out later (BUSY): no harm done. */
static bool release(struct buyer *buyer, const struct lease *lease)
{
    redisReply *reply =
        client_call(&buyer->client, "RELEASE %s %lld", buyer->sale->key, (long long)lease->token);

    if (reply == NULL || (reply->type == REDIS_REPLY_ERROR && !client_is_error(reply, "STALE") &&
                          !client_is_error(reply, "BUSY"))) {
        (void)buyer_failed(buyer, "releasing", reply);
        return false;
    }
    freeReplyObject(reply);
    return true;
}

/* PURCHASE_MADE: written. PURCHASE_AGAIN: the token was stale, or a queue full: nothing changed. */
static enum purchase fenced_write(struct buyer *buyer, const struct lease *lease, int64_t left)
{
    bool tried = ledger_has_passed(buyer->ledger, lease->token);
    redisReply *reply = client_call(&buyer->client, "FENCED %lld SET %s %lld",
                                    (long long)lease->token, buyer->sale->key, (long long)left);

    bool stale = reply != NULL && client_is_error(reply, "STALE");
    if (stale || (reply != NULL && client_is_error(reply, "BUSY"))) {
        buyer_note_stale(buyer, stale, stale);
        freeReplyObject(reply);
        return PURCHASE_AGAIN;
    }
    if (reply == NULL || reply->type != REDIS_REPLY_STATUS) {
        return buyer_failed(buyer, "the fenced write", reply);
    }
    freeReplyObject(reply);
    buyer_note_stale(buyer, tried, false); /* tried and not refused: a promise broken */
    buyer_sold(buyer, left);
    return PURCHASE_MADE;
}

static enum purchase fenced_buy(struct buyer *buyer)
{
    const struct sale *sale = buyer->sale;
    struct lease lease = {.token = 0};
    int64_t stock = 0;
    redisReply *reply = client_call(&buyer->client, "ACQUIRE %s %lld WAIT %d", sale->key,
                                    (long long)sale->ttl_ms, (int)WAIT_MS);

    if (reply == NULL) {
        return buyer_failed(buyer, "acquiring", reply);
    }
    enum acquire_reply answer = lease_of(reply, &lease);
    if (answer == ACQUIRE_REFUSED && !client_is_error(reply, "BUSY")) {
        return buyer_failed(buyer, "acquiring", reply);
    }
    freeReplyObject(reply);
    if (answer != ACQUIRE_GRANTED) {
        return PURCHASE_AGAIN;
    }
    ledger_passes(buyer->ledger, lease.token);
    if (!stock_read(&buyer->client, sale->key, &stock)) {
        return PURCHASE_FAILED;
    }
    if (stock <= 0) {
        return release(buyer, &lease) ? PURCHASE_SOLD_OUT : PURCHASE_FAILED;
    }
    buyer_work(buyer);
    enum purchase purchase = fenced_write(buyer, &lease, stock - 1);
    if (purchase != PURCHASE_FAILED && !release(buyer, &lease)) {
        purchase = PURCHASE_FAILED;
    }
    return purchase;
}

const struct contender contender_stockade = {
    .name = "stockade",
    .title = "Stockade",
    .uses_stockade = true,
    .stock = fenced_stock,
    .left = stock_left,
    .clear = fenced_clear,
    .open = fenced_open,
    .buy = fenced_buy,
};
