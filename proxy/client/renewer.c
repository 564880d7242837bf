/* SPDX-License-Identifier: Apache-2.0 */
/* One thread per client, with a connection of its own.
 *
 * A heap orders the leases that are kept alive by what comes next for each: its renewal, a third of
 * its TTL after the last one was sent; the time limit of a renewal under way; or its end, a tenth
 * of the TTL before it runs out, when it counts as lost and `lost` is called. The thread sends what
 * is due in one go, and waits for replies no longer than until the next event. So a silent daemon
 * or a connection that hangs does not delay the news of a loss. The timer that wakes the thread
 * goes on while the machine sleeps; other threads set it to wake the thread at once.
 *
 * A renewal also asks the daemon to report a loss (NOTIFY). The report comes between replies, and
 * the renewer then renews that lease at once: the answer decides. The first renewal comes early, so
 * that losses are reported from then on, but not so early that a short lease costs one.
 *
 * Everything but sending and waiting happens under the client's lock. A lease that ends does not
 * wait for its renewal under way: the reply is ignored. */
#include "proxy/client/renewer.h"

#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/base/thread.h"
#include "proxy/client/reply.h"
#include "proxy/resp/resp.h"

enum {
    BATCH_BYTES = 64 * 1024,
    IDLE_MS = 60000,
    PAUSE_MS_MIN = 4,
    PAUSE_MS_MAX = 256,
    PATIENCE_MS_MIN = 20,
    HEARS_AFTER_MS = 100,
};

struct renewer {
    stk_client *client;
    pthread_t thread;
    int timer_fd;               /* CLOCK_BOOTTIME */
    pthread_cond_t lost_called; /* `calling_lost` has changed */
    /* Under the client's lock. */
    bool stopping;
    struct heap due;               /* leases */
    struct list flight;            /* renewals sent, in order */
    stk_lease *calling_lost;       /* its `lost` is being called */
    struct connection *connection; /* set by the thread; NULL: not connected */
    int64_t retry_ms;              /* no connection is tried before */
    int64_t timer_ms;              /* when the timer wakes it */
    bool connecting;
    /* The thread's. */
    int64_t pause_ms;
    struct buf out;
};

struct renewal {
    struct list link;
    stk_lease *lease; /* NULL: it has ended */
    unsigned round;
};

void lease_compose_renewal(const stk_lease *lease, int64_t ttl_ms, bool notify, struct buf *out)
{
    for (size_t i = 0; i < lease->count; i++) {
        resp_array(out, notify ? 5 : 4);
        resp_bulk_text(out, "RENEW");
        resp_bulk_text(out, lease->holds[i].resource);
        resp_bulk_int(out, lease->holds[i].token);
        resp_bulk_int(out, ttl_ms);
        if (notify)
            resp_bulk_text(out, "NOTIFY");
    }
}

static int64_t margin_ms(int64_t ttl_ms)
{
    return ttl_ms / 100 + 2;
}

void lease_extend(stk_lease *lease, int64_t asked_ms, int64_t ttl_ms, int64_t remaining_ms)
{
    int64_t good_ms = remaining_ms < ttl_ms ? remaining_ms : ttl_ms;

    lease->ttl_ms = ttl_ms;
    lease->until_ms = asked_ms + good_ms - margin_ms(good_ms);
    lease->renew_ms = asked_ms + good_ms / 3;
}

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

static void schedule(struct renewer *renewer, stk_lease *lease)
{
    int64_t next_ms = lease->renewing ? lease->asked_ms + patience_ms(lease) : lease->renew_ms;

    if (lease->state == STATE_LOST)
        next_ms = now_ms();
    heap_set(&renewer->due, &lease->due, next_ms < end_ms(lease) ? next_ms : end_ms(lease));
}

/* Renew it again in a moment: there was no answer, or none of use. */
static void try_again(struct renewer *renewer, stk_lease *lease, enum stk_error why)
{
    int64_t moment_ms = lease->ttl_ms / 20;

    lease->why = why;
    lease->renewing = false;
    lease->renew_ms = now_ms() + (moment_ms > PAUSE_MS_MAX ? PAUSE_MS_MAX : moment_ms);
    schedule(renewer, lease);
}

static void lose(struct renewer *renewer, stk_lease *lease, enum stk_error why)
{
    lease->why = why;
    lease->state = STATE_LOST;
    schedule(renewer, lease);
}

/* Close the connection. The lock is held, but not while it closes. */
static void hang_up(struct renewer *renewer, enum stk_error why)
{
    struct connection *connection = renewer->connection;
    struct list *next;

    renewer->connection = NULL;
    buf_clear(&renewer->out);
    for (struct list *at = renewer->flight.next; at != &renewer->flight; at = next) {
        struct renewal *renewal = list_entry(at, struct renewal, link);
        stk_lease *lease = renewal->lease;
        next = at->next;
        if (lease != NULL && lease->renewing && lease->round == renewal->round)
            try_again(renewer, lease, why);
        free(renewal);
    }
    list_init(&renewer->flight);
    if (connection == NULL)
        return;
    pthread_mutex_unlock(&renewer->client->lock);
    connection_close(connection);
    pthread_mutex_lock(&renewer->client->lock);
}

static void renew(struct renewer *renewer, stk_lease *lease)
{
    lease_compose_renewal(lease, lease->ttl_ms, true, &renewer->out);
    lease->renewing = true;
    lease->again = false;
    lease->round++;
    lease->unanswered = lease->count;
    lease->remaining_ms = lease->ttl_ms;
    lease->asked_ms = now_ms();
    for (size_t i = 0; i < lease->count; i++) {
        struct renewal *renewal = mem_zalloc(sizeof *renewal);
        renewal->lease = lease;
        renewal->round = lease->round;
        list_append(&renewer->flight, &renewal->link);
    }
    schedule(renewer, lease);
}

/* Do what is due, and compose what is to be sent: in batches, so that replies are read between
 * them, but all of it where there is no connection yet. Return a lease for which to call `lost`. */
static stk_lease *run_due(struct renewer *renewer)
{
    struct heap_node *first;
    int64_t now = now_ms();

    while ((first = heap_first(&renewer->due)) != NULL && first->at_ms <= now &&
           (renewer->out.len < BATCH_BYTES || renewer->connection == NULL)) {
        stk_lease *lease = lease_of(first);
        if (lease->state == STATE_LIVE && now >= end_ms(lease))
            lose(renewer, lease, lease->why != STK_OK ? lease->why : STK_TIMEOUT);
        else if (lease->state == STATE_LIVE && !lease->renewing && !thread_mark_lives(lease->owner))
            lose(renewer, lease, STK_ABANDONED);
        if (lease->state == STATE_LOST)
            return lease;
        if (lease->renewing) {
            hang_up(renewer, STK_TIMEOUT);
        } else if (now < renewer->retry_ms) {
            lease->renew_ms = renewer->retry_ms;
            schedule(renewer, lease);
        } else {
            renew(renewer, lease);
        }
    }
    return NULL;
}

/* The lock is held, but not while `lost` runs: it may do what it likes with the lease. */
static void call_lost(struct renewer *renewer, stk_lease *lease)
{
    enum stk_error why = lease->why;

    renewer_forget(lease);
    if (lease->lost == NULL)
        return;
    renewer->calling_lost = lease;
    pthread_mutex_unlock(&renewer->client->lock);
    lease->lost(lease, why, lease->context);
    pthread_mutex_lock(&renewer->client->lock);
    renewer->calling_lost = NULL;
    pthread_cond_broadcast(&renewer->lost_called);
}

/* The next reply on the connection is the oldest renewal's. */
static void on_reply(struct renewer *renewer, struct renewal *renewal, const redisReply *reply)
{
    stk_lease *lease = renewal->lease;
    bool counts = lease != NULL && lease->renewing && lease->round == renewal->round;
    free(renewal);
    if (!counts)
        return;
    enum stk_error error = reply_code(reply);
    int64_t remaining_ms = reply->integer;
    if (error == STK_STALE || error == STK_UNKNOWN) {
        lose(renewer, lease, STK_STALE);
    } else if (!reply_is_int(reply)) {
        try_again(renewer, lease, error != STK_OK ? error : STK_PROTOCOL);
    } else {
        if (remaining_ms < lease->remaining_ms)
            lease->remaining_ms = remaining_ms;
        if (--lease->unanswered > 0)
            return;
        lease->why = STK_OK;
        lease->renewing = false;
        lease_extend(lease, lease->asked_ms, lease->ttl_ms, lease->remaining_ms);
        if (lease->again)
            lease->renew_ms = now_ms();
        schedule(renewer, lease);
    }
}

static bool holds(const stk_lease *lease, const char *resource, int64_t token)
{
    for (size_t i = 0; i < lease->count; i++)
        if (lease->holds[i].token == token && strcmp(lease->holds[i].resource, resource) == 0)
            return true;
    return false;
}

/* ["stockade:lost", resource, token, reason]. The answer to a renewal under way may be of before,
 * so there is another one after it. */
static void on_lost_push(struct renewer *renewer, redisReply *const *push)
{
    struct list *leases = &renewer->client->leases;

    for (struct list *at = leases->next; at != leases; at = at->next) {
        stk_lease *lease = list_entry(at, stk_lease, link);
        if (!lease->kept || !holds(lease, push[1]->str, push[2]->integer))
            continue;
        lease->again = lease->renewing;
        lease->renew_ms = now_ms();
        schedule(renewer, lease);
    }
}

static bool is_lost_push(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 4 &&
           reply->element[0]->type == REDIS_REPLY_STRING &&
           strcmp(reply->element[0]->str, "stockade:lost") == 0 &&
           reply->element[1]->type == REDIS_REPLY_STRING &&
           reply->element[2]->type == REDIS_REPLY_INTEGER;
}

static void on_message(struct renewer *renewer, const redisReply *reply)
{
    struct list *link;

    if (is_lost_push(reply))
        on_lost_push(renewer, reply->element);
    else if ((link = list_pop(&renewer->flight)) != NULL)
        on_reply(renewer, list_entry(link, struct renewal, link), reply);
    else
        hang_up(renewer, STK_PROTOCOL); /* nothing was asked */
}

static int64_t next_event_ms(const struct renewer *renewer)
{
    const struct heap_node *first = heap_first(&renewer->due);
    return first != NULL ? first->at_ms : now_ms() + IDLE_MS;
}

/* Return when the lease has to be looked at though there is no connection yet. That it is due for a
 * renewal is no reason: in a busy program one always is, and nothing would ever be connected. */
static int64_t limit_ms(const stk_lease *lease)
{
    bool renews_later = lease->state == STATE_LIVE && !lease->renewing;
    return renews_later ? end_ms(lease) : lease->due.at_ms;
}

static int64_t connect_until_ms(const struct renewer *renewer)
{
    const struct list *leases = &renewer->client->leases;
    int64_t until_ms = now_ms() + IDLE_MS;

    for (const struct list *at = leases->next; at != leases; at = at->next) {
        const stk_lease *lease = list_entry(at, stk_lease, link);
        if (lease->kept && limit_ms(lease) < until_ms)
            until_ms = limit_ms(lease);
    }
    return until_ms;
}

/* Wake the thread at that time. The lock is held, so that no earlier time gets lost. */
static void set_timer(struct renewer *renewer, int64_t at_ms)
{
    renewer->timer_ms = at_ms;
    at_ms = at_ms < 1 ? 1 : at_ms; /* zero would disarm it; what is past fires at once */
    struct itimerspec at = {
        .it_value = {.tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000}};
    check(timerfd_settime(renewer->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
}

/* Connect where that is needed, and send what was composed. Without the lock. */
static bool send_out(struct renewer *renewer, struct connection **connection, int64_t deadline_ms,
                     enum stk_error *why)
{
    size_t sent = 0;

    if (*connection == NULL)
        *connection = client_connect(renewer->client, deadline_ms, renewer->timer_fd, why);
    if (*connection == NULL)
        return false;
    *why = STK_UNREACHABLE;
    return connection_send(*connection, buf_bytes(&renewer->out), deadline_ms, &sent) == IO_DONE;
}

/* Send, and wait for a reply, a push, or the next event. The lock is held, but not while it does.
 */
static void step(struct renewer *renewer)
{
    stk_client *client = renewer->client;
    struct connection *connection = renewer->connection;
    bool sent = true;
    enum stk_error why = STK_UNREACHABLE;
    redisReply *reply = NULL;
    enum io_result result = IO_LATE;
    int64_t deadline_ms;

    if (renewer->out.len > 0) {
        renewer->connecting = connection == NULL;
        deadline_ms = renewer->connecting ? connect_until_ms(renewer) : next_event_ms(renewer);
        if (!renewer->connecting && deadline_ms < now_ms() + PATIENCE_MS_MIN)
            deadline_ms = now_ms() + PATIENCE_MS_MIN; /* the next batch is due, too */
        set_timer(renewer, deadline_ms);
        pthread_mutex_unlock(&client->lock);
        sent = send_out(renewer, &connection, deadline_ms, &why);
        pthread_mutex_lock(&client->lock);
        renewer->connecting = false;
        renewer->connection = connection;
        buf_clear(&renewer->out);
    }
    if (!sent) {
        hang_up(renewer, why == STK_CANCELLED ? STK_TIMEOUT : why);
        renewer->retry_ms = now_ms() + renewer->pause_ms;
        renewer->pause_ms *= renewer->pause_ms < PAUSE_MS_MAX ? 2 : 1;
        return;
    }
    if (renewer->stopping)
        return;
    deadline_ms = next_event_ms(renewer); /* it may be an earlier one by now */
    set_timer(renewer, deadline_ms);
    pthread_mutex_unlock(&client->lock);
    if (connection != NULL)
        result = connection_receive(connection, deadline_ms, &reply);
    else
        (void)wait_for(-1, 0, renewer->timer_fd, deadline_ms);
    pthread_mutex_lock(&client->lock);
    if (reply != NULL) {
        renewer->pause_ms = PAUSE_MS_MIN;
        on_message(renewer, reply);
        freeReplyObject(reply);
    } else if (result == IO_BROKEN) {
        hang_up(renewer, STK_UNREACHABLE);
    }
}

static void *renewer_main(void *context)
{
    struct renewer *renewer = context;

    pthread_mutex_lock(&renewer->client->lock);
    while (!renewer->stopping) {
        stk_lease *lost = run_due(renewer);
        if (lost != NULL)
            call_lost(renewer, lost);
        else
            step(renewer);
    }
    pthread_mutex_unlock(&renewer->client->lock);
    return NULL;
}

static struct renewer *renewer_new(stk_client *client)
{
    struct renewer *renewer = mem_zalloc(sizeof *renewer);

    renewer->client = client;
    renewer->pause_ms = PAUSE_MS_MIN;
    list_init(&renewer->flight);
    thread_cond_init(&renewer->lost_called);
    renewer->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (renewer->timer_fd >= 0 &&
        thread_start(&renewer->thread, "stk-renewer", renewer_main, renewer))
        return renewer;
    if (renewer->timer_fd >= 0)
        close(renewer->timer_fd);
    pthread_cond_destroy(&renewer->lost_called);
    free(renewer);
    (void)fail(STK_BUSY, "no threads or descriptors are left to keep the lease alive");
    return NULL;
}

bool renewer_add(stk_lease *lease)
{
    stk_client *client = lease->client;

    if (client->renewer == NULL)
        client->renewer = renewer_new(client);
    if (client->renewer == NULL)
        return false;
    lease->kept = true;
    if (lease->renew_ms > now_ms() + HEARS_AFTER_MS)
        lease->renew_ms = now_ms() + HEARS_AFTER_MS;
    renewer_reschedule(lease);
    return true;
}

void renewer_reschedule(stk_lease *lease)
{
    struct renewer *renewer = lease->client->renewer;

    if (!lease->kept)
        return;
    schedule(renewer, lease);
    int64_t at_ms = renewer->connecting ? limit_ms(lease) : lease->due.at_ms;
    if (at_ms < renewer->timer_ms)
        set_timer(renewer, at_ms);
}

void renewer_forget(stk_lease *lease)
{
    struct renewer *renewer = lease->client->renewer;

    if (!lease->kept)
        return;
    lease->kept = false;
    lease->renewing = false;
    heap_remove(&renewer->due, &lease->due);
    for (struct list *at = renewer->flight.next; at != &renewer->flight; at = at->next) {
        struct renewal *renewal = list_entry(at, struct renewal, link);
        if (renewal->lease == lease)
            renewal->lease = NULL;
    }
}

void renewer_await(stk_lease *lease)
{
    struct renewer *renewer = lease->client->renewer;

    if (renewer == NULL || pthread_equal(pthread_self(), renewer->thread))
        return;
    while (renewer->calling_lost == lease)
        pthread_cond_wait(&renewer->lost_called, &lease->client->lock);
}

void renewer_free(struct renewer *renewer)
{
    if (renewer == NULL)
        return;
    pthread_mutex_lock(&renewer->client->lock);
    renewer->stopping = true;
    set_timer(renewer, 0);
    pthread_mutex_unlock(&renewer->client->lock);
    pthread_join(renewer->thread, NULL);
    pthread_mutex_lock(&renewer->client->lock);
    hang_up(renewer, STK_UNREACHABLE);
    pthread_mutex_unlock(&renewer->client->lock);
    close(renewer->timer_fd);
    pthread_cond_destroy(&renewer->lost_called);
    heap_free(&renewer->due);
    buf_free(&renewer->out);
    free(renewer);
}

void renewer_drop(struct renewer *renewer)
{
    if (renewer == NULL)
        return;
    if (renewer->connection != NULL)
        connection_drop(renewer->connection);
    renewer->connection = NULL;
    close(renewer->timer_fd);
    renewer->timer_fd = -1;
}
