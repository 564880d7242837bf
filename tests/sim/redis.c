/* SPDX-License-Identifier: Apache-2.0 */
/* The service: locks and counters by name, and what each script does to them at once. */
#include "tests/sim/redis.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/token.h"
#include "tests/sim/redis_impl.h"

struct redis *redis_new(struct world *world, int number)
{
    struct redis *redis = mem_zalloc(sizeof *redis);

    redis->world = world;
    redis->number = number;
    redis->rate_per_mille = 1000;
    redis->rng = rng_of(world->plan->seed, 'r', (uint64_t)number);
    return redis;
}

void redis_free(struct redis *redis)
{
    free(redis);
}

/* Its own clock, in microseconds. */
static int64_t service_us(const struct redis *redis)
{
    return redis->clock_us +
           (redis->world->now_us - redis->clock_set_us) * redis->rate_per_mille / 1000;
}

void redis_set_rate(struct redis *redis, int64_t per_mille)
{
    redis->clock_us = service_us(redis);
    redis->clock_set_us = redis->world->now_us;
    redis->rate_per_mille = per_mille;
}

static struct redis_key *key_of(struct redis *redis, const char *name)
{
    int i = 0;

    while (i < redis->count && strcmp(redis->keys[i].name, name) != 0)
        i++;
    if (i == redis->count) {
        check(i < REDIS_KEYS_MAX);
        redis->count++;
        redis->keys[i] = redis->marked[i] = (struct redis_key){0};
        strcpy(redis->keys[i].name, name);
        strcpy(redis->marked[i].name, name);
    }
    if (redis->keys[i].until_us <= service_us(redis))
        redis->keys[i].token = 0;
    return &redis->keys[i];
}

static void lock(struct redis *redis, struct redis_key *key, const struct redis_ask *ask,
                 int64_t token)
{
    key->token = token;
    key->busy_us = redis->world->now_us;
    key->until_us = service_us(redis) + ask->ttl_ms * 1000;
    strcpy(key->nonce, ask->nonce);
}

/* As in the lock's value: whom it waits for before it is free; nobody: for its token. */

static void mark_only(struct redis_key *key, uint64_t attempt)
{
    memset(key->marks, 0, sizeof key->marks);
    key->marks[0] = attempt;
}

static bool has_marks(const struct redis_key *key)
{
    uint64_t any = 0;

    for (int i = 0; i < REDIS_MARKS_MAX; i++)
        any |= key->marks[i];
    return any != 0;
}

static void mark_too(struct redis_key *key, uint64_t attempt)
{
    for (int i = 0; has_marks(key) && i < REDIS_MARKS_MAX; i++)
        if (key->marks[i] == 0) {
            key->marks[i] = attempt;
            return;
        }
    mark_only(key, 0);
}

/* True: that was the last one. */
static bool unmark(struct redis_key *key, uint64_t attempt)
{
    bool found = false;

    for (int i = 0; i < REDIS_MARKS_MAX; i++)
        if (key->marks[i] == attempt) {
            key->marks[i] = 0;
            found = true;
        }
    return found && !has_marks(key);
}

static struct redis_answer held(struct redis *redis, const struct redis_key *key)
{
    int64_t left_ms = (key->until_us - service_us(redis)) / 1000;
    return (struct redis_answer){
        .answer = LEASE_HELD, .token = key->token, .ttl_ms = left_ms > 0 ? left_ms : 1};
}

static struct redis_answer grant(struct redis *redis, struct redis_key *key,
                                 const struct redis_ask *ask)
{
    bool mine = key->token != 0 && strcmp(key->nonce, ask->nonce) == 0;

    if (mine && key->token != ask->void_token) {
        if (key->until_us < service_us(redis) + ask->ttl_ms * 1000)
            lock(redis, key, ask, key->token);
        mark_too(key, ask->attempt);
        return (struct redis_answer){
            .answer = LEASE_OWN, .token = key->token, .ttl_ms = ask->ttl_ms};
    }
    if (key->token != 0 && !mine)
        return held(redis, key);
    if (ask->reentry_only)
        return (struct redis_answer){.answer = LEASE_FREE};
    key->counter = token_next(key->counter, ask->floor);
    lock(redis, key, ask, key->counter);
    mark_only(key, ask->attempt);
    return (struct redis_answer){
        .answer = LEASE_GRANTED, .token = key->counter, .ttl_ms = ask->ttl_ms};
}

/* Tells the other daemons. */
static void publish(struct redis *redis, const struct redis_ask *ask, int64_t token)
{
    for (int i = 0; i < redis->world->plan->daemons; i++)
        if (i != ask->daemon)
            redis_send_news(redis, i, ask, token);
}

struct redis_answer redis_execute(struct redis *redis, const struct redis_ask *ask)
{
    struct redis_key *key = key_of(redis, ask->name);
    bool mine = key->token != 0 && strcmp(key->nonce, ask->nonce) == 0;
    int64_t ended = key->token != 0 ? key->token : ask->token;

    switch (ask->verb) {
    case LEASE_GRANT: return grant(redis, key, ask);
    case LEASE_RENEW:
        if (key->token != 0 && !(mine && key->token == ask->token))
            return held(redis, key);
        lock(redis, key, ask, ask->token);
        mark_only(key, 0);
        return (struct redis_answer){
            .answer = LEASE_GRANTED, .token = ask->token, .ttl_ms = ask->ttl_ms};
    case LEASE_RELEASE:
        if (key->token != 0 && (!mine || (ask->token != 0 && ask->token != key->token)))
            return held(redis, key);
        if (key->token != 0 && ask->attempt != 0 && !unmark(key, ask->attempt))
            return held(redis, key);
        if (key->token != 0 || ask->revoked)
            publish(redis, ask, ended);
        key->token = 0;
        return (struct redis_answer){.answer = LEASE_FREE};
    case LEASE_QUERY: break;
    }
    return key->token != 0 ? held(redis, key) : (struct redis_answer){.answer = LEASE_FREE};
}

void redis_flush(struct redis *redis)
{
    for (int i = 0; i < redis->count; i++) {
        redis->keys[i].token = redis->keys[i].counter = 0;
        redis->keys[i].until_us = 0;
    }
}

void redis_mark(struct redis *redis)
{
    memcpy(redis->marked, redis->keys, sizeof redis->marked);
}

void redis_go_back(struct redis *redis)
{
    memcpy(redis->keys, redis->marked, sizeof redis->keys);
}

bool redis_is_down(const struct redis *redis)
{
    return redis->down;
}

int64_t redis_free_since_us(struct redis *redis, const char *name)
{
    struct redis_key *key = key_of(redis, name);

    if (key->token != 0)
        key->busy_us = redis->world->now_us;
    return key->token != 0 ? -1 : key->busy_us;
}
