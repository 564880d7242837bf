/* SPDX-License-Identifier: Apache-2.0 */
/* The contenders on Stockade: acquire, read, work, write with the token, release. A buyer whose
 * lease has passed to another learns it from the write itself (STALE), has sold nothing, and starts
 * over. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/bytes.h"
#include "proxy/client/stockade.h"
#include "tools/demo/oversell.h"
#include "tools/lease.h"

enum { CALL_LIMIT_MS = 10000, WAIT_MS = 2000 };

/* Through the daemon, command by command. */

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

static bool release(struct buyer *buyer, const struct lease *lease)
{
    redisReply *reply =
        client_call(&buyer->client, "RELEASE %s %lld", buyer->sale->key, (long long)lease->token);

    if (!lease_released(reply)) {
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
    if (!stock_left(&buyer->client, sale, &stock)) {
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

/* The same purchase without a daemon, through the library. Each buyer opens the store's file
 * itself, with an engine in its own process, and so do the referee's questions. A stopped buyer is
 * stopped together with its keep-alive. */

static bool library_failed(struct client *client, const char *doing, enum stk_error error)
{
    return failure_set(&client->failure, "%s: %s %s", doing, stk_error_code(error), stk_message());
}

static enum stk_error open_store(const struct sale *sale, stk_client **store)
{
    char uri[sizeof sale->store + 8];

    (void)snprintf(uri, sizeof uri, "sqlite:%s", sale->store);
    return stk_client_open(uri, CALL_LIMIT_MS, store);
}

static enum stk_error acquire(stk_client *store, const struct sale *sale, stk_lease **lease)
{
    return stk_acquire(store, sale->key,
                       &(stk_lease_options){.ttl_ms = sale->ttl_ms, .wait_ms = WAIT_MS}, lease);
}

static enum stk_error write_stock(stk_lease *lease, const struct sale *sale, int64_t stock)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%" PRId64, stock);
    return stk_set(lease, sale->key, text, (size_t)length);
}

static enum stk_error read_stock(stk_client *store, const struct sale *sale, int64_t *stock)
{
    char *value;
    size_t length;
    enum stk_error error = stk_get(store, sale->key, &value, &length);

    if (error == STK_OK && (value == NULL || !bytes_to_int64((struct bytes){value, length}, stock)))
        error = STK_WRONGTYPE;
    free(value);
    return error;
}

static bool library_stock(struct client *client, const struct sale *sale)
{
    stk_client *store;
    stk_lease *lease = NULL;
    enum stk_error error = open_store(sale, &store);

    if (error == STK_OK) {
        error = acquire(store, sale, &lease);
    }
    if (error == STK_OK) {
        error = write_stock(lease, sale, sale->stock);
    }
    if (error == STK_OK) {
        error = stk_release(lease);
    }
    bool stocked = error == STK_OK || library_failed(client, "opening the sale", error);
    stk_lease_free(lease);
    stk_client_close(store);
    return stocked;
}

static bool library_left(struct client *client, const struct sale *sale, int64_t *left)
{
    stk_client *store;
    enum stk_error error = open_store(sale, &store);

    if (error == STK_OK) {
        error = read_stock(store, sale, left);
    }
    bool counted = error == STK_OK || library_failed(client, "counting what is left", error);
    stk_client_close(store);
    return counted;
}

static bool library_clear(struct client *client, const struct sale *sale)
{
    (void)client;
    (void)sale;
    return true; /* the file goes with its folder */
}

static bool library_open(struct buyer *buyer)
{
    stk_client *store;
    enum stk_error error = open_store(buyer->sale, &store);

    buyer->own = store;
    return error == STK_OK || library_failed(&buyer->client, "opening the store", error);
}

static void library_close(struct buyer *buyer)
{
    stk_client_close(buyer->own);
}

/* As above: stale means that nothing changed. */
static enum purchase library_write(struct buyer *buyer, stk_lease *lease, int64_t left)
{
    bool tried = ledger_has_passed(buyer->ledger, stk_lease_token(lease, NULL));
    enum stk_error error = write_stock(lease, buyer->sale, left);

    if (error == STK_STALE || error == STK_BUSY) {
        buyer_note_stale(buyer, error == STK_STALE, error == STK_STALE);
        return PURCHASE_AGAIN;
    }
    if (error != STK_OK) {
        (void)library_failed(&buyer->client, "the fenced write", error);
        return PURCHASE_FAILED;
    }
    buyer_note_stale(buyer, tried, false); /* tried and not refused: a promise broken */
    buyer_sold(buyer, left);
    return PURCHASE_MADE;
}

static enum purchase library_buy(struct buyer *buyer)
{
    stk_lease *lease;
    int64_t stock;
    enum stk_error error = acquire(buyer->own, buyer->sale, &lease);

    if (error == STK_HELD || error == STK_BUSY || error == STK_STALE) {
        return PURCHASE_AGAIN;
    }
    if (error == STK_OK) {
        ledger_passes(buyer->ledger, stk_lease_token(lease, NULL));
        error = read_stock(buyer->own, buyer->sale, &stock);
    }
    if (error != STK_OK) {
        (void)library_failed(&buyer->client, "acquiring and reading", error);
        stk_lease_free(lease);
        return PURCHASE_FAILED;
    }
    enum purchase purchase = PURCHASE_SOLD_OUT;
    if (stock > 0) {
        buyer_work(buyer);
        purchase = library_write(buyer, lease, stock - 1);
    }
    (void)stk_release(lease); /* it may have run out meanwhile, or run out later: no harm done */
    stk_lease_free(lease);
    return purchase;
}

const struct contender contender_library = {
    .name = "library",
    .title = "Stockade, no daemon",
    .embedded = true,
    .uses_stockade = true,
    .stock = library_stock,
    .left = library_left,
    .clear = library_clear,
    .open = library_open,
    .buy = library_buy,
    .close = library_close,
};
