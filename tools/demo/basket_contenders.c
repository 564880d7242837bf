/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to sell a basket. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "tools/demo/basket.h"
#include "tools/demo/redis_lock.h"
#include "tools/lease.h"

/* Plain Redis, as people write it: a lock for each article, MULTI, a DECRBY for each, the order's
 * rows into a list, EXEC. The transaction is whole; nothing ties it to the locks. */

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
        int64_t asked_us = demo_now_us();
        bool taken;
        if (!redis_lock_try(&buyer->client, key, buyer->lock_value, buyer->sale->ttl_ms, &taken)) {
            return PURCHASE_FAILED;
        }
        if (taken) {
            line->mark = demo_now_us();
            demo_raise(&buyer->ledger->newest[line->sku], asked_us);
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

/* Stockade: a lease for each article, MULTI, a FENCED DECRBY for each, the order's rows in SQL with
 * FENCEDALL, EXEC; with an ID, so that the transaction can be sent again. */

enum {
    WAIT_MS = 2000,
    /* FENCEDALL n, a resource and token each; SQL TYPES types statement, four values each. */
    WORDS_MAX = 6 + 6 * BASKET_LINES_MAX,
    WORD_MAX = 256,
};

/* A command in the making. */
struct words {
    int count;
    const char *argv[WORDS_MAX];
    char text[WORDS_MAX][WORD_MAX];
};

__attribute__((format(printf, 2, 3))) static void add(struct words *words, const char *format, ...)
{
    va_list args;

    check(words->count < WORDS_MAX);
    char *text = words->text[words->count];
    va_start(args, format);
    check(vsnprintf(text, WORD_MAX, format, args) < WORD_MAX);
    va_end(args);
    words->argv[words->count++] = text;
}

static bool stockade_open(struct client *client, const struct basket_sale *sale)
{
    char key[BASKET_KEY_MAX], number[32];
    bool opened = client_do(client, "SQL %s%s%s", "CREATE TABLE ", sale->table,
                            "(order_id INTEGER, sku INTEGER, quantity INTEGER, price INTEGER)");

    for (int sku = 0; sku < (int)sale->skus && opened; sku++) {
        (void)snprintf(number, sizeof number, "%" PRId64, sale->stock);
        opened = lease_write(client, "SET", basket_key(sale, "stock", sku, key), number);
        (void)snprintf(number, sizeof number, "%" PRId64, basket_price(sku));
        opened = opened && lease_write(client, "SET", basket_key(sale, "price", sku, key), number);
    }
    return opened;
}

/* The rows of SQL's reply: a map, which RESP2 writes as a list of names and values. */
static const redisReply *rows_of(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY) {
        return NULL;
    }
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *value = reply->element[i + 1];
        if (reply->element[i]->type == REDIS_REPLY_STRING &&
            strcmp(reply->element[i]->str, "rows") == 0 && value->type == REDIS_REPLY_ARRAY) {
            return value;
        }
    }
    return NULL;
}

static bool stockade_orders(struct client *client, const struct basket_sale *sale,
                            basket_each_row *each, void *context)
{
    redisReply *reply =
        client_call(client, "SQL %s%s", "SELECT order_id, sku, quantity FROM ", sale->table);
    const redisReply *rows = reply != NULL ? rows_of(reply) : NULL;
    bool read = rows != NULL;

    for (size_t i = 0; read && i < rows->elements; i++) {
        const redisReply *row = rows->element[i];
        int64_t order, sku, quantity;
        read = row->type == REDIS_REPLY_ARRAY && row->elements == 3 &&
               client_to_int64(row->element[0], &order) && client_to_int64(row->element[1], &sku) &&
               client_to_int64(row->element[2], &quantity);
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

static bool stockade_clear(struct client *client, const struct basket_sale *sale)
{
    char key[BASKET_KEY_MAX];
    bool cleared = client_do(client, "SQL %s%s", "DROP TABLE ", sale->table);

    for (int sku = 0; sku < (int)sale->skus && cleared; sku++) {
        cleared = lease_write(client, "DEL", basket_key(sale, "stock", sku, key), NULL) &&
                  lease_write(client, "DEL", basket_key(sale, "price", sku, key), NULL);
    }
    return cleared;
}

static enum purchase stockade_lock(struct basket_buyer *buyer, struct basket_line *line)
{
    char key[BASKET_KEY_MAX];
    struct lease lease = {.token = 0};
    redisReply *reply = client_call(&buyer->client, "ACQUIRE %s %lld WAIT %d",
                                    basket_key(buyer->sale, "stock", line->sku, key),
                                    (long long)buyer->sale->ttl_ms, (int)WAIT_MS);

    if (reply == NULL) {
        return PURCHASE_FAILED;
    }
    enum acquire_reply answer = lease_of(reply, &lease);
    bool failed = answer == ACQUIRE_REFUSED && !client_is_error(reply, "BUSY");
    if (failed) {
        (void)failure_set(&buyer->client.failure, "acquiring: the server said: %s",
                          client_text(reply));
    }
    freeReplyObject(reply);
    if (answer != ACQUIRE_GRANTED) {
        return failed ? PURCHASE_FAILED : PURCHASE_AGAIN;
    }
    line->mark = lease.token;
    demo_raise(&buyer->ledger->newest[line->sku], lease.token);
    return PURCHASE_MADE;
}

static bool stockade_unlock(struct basket_buyer *buyer, const struct basket_line *line)
{
    char key[BASKET_KEY_MAX];
    redisReply *reply =
        client_call(&buyer->client, "RELEASE %s %lld",
                    basket_key(buyer->sale, "stock", line->sku, key), (long long)line->mark);
    bool good = lease_released(reply);

    if (reply != NULL && !good) {
        (void)failure_set(&buyer->client.failure, "releasing: the server said: %s",
                          client_text(reply));
    }
    freeReplyObject(reply);
    return good;
}

/* INSERT INTO orders VALUES(?,?,?,?),... with the tokens of all lines. */
static void append_order(struct basket_buyer *buyer)
{
    const struct basket_sale *sale = buyer->sale;
    struct words words = {.count = 0};
    char key[BASKET_KEY_MAX], types[4 * BASKET_LINES_MAX + 1] = "";
    char values[10 * BASKET_LINES_MAX + 1] = "";

    add(&words, "FENCEDALL");
    add(&words, "%zu", buyer->count);
    for (size_t i = 0; i < buyer->count; i++) {
        add(&words, "%s", basket_key(sale, "stock", buyer->lines[i].sku, key));
        add(&words, "%" PRId64, buyer->lines[i].mark);
        (void)strcat(types, "iiii");
        (void)strcat(values, i == 0 ? "(?,?,?,?)" : ",(?,?,?,?)");
    }
    add(&words, "SQL");
    add(&words, "TYPES");
    add(&words, "%s", types);
    add(&words, "INSERT INTO %s VALUES%s", sale->table, values);
    for (size_t i = 0; i < buyer->count; i++) {
        add(&words, "%" PRId64, buyer->order);
        add(&words, "%d", buyer->lines[i].sku);
        add(&words, "%" PRId64, buyer->lines[i].quantity);
        add(&words, "%" PRId64, buyer->lines[i].price);
    }
    check(redisAppendCommandArgv(buyer->client.context, words.count, words.argv, NULL) == REDIS_OK);
}

static int stockade_queue(struct basket_buyer *buyer)
{
    char key[BASKET_KEY_MAX];

    for (size_t i = 0; i < buyer->count; i++) {
        const struct basket_line *line = &buyer->lines[i];
        (void)basket_key(buyer->sale, "stock", line->sku, key);
        /* The ID on one command is the whole transaction's. */
        if (i == 0) {
            client_append(&buyer->client, "FENCED %lld ID order:%lld DECRBY %s %lld MIN 0",
                          (long long)line->mark, (long long)buyer->order, key,
                          (long long)line->quantity);
        } else {
            client_append(&buyer->client, "FENCED %lld DECRBY %s %lld MIN 0", (long long)line->mark,
                          key, (long long)line->quantity);
        }
    }
    append_order(buyer);
    return (int)buyer->count + 1;
}

const struct basket_contender basket_stockade = {
    .name = "stockade",
    .title = "Stockade",
    .uses_stockade = true,
    .open = stockade_open,
    .orders = stockade_orders,
    .clear = stockade_clear,
    .lock = stockade_lock,
    .unlock = stockade_unlock,
    .queue = stockade_queue,
};
