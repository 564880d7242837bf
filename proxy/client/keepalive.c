/* SPDX-License-Identifier: Apache-2.0 */
/* Keep-alive: one thread per client, with a connection of its own.
 *
 * Each lease that is kept stands in a heap by what comes next for it: its renewal, a third of its
 * TTL after the last one was asked for; the end of patience with a renewal that is under way; or
 * its end, a tenth of the TTL before it runs out, when it counts as lost and its owner is told. The
 * thread sends what is due in one go, and waits for replies no longer than until the next event: a
 * daemon that is silent, or a connection that hangs, delays nobody's bad news.
 *
 * A renewal also asks to be told of the loss: the daemon does so among the replies, which are no
 * arrays, and the keeper renews at once what is said to be lost, since the answer to that is what
 * counts. So that it hears from early on, the first renewal of a lease comes sooner, but not so
 * soon that those that are held for a moment cost one.
 *
 * Everything but sending and waiting happens under the client's lock. A renewal that is under way
 * when its lease ends is of no account: the token is retired, and its reply finds no lease. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/client/lease.h"
#include "proxy/client/thread.h"

enum {
    BATCH_BYTES = 64 * 1024,
    IDLE_MS = 60000,
    PAUSE_MS_MIN = 4,
    PAUSE_MS_MAX = 256,
    PATIENCE_MS_MIN = 20,
    HEARS_AFTER_MS = 100,
};

struct keepalive {
    stk_client *client;
    pthread_t thread;
    int wake_fd;
    pthread_cond_t told; /* `telling` has changed */
    /* Under the client's lock. */
    bool stopping;
    struct heap due;    /* leases */
    struct list flight; /* renewals sent, in order */
    stk_lease *telling; /* its `lost` is being called */
    struct peer *peer;  /* set by the thread; NULL: not connected */
    int64_t retry_ms;   /* no connection is tried before */
    /* The thread's. */
    int64_t pause_ms;
    struct buf out;
};

struct renewal {
    struct list link;
    stk_lease *lease; /* NULL: it has ended */
    unsigned round;
};

static stk_lease *lease_of(struct heap_node *node)
{
    return list_entry(node, stk_lease, due);
}

/* When it counts as lost. */
static int64_t end_ms(const stk_lease *lease)
{
    return lease->until_ms - lease->ttl_ms / 10;
}

static int64_t patience_ms(const stk_lease *lease)
{
    return lease->ttl_ms / 4 > PATIENCE_MS_MIN ? lease->ttl_ms / 4 : PATIENCE_MS_MIN;
}

static void schedule(struct keepalive *keeper, stk_lease *lease)
{
    int64_t next_ms = lease->renewing ? lease->asked_ms + patience_ms(lease) : lease->renew_ms;

    if (lease->state == STATE_LOST)
        next_ms = now_ms();
    heap_set(&keeper->due, &lease->due, next_ms < end_ms(lease) ? next_ms : end_ms(lease));
}

/* No answer, or none of use: again in a moment. */
static void try_again(struct keepalive *keeper, stk_lease *lease, enum stk_error why)
{
    int64_t moment_ms = lease->ttl_ms / 20;

    lease->why = why;
    lease->renewing = false;
    lease->renew_ms = now_ms() + (moment_ms > PAUSE_MS_MAX ? PAUSE_MS_MAX : moment_ms);
    schedule(keeper, lease);
}

static void lose(struct keepalive *keeper, stk_lease *lease, enum stk_error why)
{
    lease->why = why;
    lease->state = STATE_LOST;
    schedule(keeper, lease);
}

/* The connection is of no more use. The lock is held, but not while it is closed. */
static void hang_up(struct keepalive *keeper, enum stk_error why)
{
    struct peer *peer = keeper->peer;
    struct list *next;

    keeper->peer = NULL;
    buf_clear(&keeper->out);
    for (struct list *at = keeper->flight.next; at != &keeper->flight; at = next) {
        struct renewal *renewal = list_entry(at, struct renewal, link);
        stk_lease *lease = renewal->lease;
        next = at->next;
        if (lease != NULL && lease->renewing && lease->round == renewal->round)
            try_again(keeper, lease, why);
        free(renewal);
    }
    list_init(&keeper->flight);
    if (peer == NULL)
        return;
    pthread_mutex_unlock(&keeper->client->lock);
    peer_close(peer);
    pthread_mutex_lock(&keeper->client->lock);
}

static void renew(struct keepalive *keeper, stk_lease *lease)
{
    handle_compose_renewal(lease, lease->ttl_ms, true, &keeper->out);
    lease->renewing = true;
    lease->round++;
    lease->unanswered = lease->count;
    lease->told_ms = lease->ttl_ms;
    lease->asked_ms = now_ms();
    for (size_t i = 0; i < lease->count; i++) {
        struct renewal *renewal = mem_zalloc(sizeof *renewal);
        renewal->lease = lease;
        renewal->round = lease->round;
        list_append(&keeper->flight, &renewal->link);
    }
    schedule(keeper, lease);
}

/* Does what is due, and writes down what is to be sent. Returns a lease whose loss is to be told.
 */
static stk_lease *look(struct keepalive *keeper)
{
    struct heap_node *first;
    int64_t now = now_ms();

    while ((first = heap_first(&keeper->due)) != NULL && first->at_ms <= now &&
           keeper->out.len < BATCH_BYTES) {
        stk_lease *lease = lease_of(first);
        if (lease->state == STATE_LIVE && now >= end_ms(lease))
            lose(keeper, lease, lease->why != STK_OK ? lease->why : STK_TIMEOUT);
        else if (lease->state == STATE_LIVE && !lease->renewing && !thread_mark_lives(lease->owner))
            lose(keeper, lease, STK_ABANDONED);
        if (lease->state == STATE_LOST)
            return lease;
        if (lease->renewing) {
            hang_up(keeper, STK_TIMEOUT);
        } else if (now < keeper->retry_ms) {
            lease->renew_ms = keeper->retry_ms;
            schedule(keeper, lease);
        } else {
            renew(keeper, lease);
        }
    }
    return NULL;
}

/* The lock is held, but not while `lost` runs: it may do what it likes with the lease. */
static void tell(struct keepalive *keeper, stk_lease *lease)
{
    enum stk_error why = lease->why;

    keepalive_forget(lease);
    if (lease->lost == NULL)
        return;
    keeper->telling = lease;
    pthread_mutex_unlock(&keeper->client->lock);
    lease->lost(lease, why, lease->context);
    pthread_mutex_lock(&keeper->client->lock);
    keeper->telling = NULL;
    pthread_cond_broadcast(&keeper->told);
}

/* The next reply on the connection is the oldest renewal's. */
static void take_reply(struct keepalive *keeper, struct renewal *renewal, const redisReply *reply)
{
    stk_lease *lease = renewal->lease;
    bool counts = lease != NULL && lease->renewing && lease->round == renewal->round;
    free(renewal);
    if (!counts)
        return;
    enum stk_error error = reply_code(reply);
    int64_t told_ms = reply->integer;
    if (error == STK_STALE || error == STK_UNKNOWN) {
        lose(keeper, lease, STK_STALE);
    } else if (!reply_is_int(reply)) {
        try_again(keeper, lease, error != STK_OK ? error : STK_PROTOCOL);
    } else {
        if (told_ms < lease->told_ms)
            lease->told_ms = told_ms;
        if (--lease->unanswered > 0)
            return;
        lease->why = STK_OK;
        lease->renewing = false;
        handle_extend(lease, lease->asked_ms, lease->ttl_ms, lease->told_ms);
        schedule(keeper, lease);
    }
}

static bool holds(const stk_lease *lease, const char *resource, int64_t token)
{
    for (size_t i = 0; i < lease->count; i++)
        if (lease->holds[i].token == token && strcmp(lease->holds[i].resource, resource) == 0)
            return true;
    return false;
}

/* ["stockade:lost", resource, token, reason]. One whose renewal is under way hears by that. */
static void take_news(struct keepalive *keeper, redisReply *const *news)
{
    struct list *leases = &keeper->client->leases;

    for (struct list *at = leases->next; at != leases; at = at->next) {
        stk_lease *lease = list_entry(at, stk_lease, link);
        if (!lease->kept || lease->renewing || !holds(lease, news[1]->str, news[2]->integer))
            continue;
        lease->renew_ms = now_ms();
        schedule(keeper, lease);
    }
}

static bool is_news(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, "stockade:lost") == 0 &&
           reply->element[1]->type == REDIS_REPLY_STRING &&
           reply->element[2]->type == REDIS_REPLY_INTEGER;
}

static void take(struct keepalive *keeper, const redisReply *reply)
{
    struct list *link;

    if (is_news(reply))
        take_news(keeper, reply->element);
    else if ((link = list_pop(&keeper->flight)) != NULL)
        take_reply(keeper, list_entry(link, struct renewal, link), reply);
    else
        hang_up(keeper, STK_PROTOCOL); /* nothing was asked */
}

static int64_t next_event_ms(const struct keepalive *keeper)
{
    const struct heap_node *first = heap_first(&keeper->due);
    return first != NULL ? first->at_ms : now_ms() + IDLE_MS;
}

/* Connects where that is needed, and sends what is written down. Without the lock. */
static bool send_out(struct keepalive *keeper, struct peer **peer, int64_t deadline_ms,
                     enum stk_error *why)
{
    const stk_client *client = keeper->client;
    size_t sent = 0;

    if (*peer == NULL)
        *peer = peer_open(&client->target, client->embedded, deadline_ms, keeper->wake_fd, why);
    if (*peer == NULL)
        return false;
    *why = STK_UNREACHABLE;
    return peer_send(*peer, buf_bytes(&keeper->out), deadline_ms, &sent) == MOVED;
}

/* Sends, and waits for a reply, news, or the next event. The lock is held, but not while it does.
 */
static void step(struct keepalive *keeper)
{
    stk_client *client = keeper->client;
    struct peer *peer = keeper->peer;
    int64_t deadline_ms = next_event_ms(keeper);
    bool sent = true;
    enum stk_error why = STK_UNREACHABLE;
    redisReply *reply = NULL;
    enum moved moved = MOVED_LATE;

    if (keeper->out.len > 0) {
        pthread_mutex_unlock(&client->lock);
        sent = send_out(keeper, &peer, deadline_ms, &why);
        pthread_mutex_lock(&client->lock);
        keeper->peer = peer;
        buf_clear(&keeper->out);
    }
    if (!sent) {
        hang_up(keeper, why);
        keeper->retry_ms = now_ms() + keeper->pause_ms;
        keeper->pause_ms *= keeper->pause_ms < PAUSE_MS_MAX ? 2 : 1;
        return;
    }
    if (keeper->stopping)
        return;
    deadline_ms = next_event_ms(keeper); /* it may be an earlier one by now */
    pthread_mutex_unlock(&client->lock);
    if (peer != NULL)
        moved = peer_receive(peer, deadline_ms, &reply);
    else
        moved = wait_for(-1, 0, keeper->wake_fd, deadline_ms);
    if (moved == MOVED_WOKEN) {
        eventfd_t ignored;
        (void)eventfd_read(keeper->wake_fd, &ignored);
    }
    pthread_mutex_lock(&client->lock);
    if (reply != NULL) {
        keeper->pause_ms = PAUSE_MS_MIN;
        take(keeper, reply);
        freeReplyObject(reply);
    } else if (moved == MOVED_BROKEN) {
        hang_up(keeper, STK_UNREACHABLE);
    }
}

static void *keepalive_main(void *context)
{
    struct keepalive *keeper = context;

    pthread_mutex_lock(&keeper->client->lock);
    while (!keeper->stopping) {
        stk_lease *lost = look(keeper);
        if (lost != NULL)
            tell(keeper, lost);
        else
            step(keeper);
    }
    pthread_mutex_unlock(&keeper->client->lock);
    return NULL;
}

static void wake(struct keepalive *keeper)
{
    struct peer *peer = keeper->peer;

    (void)eventfd_write(keeper->wake_fd, 1);
    if (peer != NULL && peer->transport->impl->wake != NULL)
        peer->transport->impl->wake(peer->transport);
}

static struct keepalive *keepalive_new(stk_client *client)
{
    struct keepalive *keeper = mem_zalloc(sizeof *keeper);

    keeper->client = client;
    keeper->pause_ms = PAUSE_MS_MIN;
    list_init(&keeper->flight);
    thread_cond_init(&keeper->told);
    keeper->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (keeper->wake_fd >= 0 && thread_start(&keeper->thread, "stk-keeper", keepalive_main, keeper))
        return keeper;
    if (keeper->wake_fd >= 0)
        close(keeper->wake_fd);
    pthread_cond_destroy(&keeper->told);
    free(keeper);
    (void)fail(STK_BUSY, "no threads or descriptors are left to keep the lease alive");
    return NULL;
}

bool keepalive_add(stk_lease *lease)
{
    stk_client *client = lease->client;

    if (client->keeper == NULL)
        client->keeper = keepalive_new(client);
    if (client->keeper == NULL)
        return false;
    lease->kept = true;
    if (lease->renew_ms > now_ms() + HEARS_AFTER_MS)
        lease->renew_ms = now_ms() + HEARS_AFTER_MS;
    keepalive_look(lease);
    return true;
}

void keepalive_look(stk_lease *lease)
{
    struct keepalive *keeper = lease->client->keeper;

    if (!lease->kept)
        return;
    schedule(keeper, lease);
    if (heap_first(&keeper->due) == &lease->due)
        wake(keeper);
}

void keepalive_forget(stk_lease *lease)
{
    struct keepalive *keeper = lease->client->keeper;

    if (!lease->kept)
        return;
    lease->kept = false;
    heap_remove(&keeper->due, &lease->due);
    for (struct list *at = keeper->flight.next; at != &keeper->flight; at = at->next) {
        struct renewal *renewal = list_entry(at, struct renewal, link);
        if (renewal->lease == lease)
            renewal->lease = NULL;
    }
}

void keepalive_await(stk_lease *lease)
{
    struct keepalive *keeper = lease->client->keeper;

    if (keeper == NULL || pthread_equal(pthread_self(), keeper->thread))
        return;
    while (keeper->telling == lease)
        pthread_cond_wait(&keeper->told, &lease->client->lock);
}

void keepalive_free(struct keepalive *keeper)
{
    if (keeper == NULL)
        return;
    pthread_mutex_lock(&keeper->client->lock);
    keeper->stopping = true;
    wake(keeper);
    pthread_mutex_unlock(&keeper->client->lock);
    pthread_join(keeper->thread, NULL);
    pthread_mutex_lock(&keeper->client->lock);
    hang_up(keeper, STK_UNREACHABLE);
    pthread_mutex_unlock(&keeper->client->lock);
    close(keeper->wake_fd);
    pthread_cond_destroy(&keeper->told);
    heap_free(&keeper->due);
    buf_free(&keeper->out);
    free(keeper);
}

void keepalive_drop(struct keepalive *keeper)
{
    if (keeper == NULL)
        return;
    if (keeper->peer != NULL)
        peer_close(keeper->peer);
    keeper->peer = NULL;
    close(keeper->wake_fd);
    keeper->wake_fd = -1;
}
