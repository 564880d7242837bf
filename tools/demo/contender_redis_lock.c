/* SPDX-License-Identifier: Apache-2.0 */
/* The common Redis lock (redis_lock.h) around read, work and write. The second contender adds a
 * watchdog: a thread that renews the lock at each third of its TTL while it is held, as the
 * well-known libraries do. A stop stops the thread too, as a pause of the whole process does in
 * life. And as there, the holder is not told when its lock is gone, nor is the result of the unlock
 * looked at: the sale has been made by then. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tools/demo/contender.h"
#include "tools/demo/redis_lock.h"

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

/* PURCHASE_MADE: the lock is ours, since `granted_us` at the latest. */
static enum purchase lock_take(struct buyer *buyer, const char *value, int64_t *granted_us)
{
    const struct sale *sale = buyer->sale;

    while (!buyer_is_late(buyer)) {
        int64_t asked_us = ledger_now_us();
        bool taken;
        if (!redis_lock_try(&buyer->client, sale->key, value, sale->ttl_ms, &taken)) {
            return buyer_failed(buyer, "taking the lock", NULL);
        }
        if (taken) {
            *granted_us = ledger_now_us();
            ledger_passes(buyer->ledger, asked_us);
            return PURCHASE_MADE;
        }
        redis_lock_pause();
    }
    return PURCHASE_AGAIN;
}

/* What is done under the lock. */
static enum purchase locked_sale(struct buyer *buyer, int64_t granted_us)
{
    int64_t stock = 0;

    if (!stock_read(&buyer->client, buyer->sale->key, &stock)) {
        return PURCHASE_FAILED;
    }
    if (stock <= 0) {
        return PURCHASE_SOLD_OUT;
    }
    buyer_work(buyer);
    buyer_note_stale(buyer, ledger_has_passed(buyer->ledger, granted_us), false);
    if (!client_do(&buyer->client, "SET %s %lld", buyer->sale->key, (long long)(stock - 1))) {
        return PURCHASE_FAILED;
    }
    buyer_sold(buyer, stock - 1);
    return PURCHASE_MADE;
}

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
    enum purchase purchase = lock_take(buyer, value, &granted_us);
    if (purchase != PURCHASE_MADE) {
        return purchase;
    }
    watchdog_watch(buyer->own, value);
    purchase = locked_sale(buyer, granted_us);
    watchdog_watch(buyer->own, NULL);
    if (purchase != PURCHASE_FAILED && !redis_lock_give(&buyer->client, buyer->sale->key, value)) {
        purchase = PURCHASE_FAILED;
    }
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
    return pthread_cond_timedwait(&dog->changed, &dog->mutex, &until) != 0 && dog->value != NULL;
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
                       dog->value, (long long)dog->sale->ttl_ms)) {
            break;
        }
    }
    check(pthread_mutex_unlock(&dog->mutex) == 0);
    return NULL;
}

static bool watchdog_open(struct buyer *buyer)
{
    struct watchdog *dog = mem_zalloc(sizeof *dog);
    pthread_condattr_t attributes;

    if (!client_open(&dog->client, buyer->server)) {
        buyer->client.failure = dog->client.failure;
        free(dog);
        return false;
    }
    dog->sale = buyer->sale;
    check(pthread_mutex_init(&dog->mutex, NULL) == 0);
    check(pthread_condattr_init(&attributes) == 0);
    check(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    check(pthread_cond_init(&dog->changed, &attributes) == 0);
    check(pthread_condattr_destroy(&attributes) == 0);
    if (pthread_create(&dog->thread, NULL, watchdog_run, dog) != 0) {
        client_close(&dog->client);
        free(dog);
        return failure_set(&buyer->client.failure, "cannot start the watchdog's thread");
    }
    buyer->own = dog;
    return true;
}

static void watchdog_close(struct buyer *buyer)
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
    buyer->own = NULL;
}

static bool redis_lock_clear(struct client *client, const struct sale *sale)
{
    return stock_clear(client, sale) && client_do(client, "DEL %s:lock", sale->key);
}

const struct contender contender_redis_lock = {
    .name = "redis-lock",
    .title = "Redis lock",
    .stock = stock_set,
    .left = stock_left,
    .clear = redis_lock_clear,
    .buy = redis_lock_buy,
};

const struct contender contender_watchdog = {
    .name = "watchdog",
    .title = "Redis lock, watchdog",
    .stock = stock_set,
    .left = stock_left,
    .clear = redis_lock_clear,
    .open = watchdog_open,
    .buy = redis_lock_buy,
    .close = watchdog_close,
};
