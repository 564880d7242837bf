/* SPDX-License-Identifier: Apache-2.0 */
/* A buyer of baskets. It chooses, locks, reads, works, and commits until it has a reply. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "tools/demo/basket.h"

enum { DISCOUNT_FROM_CENTS = 5000, DISCOUNT_PERCENT = 10 };

const char *basket_key(const struct basket_sale *sale, const char *what, int sku,
                       char out[BASKET_KEY_MAX])
{
    (void)snprintf(out, BASKET_KEY_MAX, "%s:%s:%02d", sale->key, what, sku);
    return out;
}

int64_t basket_price(int sku)
{
    return 495 + 250 * sku;
}

bool basket_read(struct client *client, const struct basket_sale *sale, const char *what,
                 const int *skus, size_t count, int64_t *numbers)
{
    char keys[BASKET_SKUS_MAX][BASKET_KEY_MAX];
    const char *argv[BASKET_SKUS_MAX + 1] = {"MGET"};
    bool read;

    for (size_t i = 0; i < count; i++) {
        argv[i + 1] = basket_key(sale, what, skus[i], keys[i]);
    }
    check(redisAppendCommandArgv(client->context, (int)count + 1, argv, NULL) == REDIS_OK);
    redisReply *reply = client_next(client);
    read = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == count;
    for (size_t i = 0; i < count && read; i++) {
        read = client_to_int64(reply->element[i], &numbers[i]);
    }
    if (reply != NULL && !read) {
        (void)failure_set(&client->failure, "reading the stocks: the server said: %s",
                          client_text(reply));
    }
    freeReplyObject(reply);
    return read;
}

static uint64_t chance_below(uint64_t bound)
{
    uint64_t number;

    chance_system.fill(&chance_system, &number, sizeof number);
    return number % bound;
}

/* Choose some of the articles that are left, in the order in which everybody locks them. */
static enum purchase choose(struct basket_buyer *buyer)
{
    const struct basket_sale *sale = buyer->sale;
    int skus[BASKET_SKUS_MAX] = {0};
    int64_t stocks[BASKET_SKUS_MAX] = {0};
    size_t there = 0, wanted = (size_t)sale->lines;

    for (int sku = 0; sku < (int)sale->skus; sku++) {
        skus[sku] = sku;
    }
    if (!basket_read(&buyer->client, sale, "stock", skus, (size_t)sale->skus, stocks)) {
        return PURCHASE_FAILED;
    }
    for (int sku = 0; sku < (int)sale->skus; sku++) {
        if (stocks[sku] > 0) {
            skus[there++] = sku;
        }
    }
    if (there < wanted) {
        return PURCHASE_SOLD_OUT;
    }
    buyer->count = 0;
    for (size_t i = 0; i < there; i++) { /* each subset is as likely as any other */
        if (chance_below(there - i) < wanted - buyer->count) {
            buyer->lines[buyer->count++] = (struct basket_line){.sku = skus[i]};
        }
    }
    buyer->order++;
    return PURCHASE_MADE;
}

static bool unlock_lines(struct basket_buyer *buyer, size_t count)
{
    bool unlocked = true;

    for (size_t i = 0; i < count && unlocked; i++) {
        unlocked = buyer->contender->unlock(buyer, &buyer->lines[i]);
    }
    return unlocked;
}

/* Lock all lines, or give back what was locked. */
static enum purchase lock_lines(struct basket_buyer *buyer)
{
    for (size_t i = 0; i < buyer->count; i++) {
        enum purchase purchase = buyer->contender->lock(buyer, &buyer->lines[i]);
        if (purchase != PURCHASE_MADE) {
            bool given = purchase == PURCHASE_FAILED || unlock_lines(buyer, i);
            return given ? purchase : PURCHASE_FAILED;
        }
    }
    return PURCHASE_MADE;
}

/* Read stocks and prices under the locks, and compute. PURCHASE_AGAIN: an article is gone. */
static enum purchase compute(struct basket_buyer *buyer)
{
    int skus[BASKET_LINES_MAX] = {0};
    int64_t stocks[BASKET_LINES_MAX] = {0}, prices[BASKET_LINES_MAX] = {0}, total = 0;

    for (size_t i = 0; i < buyer->count; i++) {
        skus[i] = buyer->lines[i].sku;
    }
    if (!basket_read(&buyer->client, buyer->sale, "stock", skus, buyer->count, stocks) ||
        !basket_read(&buyer->client, buyer->sale, "price", skus, buyer->count, prices)) {
        return PURCHASE_FAILED;
    }
    for (size_t i = 0; i < buyer->count; i++) {
        struct basket_line *line = &buyer->lines[i];
        int64_t wish = 1 + (int64_t)chance_below(2);
        if (stocks[i] < 1) {
            return PURCHASE_AGAIN;
        }
        line->stock = stocks[i];
        line->quantity = wish < stocks[i] ? wish : stocks[i];
        total += line->quantity * prices[i];
    }
    for (size_t i = 0; i < buyer->count; i++) {
        int64_t percent = total >= DISCOUNT_FROM_CENTS ? 100 - DISCOUNT_PERCENT : 100;
        buyer->lines[i].price = prices[i] * percent / 100;
    }
    return PURCHASE_MADE;
}

static bool takes_the_last(const struct basket_buyer *buyer)
{
    for (size_t i = 0; i < buyer->count; i++) {
        if (buyer->lines[i].quantity == buyer->lines[i].stock) {
            return true;
        }
    }
    return false;
}

/* Count one more of at most `max`, which all buyers share. */
static bool count_one(_Atomic int64_t *counter, int64_t max)
{
    int64_t count = atomic_load(counter);

    while (count < max) {
        if (atomic_compare_exchange_weak(counter, &count, count + 1)) {
            return true;
        }
    }
    return false;
}

/* Spend the delay between read and write. A pause hurts most where the last pieces are at stake: a
 * buyer that is about to take them stops here, until the referee continues it. */
static void work(struct basket_buyer *buyer)
{
    demo_work(buyer->sale->work_ms);
    if (takes_the_last(buyer) && count_one(&buyer->ledger->stops, buyer->sale->stops)) {
        (void)raise(SIGSTOP);
    }
}

/* Losses are spread over the sale, which may leave some pieces unsold: the i-th of n is due when
 * i/(n+2) of them are sold. */
static bool loss_is_due(const struct basket_buyer *buyer)
{
    const struct basket_sale *sale = buyer->sale;
    int64_t losses = atomic_load(&buyer->ledger->losses);

    return losses < sale->losses &&
           atomic_load(&buyer->ledger->pieces) * (sale->losses + 2) >=
               (losses + 1) * sale->skus * sale->stock &&
           count_one(&buyer->ledger->losses, losses + 1);
}

/* Send what was appended, wait until the reply is there, and break the connection unread: the
 * transaction was applied, and we do not know. Then connect anew. */
static bool lose_reply(struct basket_buyer *buyer)
{
    redisContext *context = buyer->client.context;
    struct pollfd polled = {.fd = context->fd, .events = POLLIN};
    int done = 0;

    while (!done) {
        if (redisBufferWrite(context, &done) != REDIS_OK) {
            return failure_set(&buyer->client.failure, "sending: %s", context->errstr);
        }
    }
    if (poll(&polled, 1, CLIENT_LIMIT_MS) != 1) {
        return failure_set(&buyer->client.failure, "no answer in time");
    }
    client_close(&buyer->client);
    return client_open(&buyer->client, buyer->server) &&
           client_limit(&buyer->client, 2 * CLIENT_LIMIT_MS);
}

/* Send MULTI and what goes into it. */
static bool queue(struct basket_buyer *buyer)
{
    struct client *client = &buyer->client;

    client_append(client, "MULTI");
    int count = 1 + buyer->contender->queue(buyer);
    bool good = true;
    for (int i = 0; i < count; i++) {
        redisReply *reply = client_next(client);
        if (reply == NULL) {
            return false;
        }
        if (reply->type != REDIS_REPLY_STATUS) {
            good =
                failure_set(&client->failure, "queueing: the server said: %s", client_text(reply));
        }
        freeReplyObject(reply);
    }
    return good;
}

static bool has_passed(const struct basket_buyer *buyer)
{
    for (size_t i = 0; i < buyer->count; i++) {
        const struct basket_line *line = &buyer->lines[i];
        if (atomic_load(&buyer->ledger->newest[line->sku]) > line->mark) {
            return true;
        }
    }
    return false;
}

static void note_sale(struct basket_buyer *buyer)
{
    struct basket_ledger *ledger = buyer->ledger;

    for (size_t i = 0; i < buyer->count; i++) {
        atomic_fetch_add(&ledger->sold[buyer->lines[i].sku], buyer->lines[i].quantity);
        atomic_fetch_add(&ledger->pieces, buyer->lines[i].quantity);
    }
    atomic_fetch_add(&ledger->baskets, 1);
    atomic_store(&ledger->last_sale_ms, clock_now_ms(&clock_monotonic));
}

/* Send the transaction, and send it again where its reply was lost, as clients do that retry. */
static enum purchase commit(struct basket_buyer *buyer)
{
    struct basket_ledger *ledger = buyer->ledger;
    bool tried = has_passed(buyer);

    for (;;) {
        if (!queue(buyer)) {
            return PURCHASE_FAILED;
        }
        client_append(&buyer->client, "EXEC");
        if (!loss_is_due(buyer)) {
            break;
        }
        if (!lose_reply(buyer)) {
            return PURCHASE_FAILED;
        }
    }
    redisReply *reply = client_next(&buyer->client);
    enum purchase purchase = PURCHASE_FAILED;
    bool stale = reply != NULL && client_is_error(reply, "STALE");
    if (reply != NULL && reply->type == REDIS_REPLY_ARRAY) {
        purchase = PURCHASE_MADE;
        note_sale(buyer);
    } else if (stale || (reply != NULL && client_is_error(reply, "BUSY"))) {
        purchase = PURCHASE_AGAIN;
    } else if (reply != NULL) {
        (void)failure_set(&buyer->client.failure, "EXEC: the server said: %s", client_text(reply));
    }
    atomic_fetch_add(&ledger->stale_tried, tried || stale ? 1 : 0);
    atomic_fetch_add(&ledger->stale_refused, stale ? 1 : 0);
    freeReplyObject(reply);
    return purchase;
}

enum purchase basket_buy(struct basket_buyer *buyer)
{
    enum purchase purchase = choose(buyer);

    if (purchase == PURCHASE_MADE) {
        purchase = lock_lines(buyer);
    }
    if (purchase != PURCHASE_MADE) {
        return purchase;
    }
    purchase = compute(buyer);
    if (purchase == PURCHASE_MADE) {
        work(buyer);
        purchase = commit(buyer);
    }
    if (purchase != PURCHASE_FAILED && !unlock_lines(buyer, buyer->count)) {
        purchase = PURCHASE_FAILED;
    }
    return purchase;
}
