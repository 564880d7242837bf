/* SPDX-License-Identifier: Apache-2.0 */
/* The service: locks by name, on a clock of its own. */
#include "tests/sim/redis.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
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
    redis_lock_expire(&redis->keys[i].lock, service_us(redis));
    return &redis->keys[i];
}

struct redis_answer redis_execute(struct redis *redis, const struct redis_ask *ask)
{
    struct redis_key *key = key_of(redis, ask->name);
    struct redis_answer answer = redis_lock_ask(&key->lock, &ask->call, service_us(redis));

    if (answer.answer == LEASE_GRANTED || answer.answer == LEASE_OWN)
        key->busy_us = redis->world->now_us;
    for (int i = 0; answer.ended != 0 && i < redis->world->plan->daemons; i++)
        if (i != ask->daemon)
            redis_send_news(redis, i, ask, answer.ended);
    return answer;
}

void redis_flush(struct redis *redis)
{
    for (int i = 0; i < redis->count; i++)
        redis->keys[i].lock = (struct redis_lock){0};
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

    if (key->lock.token != 0)
        key->busy_us = redis->world->now_us;
    return key->lock.token != 0 ? -1 : key->busy_us;
}
