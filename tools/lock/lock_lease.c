/* SPDX-License-Identifier: Apache-2.0 */
/* Taking the lease and giving it back. A connection that breaks is made anew and the command
 * repeated under its ID, which makes the repeat harmless. */
#include <inttypes.h>
#include <signal.h>

#include "tools/lease.h"
#include "tools/lock/lock.h"

enum { ANSWER_LIMIT_MS = 5000, AGAIN_MS = 100, RELEASE_LIMIT_MS = 3000, LOSER_LIMIT_MS = 300 };

enum answer { ANSWER_REPLY, ANSWER_NONE, ANSWER_SIGNAL };

/* Waits for a reply on the link. ANSWER_NONE: the link is closed now. ANSWER_SIGNAL: somebody wants
 * us to end, `*number` says how. */
static enum answer await(struct lock *lock, int64_t until_ms, redisReply **reply, int *number)
{
    struct link *link = &lock->keeper.link;
    int64_t connect_until_ms = keeper_now_ms() + ANSWER_LIMIT_MS;

    for (;;) {
        switch (link_turn(link, reply)) {
        case LINK_REPLY: return ANSWER_REPLY;
        case LINK_LOST: return ANSWER_NONE;
        case LINK_NOTHING: break;
        }
        int64_t limit_ms = link->connecting ? connect_until_ms : until_ms;
        if (keeper_now_ms() >= limit_ms) {
            (void)failure_set(&link->failure, "no answer in time");
            link_close(link);
            return ANSWER_NONE;
        }
        lock_wait(lock, limit_ms);
        while ((*number = lock_signal(lock)) != 0) {
            if (*number == SIGTSTP) {
                (void)raise(SIGSTOP);
            } else if (*number != SIGCHLD && *number != SIGCONT) {
                return ANSWER_SIGNAL;
            }
        }
    }
}

/* Lets a little time pass; the number of a signal that wants our end, or 0. */
static int pause_for(struct lock *lock, int64_t ms)
{
    int number;

    lock_wait(lock, keeper_now_ms() + ms);
    while ((number = lock_signal(lock)) != 0) {
        if (number != SIGCHLD && number != SIGCONT && number != SIGTSTP) {
            return number;
        }
    }
    return 0;
}

static int refused(struct lock *lock, const redisReply *reply)
{
    (void)failure_set(&lock->keeper.failure, "no lease on %s: %s", lock->settings.resource,
                      client_text(reply));
    return LOCK_UNREACHABLE;
}

/* A grant that took its time: how long it is ours still is counted from a renewal. */
static int freshen(struct lock *lock, int64_t token)
{
    struct keeper *keeper = &lock->keeper;
    redisReply *reply = NULL;
    int64_t sent_ms = keeper_now_ms(), left_ms = keeper->ttl_ms;
    int number, code = 0;

    link_send(&keeper->link, "RENEW %s %lld %lld", keeper->resource, (long long)token,
              (long long)keeper->ttl_ms);
    switch (await(lock, sent_ms + keeper->ttl_ms / 2, &reply, &number)) {
    case ANSWER_SIGNAL: code = 128 + number; break;
    case ANSWER_NONE:
        code = LOCK_LOST;
        keeper->failure = keeper->link.failure;
        break;
    case ANSWER_REPLY:
        if (reply->type != REDIS_REPLY_INTEGER) {
            (void)refused(lock, reply);
            code = LOCK_LOST;
        } else {
            left_ms = reply->integer;
        }
        freeReplyObject(reply);
    }
    keeper_start(keeper, &keeper->link, token, sent_ms, left_ms);
    return code;
}

static int granted(struct lock *lock, const redisReply *reply, int64_t sent_ms)
{
    struct keeper *keeper = &lock->keeper;
    struct lease lease;

    switch (lease_of(reply, &lease)) {
    case ACQUIRE_REFUSED: return refused(lock, reply);
    case ACQUIRE_HELD:
        (void)failure_set(&keeper->failure, "another holds %s, still after %" PRId64 " ms",
                          keeper->resource, lock->settings.wait_ms);
        return LOCK_HELD;
    case ACQUIRE_GRANTED: break;
    }
    if (keeper_now_ms() - sent_ms > keeper->ttl_ms / 10) {
        return freshen(lock, lease.token);
    }
    keeper_start(keeper, &keeper->link, lease.token, sent_ms, lease.ttl_ms);
    return 0;
}

int lock_acquire(struct lock *lock, const struct client_uri *uri)
{
    struct keeper *keeper = &lock->keeper;
    int64_t sent_ms = keeper_now_ms(), deadline_ms = sent_ms + lock->settings.wait_ms;
    bool reached = false;
    redisReply *reply = NULL;
    int number = 0;

    keeper->uri = *uri;
    keeper->resource = lock->settings.resource;
    keeper->ttl_ms = lock->settings.ttl_ms;
    for (;;) {
        int64_t left_ms = deadline_ms > sent_ms ? deadline_ms - sent_ms : 0;
        enum answer answer = ANSWER_NONE;

        if (link_open(&keeper->link, &keeper->uri)) {
            link_send(&keeper->link, "ACQUIRE %s %lld WAIT %lld OWNER %s ID %s/acquire",
                      keeper->resource, (long long)keeper->ttl_ms, (long long)left_ms, lock->owner,
                      lock->owner);
            answer = await(lock, sent_ms + left_ms + ANSWER_LIMIT_MS, &reply, &number);
            reached = reached || !keeper->link.connecting;
        }
        if (answer == ANSWER_REPLY) {
            int code = granted(lock, reply, sent_ms);
            freeReplyObject(reply);
            return code;
        }
        if (answer == ANSWER_NONE && (!reached || left_ms == 0)) {
            (void)failure_set(&keeper->failure, "cannot reach the server: %s",
                              keeper->link.failure.text);
            return LOCK_UNREACHABLE;
        }
        if (answer == ANSWER_SIGNAL || (number = pause_for(lock, AGAIN_MS)) != 0) {
            return 128 + number;
        }
        sent_ms = keeper_now_ms();
    }
}

bool lock_release(struct lock *lock)
{
    struct keeper *keeper = &lock->keeper;
    int64_t now_ms = keeper_now_ms();
    int64_t deadline_ms =
        now_ms + (lock->ending == LOCK_LOSING ? LOSER_LIMIT_MS : RELEASE_LIMIT_MS);
    int owed = keeper->sent_ms != 0 ? 1 : 0; /* the reply to a RENEW comes first */
    redisReply *reply = NULL;
    int number;

    if (deadline_ms > keeper->sure_until_ms) { /* it ends by itself then */
        deadline_ms = keeper->sure_until_ms;
    }
    for (; now_ms < deadline_ms; now_ms = keeper_now_ms()) {
        enum answer answer = ANSWER_NONE;

        if (!link_is_open(&keeper->link)) {
            owed = 0;
        }
        if (link_is_open(&keeper->link) || link_open(&keeper->link, &keeper->uri)) {
            link_send(&keeper->link, "RELEASE %s %lld ID %s/release", keeper->resource,
                      (long long)keeper->token, lock->owner);
            answer = await(lock, deadline_ms, &reply, &number);
        }
        for (; answer == ANSWER_REPLY && owed > 0; owed--) {
            freeReplyObject(reply);
            answer = await(lock, deadline_ms, &reply, &number);
        }
        if (answer == ANSWER_REPLY) {
            bool ours = !client_is_error(reply, "STALE");
            bool done = reply->type == REDIS_REPLY_INTEGER || !ours;
            (void)failure_set(&keeper->failure, "%s", client_text(reply));
            freeReplyObject(reply);
            if (done) {
                return ours;
            }
        } else {
            keeper->failure = keeper->link.failure;
        }
        if (answer == ANSWER_SIGNAL || pause_for(lock, AGAIN_MS) != 0) {
            break;
        }
    }
    fprintf(stderr, "stockade lock: could not release %s, it ends by its TTL: %s\n",
            keeper->resource, keeper->failure.text);
    return true;
}
