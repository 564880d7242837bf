/* SPDX-License-Identifier: Apache-2.0 */
/* A worker takes the next invoice and does its lines one after another. A line is two round trips:
 *
 *   ACQUIRE key ttl WAIT ms + GET key     commands of one connection run in order, so the read
 *   FENCED token SET key n + RELEASE      happens under the lease, and the release after the write
 *
 * A line whose write is refused as STALE has changed nothing and is done again from the start; so
 * is one that met a full queue or waited in vain, within a time limit. A connection that breaks
 * ends the replay: whether the write in flight was applied cannot be known without a request id. */
#include <inttypes.h>
#include <signal.h>
#include <time.h>

#include "fence/base/clock.h"
#include "tools/replay/replay.h"

enum { WAIT_MS = 2000, ORDER_LIMIT_MS = 60000, BACKOFF_MS = 10 };

struct worker {
    const struct replay *replay;
    struct tally *tally;
    struct client client;
    unsigned index;
    int64_t stale; /* its own share of the tally's */
};

enum attempt { ATTEMPT_GOOD, ATTEMPT_AGAIN, ATTEMPT_FAILED };

static void back_off(void)
{
    struct timespec delay = {.tv_nsec = BACKOFF_MS * 1000000L};

    (void)nanosleep(&delay, NULL);
}

/* Return what an unexpected reply means; NULL is a lost connection. */
static enum attempt judge(struct worker *worker, const char *doing, const redisReply *reply)
{
    struct failure *failure = &worker->client.failure;

    if (reply == NULL) {
        (void)failure_set(failure, "%s: %s", doing, failure->text);
        return ATTEMPT_FAILED;
    }
    if (client_is_error(reply, "STALE")) {
        atomic_fetch_add(&worker->tally->stale, 1);
        worker->stale++;
        return ATTEMPT_AGAIN;
    }
    if (client_is_error(reply, "BUSY") || client_is_error(reply, "LEASEDOWN")) {
        atomic_fetch_add(&worker->tally->busy, 1);
        back_off();
        return ATTEMPT_AGAIN;
    }
    (void)failure_set(failure, "%s: the server said: %s", doing, client_text(reply));
    return ATTEMPT_FAILED;
}

/* Take RELEASE's reply: a lease that ran out, or one that will (BUSY), harms nobody. */
static enum attempt released(struct worker *worker)
{
    redisReply *reply = client_next(&worker->client);
    enum attempt attempt = ATTEMPT_GOOD;

    if (!lease_released(reply))
        attempt = judge(worker, "releasing", reply);
    freeReplyObject(reply);
    return attempt == ATTEMPT_FAILED ? ATTEMPT_FAILED : ATTEMPT_GOOD;
}

static enum attempt release(struct worker *worker, const char *key, const struct lease *lease)
{
    client_append(&worker->client, "RELEASE %s %lld", key, (long long)lease->token);
    return released(worker);
}

static enum attempt acquire_and_read(struct worker *worker, const char *key, struct lease *lease,
                                     int64_t *stock)
{
    struct client *client = &worker->client;
    enum attempt attempt = ATTEMPT_GOOD;

    client_append(client, "ACQUIRE %s %lld WAIT %d", key,
                  (long long)worker->replay->settings.ttl_ms, (int)WAIT_MS);
    client_append(client, "GET %s", key);
    redisReply *granted = client_next(client);
    redisReply *read = granted != NULL ? client_next(client) : NULL;
    enum acquire_reply answer = read != NULL ? lease_of(granted, lease) : ACQUIRE_REFUSED;
    if (read == NULL) {
        attempt = judge(worker, "acquiring", NULL);
    } else if (answer == ACQUIRE_REFUSED) {
        attempt = judge(worker, "acquiring", granted);
    } else if (answer == ACQUIRE_HELD) {
        atomic_fetch_add(&worker->tally->held, 1);
        attempt = ATTEMPT_AGAIN;
    } else if (!client_to_int64(read, stock)) {
        attempt = judge(worker, "reading the stock", read);
        if (attempt == ATTEMPT_AGAIN && release(worker, key, lease) == ATTEMPT_FAILED)
            attempt = ATTEMPT_FAILED;
    }
    freeReplyObject(granted);
    freeReplyObject(read);
    return attempt;
}

static enum attempt write_and_release(struct worker *worker, const char *key,
                                      const struct lease *lease, int64_t stock)
{
    struct client *client = &worker->client;
    enum attempt attempt = ATTEMPT_GOOD;

    client_append(client, "FENCED %lld SET %s %lld", (long long)lease->token, key,
                  (long long)stock);
    client_append(client, "RELEASE %s %lld", key, (long long)lease->token);
    redisReply *written = client_next(client);
    if (written == NULL || written->type != REDIS_REPLY_STATUS)
        attempt = judge(worker, "the fenced write", written);
    freeReplyObject(written);
    if (attempt != ATTEMPT_FAILED && released(worker) == ATTEMPT_FAILED)
        attempt = ATTEMPT_FAILED;
    return attempt;
}

static void note(const struct worker *worker, const struct order *order, enum trace_kind kind,
                 int64_t value)
{
    trace_note(worker->replay->trace, worker->index, kind, (int)order->sku, value);
}

static void count_order(struct worker *worker, const struct order *order)
{
    struct tally *tally = worker->tally;

    if (order->quantity < 0) {
        atomic_fetch_add(&tally->returns, 1);
        atomic_fetch_add(&tally->skus[order->sku].returned, -(int64_t)order->quantity);
    } else {
        atomic_fetch_add(&tally->sales, 1);
        atomic_fetch_add(&tally->skus[order->sku].sold, order->quantity);
    }
}

/* Try once. A sale that asks for more than there is sells nothing. */
static enum attempt order_try(struct worker *worker, const struct order *order, bool may_stop)
{
    char key[REPLAY_KEY_MAX];
    struct lease lease = {.token = 0};
    int64_t stock = 0;

    (void)inventory_key(worker->replay, &worker->replay->orders.skus[order->sku], key);
    enum attempt attempt = acquire_and_read(worker, key, &lease, &stock);
    if (attempt != ATTEMPT_GOOD)
        return attempt;
    note(worker, order, TRACE_LOCKED, lease.token);
    note(worker, order, TRACE_READ, stock);
    if (stock < 0)
        atomic_fetch_add(&worker->tally->below_zero, 1);
    if (order->quantity > stock) {
        attempt = release(worker, key, &lease);
        if (attempt == ATTEMPT_GOOD) {
            atomic_fetch_add(&worker->tally->no_stock, 1);
            note(worker, order, TRACE_UNLOCKED, 0);
        }
        return attempt;
    }
    if (order->stop && may_stop) {
        /* Stop right here, between read and write; the parent continues us. */
        note(worker, order, TRACE_PAUSED, 0);
        (void)raise(SIGSTOP);
        note(worker, order, TRACE_WOKEN, 0);
    }
    int64_t stale = worker->stale;
    attempt = write_and_release(worker, key, &lease, stock - order->quantity);
    if (attempt == ATTEMPT_GOOD) {
        count_order(worker, order);
        note(worker, order, TRACE_WRITTEN, stock - order->quantity);
        note(worker, order, TRACE_SOLD, order->quantity);
    } else if (worker->stale > stale) {
        note(worker, order, TRACE_REFUSED, 0);
    }
    return attempt;
}

static bool order_do(struct worker *worker, const struct order *order)
{
    int64_t deadline_ms =
        clock_now_ms(&clock_monotonic) + ORDER_LIMIT_MS + worker->replay->settings.pause_ms;
    enum attempt attempt = order_try(worker, order, true);

    while (attempt == ATTEMPT_AGAIN && clock_now_ms(&clock_monotonic) < deadline_ms)
        attempt = order_try(worker, order, false);
    if (attempt == ATTEMPT_AGAIN)
        return failure_set(&worker->client.failure, "line %" PRIu32 ": not done within %d s",
                           order->line, ORDER_LIMIT_MS / 1000);
    if (attempt == ATTEMPT_FAILED)
        return failure_set(&worker->client.failure, "line %" PRIu32 ": %s", order->line,
                           worker->client.failure.text);
    atomic_fetch_add(&worker->tally->done, 1);
    return true;
}

int worker_run(const struct replay *replay, unsigned index)
{
    struct worker worker = {.replay = replay, .tally = replay->tally, .index = index};
    bool good = client_open(&worker.client, replay->server) &&
                client_limit(&worker.client, WAIT_MS + CLIENT_LIMIT_MS);

    while (good) {
        size_t next = atomic_fetch_add(&replay->tally->next_invoice, 1);
        if (next >= replay->orders.invoice_count)
            break;
        for (int32_t at = replay->orders.invoices[next].first; good && at != ORDER_NONE;
             at = replay->orders.orders[at].next)
            good = order_do(&worker, &replay->orders.orders[at]);
    }
    if (!good)
        replay->tally->failures[index] = worker.client.failure;
    client_close(&worker.client);
    return good ? 0 : 1;
}
