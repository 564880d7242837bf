/* SPDX-License-Identifier: Apache-2.0 */
/* The contenders on plain Redis: no lock; the common Redis lock, without and with a watchdog; and
 * the two remedies that need no lock. Both of those are right here, and the text under the table
 * says so. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "tools/demo/oversell.h"
#include "tools/demo/redis_lock.h"

/* The stock as a plain string key. */

/* Also the lock, where there was one. */
bool oversell_stock_clear(struct buyer *referee)
{
    const char *key = referee->sale->key;

    return client_do(&referee->client, "DEL %s %s:lock", key, key);
}

/* Read the reply to a question for the stock, and free it. */
static bool stock_of(struct buyer *buyer, redisReply *reply, int64_t *stock)
{
    if (reply == NULL || !client_to_int64(reply, stock)) {
        (void)buyer_failed(buyer, "reading the stock", reply);
        return false;
    }
    freeReplyObject(reply);
    buyer_note(buyer, TRACE_READ, 0, *stock);
    return true;
}

/* PURCHASE_MADE: there is some. */
static enum purchase stock_read(struct buyer *buyer, int64_t *stock)
{
    if (!stock_of(buyer, client_call(&buyer->client, "GET %s", buyer->sale->key), stock))
        return PURCHASE_FAILED;
    return *stock > 0 ? PURCHASE_MADE : PURCHASE_SOLD_OUT;
}

bool oversell_stock_audit(struct buyer *referee, struct sale_result *result)
{
    int64_t left;

    return stock_read(referee, &left) != PURCHASE_FAILED && oversell_audit(referee, left, result);
}

static bool stock_write(struct buyer *buyer, int64_t stock)
{
    return client_do(&buyer->client, "SET %s %lld", buyer->sale->key, (long long)stock);
}

static const struct oversell_stock stock_in_key = {stock_read, stock_write};

bool oversell_stock_open(struct buyer *referee)
{
    return stock_write(referee, referee->sale->stock);
}

/* No lock: read, work, write. */

static enum purchase no_lock_buy(struct buyer *buyer)
{
    int64_t stock;
    enum purchase purchase = stock_read(buyer, &stock);

    if (purchase != PURCHASE_MADE)
        return purchase;
    int64_t read_us = clock_now_us(&clock_monotonic);
    oversell_work(buyer);
    buyer_note_stale(buyer, buyer_has_passed(buyer, 0, read_us), false);
    int64_t write_us = clock_now_us(&clock_monotonic);
    if (!stock_write(buyer, stock - 1))
        return PURCHASE_FAILED;
    buyer_passes(buyer, 0, write_us);
    return oversell_sold(buyer, stock - 1);
}

const struct contender contender_no_lock = {
    .name = "none",
    .title = "no lock",
    .open = oversell_stock_open,
    .audit = oversell_stock_audit,
    .clear = oversell_stock_clear,
    .buy = no_lock_buy,
};

/* The common Redis lock (redis_lock.h) around read, work and write. The second contender adds a
 * watchdog: a thread that renews the lock at each third of its TTL while it is held, as the
 * well-known libraries do. A stop stops the thread too, as a pause of the whole process does in
 * life. And as there, the holder does not learn that its lock is gone, and the result of the unlock
 * is not checked: the sale has been made by then. */

#define RENEW_SCRIPT                                                                               \
    "if redis.call('get', KEYS[1]) == ARGV[1] then "                                               \
    "return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0"

struct watchdog {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Guarded by the mutex: */
    bool ending;
    const char *value; /* of the lock that is held; NULL: none */
    /* The thread's own: */
    const struct sale *sale;
    struct client client;
};

static void watchdog_watch(struct watchdog *dog, const char *value)
{
    if (dog != NULL) {
        check(pthread_mutex_lock(&dog->mutex) == 0);
        dog->value = value;
        check(pthread_cond_signal(&dog->changed) == 0);
        check(pthread_mutex_unlock(&dog->mutex) == 0);
    }
}

static enum purchase redis_lock_buy(struct buyer *buyer)
{
    char value[REDIS_LOCK_VALUE_MAX];
    int64_t granted_us = 0;

    redis_lock_value(value);
    enum purchase purchase = redis_lock_take(buyer, 0, buyer->sale->key, value, &granted_us);
    if (purchase != PURCHASE_MADE)
        return purchase;
    watchdog_watch(buyer->own, value);
    purchase = oversell_under_lock(buyer, &stock_in_key, granted_us);
    watchdog_watch(buyer->own, NULL);
    if (purchase != PURCHASE_FAILED && !redis_lock_give(&buyer->client, buyer->sale->key, value))
        purchase = PURCHASE_FAILED;
    buyer_note(buyer, TRACE_UNLOCKED, 0, 0);
    return purchase;
}

/* Waits, with the mutex held, for a third of the TTL or for a change. True: time to renew. */
static bool watchdog_wait(struct watchdog *dog)
{
    struct timespec until;

    if (dog->value == NULL) {
        check(pthread_cond_wait(&dog->changed, &dog->mutex) == 0);
        return false;
    }
    int64_t third_ms = dog->sale->ttl_ms / 3;
    check(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    int64_t nanoseconds = until.tv_nsec + third_ms % 1000 * 1000000;
    until.tv_sec += third_ms / 1000 + nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    return pthread_cond_clockwait(&dog->changed, &dog->mutex, CLOCK_MONOTONIC, &until) != 0 &&
           dog->value != NULL;
}

static void *watchdog_run(void *context)
{
    struct watchdog *dog = context;

    check(pthread_mutex_lock(&dog->mutex) == 0);
    while (!dog->ending) {
        /* The script compares, so that renewing the next lock by mistake is harmless; the mutex is
         * kept meanwhile so that `value` stays. A lock that was lost is lost in silence. */
        if (watchdog_wait(dog) &&
            !client_do(&dog->client, "EVAL %s 1 %s:lock %s %lld", RENEW_SCRIPT, dog->sale->key,
                       dog->value, (long long)dog->sale->ttl_ms))
            break;
    }
    check(pthread_mutex_unlock(&dog->mutex) == 0);
    return NULL;
}

static bool watchdog_join(struct buyer *buyer)
{
    struct watchdog *dog = mem_zalloc(sizeof *dog);

    if (!client_open(&dog->client, buyer->server)) {
        buyer->client.failure = dog->client.failure;
        free(dog);
        return false;
    }
    dog->sale = buyer->sale;
    check(pthread_mutex_init(&dog->mutex, NULL) == 0);
    check(pthread_cond_init(&dog->changed, NULL) == 0);
    if (pthread_create(&dog->thread, NULL, watchdog_run, dog) != 0) {
        client_close(&dog->client);
        free(dog);
        return failure_set(&buyer->client.failure, "cannot start the watchdog's thread");
    }
    buyer->own = dog;
    return true;
}

static void watchdog_leave(struct buyer *buyer)
{
    struct watchdog *dog = buyer->own;

    check(pthread_mutex_lock(&dog->mutex) == 0);
    dog->ending = true;
    check(pthread_cond_signal(&dog->changed) == 0);
    check(pthread_mutex_unlock(&dog->mutex) == 0);
    check(pthread_join(dog->thread, NULL) == 0);
    client_close(&dog->client);
    check(pthread_cond_destroy(&dog->changed) == 0);
    check(pthread_mutex_destroy(&dog->mutex) == 0);
    free(dog);
}

const struct contender contender_redis_lock = {
    .name = "redis-lock",
    .title = "Redis lock",
    .open = oversell_stock_open,
    .audit = oversell_stock_audit,
    .clear = oversell_stock_clear,
    .buy = redis_lock_buy,
};

const struct contender contender_watchdog = {
    .name = "watchdog",
    .title = "Redis lock, watchdog",
    .join = watchdog_join,
    .leave = watchdog_leave,
    .open = oversell_stock_open,
    .audit = oversell_stock_audit,
    .clear = oversell_stock_clear,
    .buy = redis_lock_buy,
};

/* The two remedies without a lock.
 *
 * Conditional decrement: "sell one if there is one" as one script; nothing that was computed
 * between read and write is written. Version column: the stock is a hash with a version beside it.
 * A write names the version that it rests on, and fails where that has changed; then the buyer does
 * its work again. (Redis has no statement for it; the script does what UPDATE ... WHERE version = ?
 * does.) */

#define DECREMENT_SCRIPT                                                                           \
    "if tonumber(redis.call('get', KEYS[1])) > 0 then return redis.call('decr', KEYS[1]) end "     \
    "return -1"
#define COMPARE_AND_SET_SCRIPT                                                                     \
    "if redis.call('hget', KEYS[1], 'version') ~= ARGV[1] then return 0 end "                      \
    "redis.call('hset', KEYS[1], 'stock', ARGV[2]) "                                               \
    "redis.call('hincrby', KEYS[1], 'version', 1) return 1"

static enum purchase decrement_buy(struct buyer *buyer)
{
    int64_t left;
    /* The buyer sees the stock first, as on a shop's page, but does not compute with it. */
    enum purchase purchase = stock_read(buyer, &left);

    if (purchase != PURCHASE_MADE)
        return purchase;
    oversell_work(buyer);
    redisReply *reply =
        client_call(&buyer->client, "EVAL %s 1 %s", DECREMENT_SCRIPT, buyer->sale->key);
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER)
        return buyer_failed(buyer, "the decrement", reply);
    left = reply->integer;
    freeReplyObject(reply);
    return left < 0 ? PURCHASE_SOLD_OUT : oversell_sold(buyer, left);
}

static bool version_open(struct buyer *referee)
{
    return client_do(&referee->client, "HSET %s stock %lld version 1", referee->sale->key,
                     (long long)referee->sale->stock);
}

static bool version_audit(struct buyer *referee, struct sale_result *result)
{
    int64_t left;
    redisReply *reply = client_call(&referee->client, "HGET %s stock", referee->sale->key);

    return stock_of(referee, reply, &left) && oversell_audit(referee, left, result);
}

static enum purchase version_buy(struct buyer *buyer)
{
    struct client *client = &buyer->client;
    const char *key = buyer->sale->key;
    int64_t stock = 0, version = 0;
    redisReply *reply = client_call(client, "HMGET %s stock version", key);

    if (reply == NULL || reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        !client_to_int64(reply->element[0], &stock) ||
        !client_to_int64(reply->element[1], &version))
        return buyer_failed(buyer, "reading stock and version", reply);
    freeReplyObject(reply);
    buyer_note(buyer, TRACE_READ, 0, stock);
    if (stock <= 0)
        return PURCHASE_SOLD_OUT;
    oversell_work(buyer);
    reply = client_call(client, "EVAL %s 1 %s %lld %lld", COMPARE_AND_SET_SCRIPT, key,
                        (long long)version, (long long)(stock - 1));
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER)
        return buyer_failed(buyer, "the compare and set", reply);
    bool written = reply->integer == 1;
    freeReplyObject(reply);
    if (!written) {
        buyer_note_stale(buyer, true, true);
        return PURCHASE_AGAIN;
    }
    return oversell_sold(buyer, stock - 1);
}

const struct contender contender_decrement = {
    .name = "decrement",
    .title = "atomic decrement",
    .open = oversell_stock_open,
    .audit = oversell_stock_audit,
    .clear = oversell_stock_clear,
    .buy = decrement_buy,
};

const struct contender contender_version = {
    .name = "version",
    .title = "version column",
    .open = version_open,
    .audit = version_audit,
    .clear = oversell_stock_clear,
    .buy = version_buy,
};
