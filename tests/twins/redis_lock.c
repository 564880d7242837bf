/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/twins/redis_lock.h"

#include <string.h>

#include "fence/token.h"

void redis_lock_expire(struct redis_lock *lock, int64_t now_us)
{
    if (lock->until_us <= now_us)
        lock->token = 0;
}

static void set(struct redis_lock *lock, const struct lease_call *call, int64_t token,
                int64_t now_us)
{
    lock->token = token;
    lock->until_us = now_us + call->ttl_ms * 1000;
    memcpy(lock->nonce, call->nonce, sizeof lock->nonce);
}

static struct redis_answer held(const struct redis_lock *lock, int64_t now_us)
{
    int64_t left_ms = (lock->until_us - now_us) / 1000;
    return (struct redis_answer){LEASE_HELD, lock->token, left_ms > 0 ? left_ms : 1, 0};
}

static void enter(struct redis_lock *lock, uint64_t attempt)
{
    if (lock->attempts_count == REDIS_ATTEMPTS_MAX)
        lock->attempts_count = 0;
    else if (lock->attempts_count > 0)
        lock->attempts[lock->attempts_count++] = attempt;
}

/* Does nobody else keep the lock? A message that came twice has entered twice. */
static bool give_up(struct redis_lock *lock, uint64_t attempt)
{
    size_t kept = 0;

    for (size_t i = 0; i < lock->attempts_count; i++)
        if (lock->attempts[i] != attempt)
            lock->attempts[kept++] = lock->attempts[i];
    bool last = kept == 0 && lock->attempts_count > 0;
    lock->attempts_count = kept;
    return last;
}

static struct redis_answer grant(struct redis_lock *lock, const struct lease_call *call, bool mine,
                                 int64_t now_us)
{
    if (mine && lock->token != call->void_token) {
        if (lock->until_us < now_us + call->ttl_ms * 1000)
            set(lock, call, lock->token, now_us);
        enter(lock, call->attempt);
        return (struct redis_answer){LEASE_OWN, lock->token, call->ttl_ms, 0};
    }
    if (lock->token != 0 && !mine)
        return held(lock, now_us);
    if (call->reentry_only)
        return (struct redis_answer){.answer = LEASE_FREE};
    int64_t token = token_next(lock->counter, call->floor, call->believed_max);
    if (token == 0)
        return (struct redis_answer){.answer = LEASE_DOWN};
    lock->counter = token;
    set(lock, call, token, now_us);
    lock->attempts[0] = call->attempt;
    lock->attempts_count = 1;
    return (struct redis_answer){LEASE_GRANTED, token, call->ttl_ms, 0};
}

static struct redis_answer release(struct redis_lock *lock, const struct lease_call *call,
                                   bool mine, int64_t now_us)
{
    bool named = mine && (call->token == 0 || call->token == lock->token);

    if (lock->token == 0)
        return (struct redis_answer){.answer = LEASE_FREE,
                                     .ended = call->revoked ? call->token : 0};
    if (!named || (call->attempt != 0 && !give_up(lock, call->attempt)))
        return held(lock, now_us);
    int64_t ended = lock->token;
    lock->token = 0;
    return (struct redis_answer){.answer = LEASE_FREE, .ended = ended};
}

struct redis_answer redis_lock_ask(struct redis_lock *lock, const struct lease_call *call,
                                   int64_t now_us)
{
    redis_lock_expire(lock, now_us);
    bool mine = lock->token != 0 && strcmp(lock->nonce, call->nonce) == 0;

    switch (call->verb) {
    case LEASE_GRANT: return grant(lock, call, mine, now_us);
    case LEASE_RELEASE: return release(lock, call, mine, now_us);
    case LEASE_RENEW:
        if (lock->token != 0 && !(mine && lock->token == call->token))
            break;
        set(lock, call, call->token, now_us);
        lock->attempts_count = 0;
        return (struct redis_answer){LEASE_GRANTED, call->token, call->ttl_ms, 0};
    case LEASE_QUERY:
    case LEASE_INHERIT: break;
    }
    return lock->token != 0 ? held(lock, now_us) : (struct redis_answer){.answer = LEASE_FREE};
}
