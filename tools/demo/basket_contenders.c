/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to sell a basket. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "tools/demo/basket.h"
#include "tools/demo/redis_lock.h"

/* `reply`: to the question for the orders. Free it and the rows. */
static bool audit(struct buyer *referee, redisReply *reply, bool read, struct basket_rows *rows,
                  struct sale_result *result)
{
    if (!read) {
        free(rows->list);
        (void)buyer_failed(referee, "reading the orders", reply);
        return false;
    }
    freeReplyObject(reply);
    return basket_audit(referee, rows, result);
}

/* Plain Redis, as people write it: a lock for each article, MULTI, a DECRBY for each, the order's
 * rows into a list, EXEC. The transaction is whole; nothing ties it to the locks. */

static bool redis_open(struct buyer *referee)
{
    struct client *client = &referee->client;
    const struct sale *sale = referee->sale;
    char stock[BASKET_KEY_MAX], price[BASKET_KEY_MAX];
    bool opened = true;

    for (int sku = 0; sku < (int)sale->skus && opened; sku++)
        opened = client_do(client, "MSET %s %lld %s %lld", basket_key(sale, "stock", sku, stock),
                           (long long)sale->stock, basket_key(sale, "price", sku, price),
                           (long long)basket_price(sku));
    return opened;
}

static bool redis_audit(struct buyer *referee, struct sale_result *result)
{
    struct basket_rows rows = {.list = NULL};
    redisReply *reply = client_call(&referee->client, "LRANGE %s:orders 0 -1", referee->sale->key);
    bool read = reply != NULL && reply->type == REDIS_REPLY_ARRAY;

    for (size_t i = 0; read && i < reply->elements; i++) {
        struct basket_row row = {0};
        read = sscanf(reply->element[i]->str, "%" SCNd64 " %" SCNd64 " %" SCNd64, &row.order,
                      &row.sku, &row.quantity) == 3;
        basket_rows_add(&rows, row);
    }
    return audit(referee, reply, read, &rows, result);
}

static bool redis_clear(struct buyer *referee)
{
    struct client *client = &referee->client;
    const struct sale *sale = referee->sale;
    char stock[BASKET_KEY_MAX], price[BASKET_KEY_MAX];
    bool cleared = client_do(client, "DEL %s:orders", sale->key);

    for (int sku = 0; sku < (int)sale->skus && cleared; sku++) {
        (void)basket_key(sale, "stock", sku, stock);
        cleared = client_do(client, "DEL %s %s %s:lock", stock,
                            basket_key(sale, "price", sku, price), stock);
    }
    return cleared;
}

static enum purchase redis_lock(struct buyer *buyer, struct basket_line *line)
{
    struct basket *basket = buyer->own;
    char key[BASKET_KEY_MAX];

    if (basket->lock_value[0] == '\0')
        redis_lock_value(basket->lock_value); /* of this buyer, which holds one set at a time */
    return redis_lock_take(buyer, line->sku, basket_key(buyer->sale, "stock", line->sku, key),
                           basket->lock_value, &line->mark);
}

static bool redis_unlock(struct buyer *buyer, const struct basket_line *line)
{
    const struct basket *basket = buyer->own;
    char key[BASKET_KEY_MAX];

    return redis_lock_give(&buyer->client, basket_key(buyer->sale, "stock", line->sku, key),
                           basket->lock_value);
}

static int redis_queue(struct buyer *buyer)
{
    const struct basket *basket = buyer->own;
    char key[BASKET_KEY_MAX];

    for (size_t i = 0; i < basket->count; i++) {
        const struct basket_line *line = &basket->lines[i];
        client_append(&buyer->client, "DECRBY %s %lld",
                      basket_key(buyer->sale, "stock", line->sku, key), (long long)line->quantity);
        client_append(&buyer->client, "RPUSH %s:orders %b", buyer->sale->key, key,
                      (size_t)snprintf(key, sizeof key, "%" PRId64 " %d %" PRId64 " %" PRId64,
                                       basket->order, line->sku, line->quantity, line->price));
    }
    return 2 * (int)basket->count;
}

static enum purchase redis_buy(struct buyer *buyer)
{
    static const struct basket_way way = {redis_lock, redis_unlock, redis_queue, 2};

    return basket_buy(buyer, &way);
}

const struct contender basket_redis_locks = {
    .name = "redis-locks",
    .title = "Redis locks",
    .join = basket_join,
    .leave = basket_leave,
    .open = redis_open,
    .audit = redis_audit,
    .clear = redis_clear,
    .buy = redis_buy,
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

static bool stockade_open(struct buyer *referee)
{
    struct client *client = &referee->client;
    const struct sale *sale = referee->sale;
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
    if (reply->type != REDIS_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *value = reply->element[i + 1];
        if (reply->element[i]->type == REDIS_REPLY_STRING &&
            strcmp(reply->element[i]->str, "rows") == 0 && value->type == REDIS_REPLY_ARRAY)
            return value;
    }
    return NULL;
}

static bool stockade_audit(struct buyer *referee, struct sale_result *result)
{
    struct basket_rows rows = {.list = NULL};
    redisReply *reply = client_call(&referee->client, "SQL %s%s",
                                    "SELECT order_id, sku, quantity FROM ", referee->sale->table);
    const redisReply *list = reply != NULL ? rows_of(reply) : NULL;
    bool read = list != NULL;

    for (size_t i = 0; read && i < list->elements; i++) {
        const redisReply *columns = list->element[i];
        struct basket_row row = {0};
        read = columns->type == REDIS_REPLY_ARRAY && columns->elements == 3 &&
               client_to_int64(columns->element[0], &row.order) &&
               client_to_int64(columns->element[1], &row.sku) &&
               client_to_int64(columns->element[2], &row.quantity);
        basket_rows_add(&rows, row);
    }
    return audit(referee, reply, read, &rows, result);
}

static bool stockade_clear(struct buyer *referee)
{
    struct client *client = &referee->client;
    const struct sale *sale = referee->sale;
    char key[BASKET_KEY_MAX];
    bool cleared = client_do(client, "SQL %s%s", "DROP TABLE ", sale->table);

    for (int sku = 0; sku < (int)sale->skus && cleared; sku++)
        cleared = lease_write(client, "DEL", basket_key(sale, "stock", sku, key), NULL) &&
                  lease_write(client, "DEL", basket_key(sale, "price", sku, key), NULL);
    return cleared;
}

static enum purchase stockade_lock(struct buyer *buyer, struct basket_line *line)
{
    char key[BASKET_KEY_MAX];
    struct lease lease = {.token = 0};
    redisReply *reply = client_call(&buyer->client, "ACQUIRE %s %lld WAIT %d",
                                    basket_key(buyer->sale, "stock", line->sku, key),
                                    (long long)buyer->sale->ttl_ms, (int)WAIT_MS);
    enum acquire_reply answer = reply != NULL ? lease_of(reply, &lease) : ACQUIRE_REFUSED;

    if (answer == ACQUIRE_REFUSED && (reply == NULL || !client_is_error(reply, "BUSY")))
        return buyer_failed(buyer, "acquiring", reply);
    freeReplyObject(reply);
    if (answer != ACQUIRE_GRANTED)
        return PURCHASE_AGAIN;
    line->mark = lease.token;
    buyer_passes(buyer, line->sku, lease.token);
    buyer_note(buyer, TRACE_LOCKED, line->sku, lease.token);
    return PURCHASE_MADE;
}

static bool stockade_unlock(struct buyer *buyer, const struct basket_line *line)
{
    char key[BASKET_KEY_MAX];
    redisReply *reply =
        client_call(&buyer->client, "RELEASE %s %lld",
                    basket_key(buyer->sale, "stock", line->sku, key), (long long)line->mark);

    if (!lease_released(reply)) {
        (void)buyer_failed(buyer, "releasing", reply);
        return false;
    }
    freeReplyObject(reply);
    return true;
}

/* INSERT INTO orders VALUES(?,?,?,?),... with the tokens of all lines. */
static void append_order(struct buyer *buyer)
{
    const struct basket *basket = buyer->own;
    const struct sale *sale = buyer->sale;
    struct words words = {.count = 0};
    char key[BASKET_KEY_MAX], types[4 * BASKET_LINES_MAX + 1] = "";
    char values[10 * BASKET_LINES_MAX + 1] = "";

    add(&words, "FENCEDALL");
    add(&words, "%zu", basket->count);
    for (size_t i = 0; i < basket->count; i++) {
        add(&words, "%s", basket_key(sale, "stock", basket->lines[i].sku, key));
        add(&words, "%" PRId64, basket->lines[i].mark);
        (void)strcat(types, "iiii");
        (void)strcat(values, i == 0 ? "(?,?,?,?)" : ",(?,?,?,?)");
    }
    add(&words, "SQL");
    add(&words, "TYPES");
    add(&words, "%s", types);
    add(&words, "INSERT INTO %s VALUES%s", sale->table, values);
    for (size_t i = 0; i < basket->count; i++) {
        add(&words, "%" PRId64, basket->order);
        add(&words, "%d", basket->lines[i].sku);
        add(&words, "%" PRId64, basket->lines[i].quantity);
        add(&words, "%" PRId64, basket->lines[i].price);
    }
    check(redisAppendCommandArgv(buyer->client.context, words.count, words.argv, NULL) == REDIS_OK);
}

static int stockade_queue(struct buyer *buyer)
{
    const struct basket *basket = buyer->own;
    char key[BASKET_KEY_MAX];

    for (size_t i = 0; i < basket->count; i++) {
        const struct basket_line *line = &basket->lines[i];
        (void)basket_key(buyer->sale, "stock", line->sku, key);
        /* The ID on one command is the whole transaction's. */
        if (i == 0)
            client_append(&buyer->client, "FENCED %lld ID order:%lld DECRBY %s %lld MIN 0",
                          (long long)line->mark, (long long)basket->order, key,
                          (long long)line->quantity);
        else
            client_append(&buyer->client, "FENCED %lld DECRBY %s %lld MIN 0", (long long)line->mark,
                          key, (long long)line->quantity);
    }
    append_order(buyer);
    return (int)basket->count + 1;
}

static enum purchase stockade_buy(struct buyer *buyer)
{
    static const struct basket_way way = {stockade_lock, stockade_unlock, stockade_queue, 1};

    return basket_buy(buyer, &way);
}

const struct contender basket_stockade = {
    .name = "stockade",
    .title = "Stockade",
    .uses_stockade = true,
    .join = basket_join,
    .leave = basket_leave,
    .open = stockade_open,
    .audit = stockade_audit,
    .clear = stockade_clear,
    .buy = stockade_buy,
};
