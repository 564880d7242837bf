/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: again and again over new connections, with growing pauses, until there is an answer, the
 * time is over, or a repeat could do harm. */
#include <stdlib.h>
#include <time.h>

#include "fence/base/clock.h"
#include "fence/base/mem.h"
#include "proxy/client/client.h"

enum { IDLE_MAX = 64, PAUSE_MS_MIN = 4, PAUSE_MS_MAX = 256 };

/* The connection used last, if it is still good; else a new one. */
static struct peer *take_peer(struct call *call, enum stk_error *error)
{
    stk_client *client = call->client;
    struct list *link = NULL;

    *error = STK_OK;
    while (!call->alone) {
        pthread_mutex_lock(&client->lock);
        link = list_pop(&client->idle);
        client->idle_count -= link != NULL;
        pthread_mutex_unlock(&client->lock);
        if (link == NULL)
            break;
        struct peer *peer = list_entry(link, struct peer, link);
        if (!peer->transport->impl->is_broken(peer->transport))
            return peer;
        peer_close(peer);
    }
    return peer_open(&client->target, client->embedded, call->deadline_ms, -1, error);
}

static void give_peer(stk_client *client, struct peer *peer)
{
    pthread_mutex_lock(&client->lock);
    bool room = client->idle_count < IDLE_MAX;
    if (room) {
        list_insert(client->idle.next, &peer->link);
        client->idle_count++;
    }
    pthread_mutex_unlock(&client->lock);
    if (!room)
        peer_close(peer);
}

static void drop_replies(struct call *call)
{
    for (size_t i = 0; call->replies != NULL && i < call->replies_count; i++)
        if (call->replies[i] != NULL)
            freeReplyObject(call->replies[i]);
    free(call->replies);
    call->replies = NULL;
}

/* One attempt on one connection. */
static enum moved exchange(struct call *call, struct peer *peer)
{
    size_t sent = 0;
    enum moved moved = peer_send(peer, buf_bytes(&call->request), call->deadline_ms, &sent);

    call->sent |= sent > 0;
    drop_replies(call);
    call->replies = mem_zalloc(call->replies_count * sizeof(redisReply *));
    for (size_t i = 0; i < call->replies_count && moved == MOVED; i++)
        moved = peer_receive(peer, call->deadline_ms, &call->replies[i]);
    return moved;
}

/* How a call ends that got no answer. `why` is the last attempt's, or NULL. */
static enum stk_error unanswered(const struct call *call, bool late, const char *why)
{
    bool unsure = call->sent && call->changes;
    enum stk_error error = unsure ? STK_UNSURE : late ? STK_TIMEOUT : STK_UNREACHABLE;

    if (why == NULL || why[0] == '\0')
        return fail(error, NULL);
    return fail(error, "the connection broke (%s)%s", why,
                unsure ? "; it may have been applied" : "; nothing was applied");
}

/* False: the deadline comes first. */
static bool pause_before_retry(const struct call *call, int64_t *pause_ms)
{
    unsigned char random;
    chance_system.fill(&chance_system, &random, 1);
    int64_t ms = *pause_ms / 2 + *pause_ms * random / 512; /* so that a crowd spreads out */
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    if (now_ms() + ms >= call->deadline_ms)
        return false;
    (void)nanosleep(&pause, NULL);
    *pause_ms = *pause_ms * 2 > PAUSE_MS_MAX ? PAUSE_MS_MAX : *pause_ms * 2;
    return true;
}

enum stk_error call_run(struct call *call)
{
    int64_t pause_ms = PAUSE_MS_MIN;

    for (;;) {
        enum stk_error error;
        struct peer *peer = take_peer(call, &error);
        if (peer == NULL && error != STK_UNREACHABLE) /* in time, or for good */
            return call->sent && call->changes ? fail(STK_UNSURE, NULL) : error;
        if (peer == NULL) {
            if (!pause_before_retry(call, &pause_ms))
                return call->sent && call->changes ? fail(STK_UNSURE, NULL) : error;
            continue;
        }
        call->asked_ms = now_ms();
        if (call->compose != NULL)
            call->compose(call);
        enum moved moved = exchange(call, peer);
        if (moved == MOVED) {
            if (call->keeps_peer)
                call->peer = peer;
            else
                give_peer(call->client, peer);
            return STK_OK;
        }
        char why[sizeof peer->transport->why];
        for (size_t i = 0; i < sizeof why; i++)
            why[i] = peer->transport->why[i];
        bool aged = peer->used; /* a connection that idled: no pause for its end */
        peer_close(peer);
        if (moved == MOVED_LATE)
            return unanswered(call, true, NULL);
        if ((call->sent && !call->repeatable) || (!aged && !pause_before_retry(call, &pause_ms)))
            return unanswered(call, false, why);
    }
}

void call_end(struct call *call)
{
    drop_replies(call);
    buf_free(&call->request);
}
