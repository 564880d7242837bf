/* SPDX-License-Identifier: Apache-2.0 */
/* A buyer of baskets. It chooses, locks, reads, works, and commits until it has a reply. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "tools/demo/basket.h"

enum { DISCOUNT_FROM_CENTS = 5000, DISCOUNT_PERCENT = 10, ORDERS_OF_A_BUYER_MAX = 1000000 };

const char *basket_key(const struct sale *sale, const char *what, int sku, char out[BASKET_KEY_MAX])
{
    (void)snprintf(out, BASKET_KEY_MAX, "%s:%s:%02d", sale->key, what, sku);
    return out;
}

int64_t basket_price(int sku)
{
    return 495 + 250 * sku;
}

/* Read `count` keys of one kind. */
static bool read_some(struct buyer *buyer, const char *what, const int *skus, size_t count,
                      int64_t *numbers)
{
    char keys[SKUS_MAX][BASKET_KEY_MAX];
    const char *argv[SKUS_MAX + 1] = {"MGET"};

    for (size_t i = 0; i < count; i++)
        argv[i + 1] = basket_key(buyer->sale, what, skus[i], keys[i]);
    check(redisAppendCommandArgv(buyer->client.context, (int)count + 1, argv, NULL) == REDIS_OK);
    redisReply *reply = client_next(&buyer->client);
    bool read = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == count;
    for (size_t i = 0; i < count && read; i++)
        read = client_to_int64(reply->element[i], &numbers[i]);
    if (!read) {
        (void)buyer_failed(buyer, "reading the stocks", reply);
        return false;
    }
    freeReplyObject(reply);
    return true;
}

bool basket_read(struct buyer *buyer, const char *what, int64_t numbers[SKUS_MAX])
{
    int skus[SKUS_MAX];

    for (int sku = 0; sku < SKUS_MAX; sku++)
        skus[sku] = sku;
    return read_some(buyer, what, skus, (size_t)buyer->sale->skus, numbers);
}

bool basket_join(struct buyer *buyer)
{
    struct basket *basket = mem_zalloc(sizeof *basket);

    basket->order = (int64_t)(buyer->index + 1) * ORDERS_OF_A_BUYER_MAX;
    buyer->own = basket;
    return true;
}

void basket_leave(struct buyer *buyer)
{
    free(buyer->own);
}

static uint64_t chance_below(uint64_t bound)
{
    uint64_t number;

    chance_system.fill(&chance_system, &number, sizeof number);
    return number % bound;
}

/* Choose some of the articles that are left, in the order in which everybody locks them. */
static enum purchase choose(struct buyer *buyer)
{
    struct basket *basket = buyer->own;
    int skus[SKUS_MAX];
    int64_t stocks[SKUS_MAX];
    size_t there = 0, wanted = (size_t)buyer->sale->lines;

    if (!basket_read(buyer, "stock", stocks))
        return PURCHASE_FAILED;
    for (int sku = 0; sku < (int)buyer->sale->skus; sku++)
        if (stocks[sku] > 0)
            skus[there++] = sku;
    if (there < wanted)
        return PURCHASE_SOLD_OUT;
    basket->count = 0;
    for (size_t i = 0; i < there; i++) /* each subset is as likely as any other */
        if (chance_below(there - i) < wanted - basket->count)
            basket->lines[basket->count++] = (struct basket_line){.sku = skus[i]};
    basket->order++;
    return PURCHASE_MADE;
}

static bool unlock_lines(struct buyer *buyer, const struct basket_way *way, size_t count)
{
    const struct basket *basket = buyer->own;
    bool unlocked = true;

    for (size_t i = 0; i < count && unlocked; i++) {
        unlocked = way->unlock(buyer, &basket->lines[i]);
        buyer_note(buyer, TRACE_UNLOCKED, basket->lines[i].sku, 0);
    }
    return unlocked;
}

/* Lock all lines, or give back what was locked. */
static enum purchase lock_lines(struct buyer *buyer, const struct basket_way *way)
{
    struct basket *basket = buyer->own;

    for (size_t i = 0; i < basket->count; i++) {
        enum purchase purchase = way->lock(buyer, &basket->lines[i]);
        if (purchase != PURCHASE_MADE) {
            bool given = purchase == PURCHASE_FAILED || unlock_lines(buyer, way, i);
            return given ? purchase : PURCHASE_FAILED;
        }
    }
    return PURCHASE_MADE;
}

/* Read stocks and prices under the locks, and compute. PURCHASE_AGAIN: an article is gone. */
static enum purchase compute(struct buyer *buyer)
{
    struct basket *basket = buyer->own;
    int skus[BASKET_LINES_MAX] = {0};
    int64_t stocks[BASKET_LINES_MAX] = {0}, prices[BASKET_LINES_MAX] = {0}, total = 0;

    for (size_t i = 0; i < basket->count; i++)
        skus[i] = basket->lines[i].sku;
    if (!read_some(buyer, "stock", skus, basket->count, stocks) ||
        !read_some(buyer, "price", skus, basket->count, prices))
        return PURCHASE_FAILED;
    for (size_t i = 0; i < basket->count; i++) {
        struct basket_line *line = &basket->lines[i];
        int64_t wish = 1 + (int64_t)chance_below(2);
        if (stocks[i] < 1)
            return PURCHASE_AGAIN;
        line->stock = stocks[i];
        buyer_note(buyer, TRACE_READ, line->sku, stocks[i]);
        line->quantity = wish < stocks[i] ? wish : stocks[i];
        total += line->quantity * prices[i];
    }
    for (size_t i = 0; i < basket->count; i++) {
        int64_t percent = total >= DISCOUNT_FROM_CENTS ? 100 - DISCOUNT_PERCENT : 100;
        basket->lines[i].price = prices[i] * percent / 100;
    }
    return PURCHASE_MADE;
}

static bool takes_the_last(const struct basket *basket)
{
    for (size_t i = 0; i < basket->count; i++)
        if (basket->lines[i].quantity == basket->lines[i].stock)
            return true;
    return false;
}

/* Losses are spread over the sale, which may leave some pieces unsold: the i-th of n is due when
 * i/(n+2) of them are sold. */
static bool loss_is_due(const struct buyer *buyer)
{
    const struct sale *sale = buyer->sale;
    int64_t losses = atomic_load(&buyer->ledger->losses);

    return losses < sale->losses &&
           atomic_load(&buyer->ledger->pieces) * (sale->losses + 2) >=
               (losses + 1) * sale->skus * sale->stock &&
           ledger_count(&buyer->ledger->losses, losses + 1);
}

/* Send what was appended, wait until the reply is there, and break the connection unread: the
 * transaction was applied, and we do not know. Then connect anew. */
static bool lose_reply(struct buyer *buyer)
{
    redisContext *context = buyer->client.context;
    struct pollfd polled = {.fd = context->fd, .events = POLLIN};
    int done = 0;

    while (!done)
        if (redisBufferWrite(context, &done) != REDIS_OK)
            return failure_set(&buyer->client.failure, "sending: %s", context->errstr);
    if (poll(&polled, 1, CLIENT_LIMIT_MS) != 1)
        return failure_set(&buyer->client.failure, "no answer in time");
    client_close(&buyer->client);
    return client_open(&buyer->client, buyer->server) &&
           client_limit(&buyer->client, 2 * CLIENT_LIMIT_MS);
}

/* Send MULTI and what goes into it. */
static bool queue(struct buyer *buyer, const struct basket_way *way)
{
    struct client *client = &buyer->client;

    client_append(client, "MULTI");
    int count = 1 + way->queue(buyer);
    bool good = true;
    for (int i = 0; i < count; i++) {
        redisReply *reply = client_next(client);
        if (reply == NULL)
            return false;
        if (reply->type != REDIS_REPLY_STATUS)
            good =
                failure_set(&client->failure, "queueing: the server said: %s", client_text(reply));
        freeReplyObject(reply);
    }
    return good;
}

static bool has_passed(const struct buyer *buyer)
{
    const struct basket *basket = buyer->own;

    for (size_t i = 0; i < basket->count; i++)
        if (buyer_has_passed(buyer, basket->lines[i].sku, basket->lines[i].mark))
            return true;
    return false;
}

/* `replies`: to the transaction. */
static void note_sale(struct buyer *buyer, const struct basket_way *way, const redisReply *replies)
{
    const struct basket *basket = buyer->own;
    int64_t pieces = 0, stock;

    for (size_t i = 0; i < basket->count; i++) {
        buyer_sold(buyer, basket->lines[i].sku, basket->lines[i].quantity);
        atomic_fetch_sub(&buyer->ledger->left, basket->lines[i].quantity);
        pieces += basket->lines[i].quantity;
        if (i * way->step < replies->elements &&
            client_to_int64(replies->element[i * way->step], &stock))
            buyer_note(buyer, TRACE_WRITTEN, basket->lines[i].sku, stock);
    }
    buyer_note(buyer, TRACE_SOLD, 0, pieces);
    atomic_fetch_add(&buyer->ledger->baskets, 1);
}

/* Send the transaction, and send it again where its reply was lost, as clients do that retry. */
static enum purchase commit(struct buyer *buyer, const struct basket_way *way)
{
    bool tried = has_passed(buyer);

    for (;;) {
        if (!queue(buyer, way))
            return PURCHASE_FAILED;
        client_append(&buyer->client, "EXEC");
        if (!loss_is_due(buyer))
            break;
        if (!lose_reply(buyer))
            return PURCHASE_FAILED;
        buyer_note(buyer, TRACE_LOST, 0, 0);
    }
    redisReply *reply = client_next(&buyer->client);
    bool stale = reply != NULL && client_is_error(reply, "STALE");
    bool made = reply != NULL && reply->type == REDIS_REPLY_ARRAY;
    buyer_note_stale(buyer, tried || stale, stale);
    if (!made && !stale && (reply == NULL || !client_is_error(reply, "BUSY")))
        return buyer_failed(buyer, "EXEC", reply);
    if (made)
        note_sale(buyer, way, reply);
    freeReplyObject(reply);
    return made ? PURCHASE_MADE : PURCHASE_AGAIN;
}

enum purchase basket_buy(struct buyer *buyer, const struct basket_way *way)
{
    const struct basket *basket = buyer->own;
    enum purchase purchase = choose(buyer);

    if (purchase == PURCHASE_MADE)
        purchase = lock_lines(buyer, way);
    if (purchase != PURCHASE_MADE)
        return purchase;
    purchase = compute(buyer);
    if (purchase == PURCHASE_MADE) {
        buyer_work(buyer);
        /* A pause hurts most where the last pieces are at stake. */
        if (takes_the_last(basket))
            buyer_stop(buyer, buyer->sale->stops);
        purchase = commit(buyer, way);
    }
    if (purchase != PURCHASE_FAILED && !unlock_lines(buyer, way, basket->count))
        purchase = PURCHASE_FAILED;
    return purchase;
}
