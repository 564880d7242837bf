/* SPDX-License-Identifier: Apache-2.0 */
/* A buyer's work, and its entries in the ledger. All is atomic on shared memory: a process that is
 * stopped or killed here leaves nothing locked. */
#include "tools/demo/buyer.h"

#include <signal.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"

/* Stops are spread over the sale: the i-th of n is due when the stock has fallen to
 * (n+1-i)/(n+1). */
static bool stop_is_due(const struct buyer *buyer, int64_t stops)
{
    const struct sale *sale = buyer->sale;

    return stops < sale->stops && atomic_load(&buyer->ledger->left) <=
                                      sale->stock - (stops + 1) * sale->stock / (sale->stops + 1);
}

void buyer_work(struct buyer *buyer)
{
    int64_t ms = buyer->sale->work_ms, stops = atomic_load(&buyer->ledger->stops);
    struct timespec delay = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&delay, NULL);
    while (stop_is_due(buyer, stops)) {
        if (atomic_compare_exchange_weak(&buyer->ledger->stops, &stops, stops + 1)) {
            (void)raise(SIGSTOP); /* it takes all threads of the process along */
            return;
        }
    }
}

static void atomic_lower(_Atomic int64_t *lowest, int64_t value)
{
    int64_t old = atomic_load(lowest);

    while (value < old && !atomic_compare_exchange_weak(lowest, &old, value)) {
    }
}

void ledger_raise(_Atomic int64_t *highest, int64_t value)
{
    int64_t old = atomic_load(highest);

    while (value > old && !atomic_compare_exchange_weak(highest, &old, value)) {
    }
}

void buyer_sold(struct buyer *buyer, int64_t left)
{
    struct ledger *ledger = buyer->ledger;

    atomic_fetch_add(&ledger->sold, 1);
    atomic_store(&ledger->left, left);
    atomic_lower(&ledger->lowest, left);
    ledger_raise(&ledger->last_sale_ms, clock_now_ms(&clock_monotonic));
}

void buyer_note_stale(struct buyer *buyer, bool tried, bool refused)
{
    atomic_fetch_add(&buyer->ledger->stale_tried, tried ? 1 : 0);
    atomic_fetch_add(&buyer->ledger->stale_refused, refused ? 1 : 0);
}

bool buyer_is_late(const struct buyer *buyer)
{
    return clock_now_ms(&clock_monotonic) > buyer->deadline_ms;
}

enum purchase buyer_failed(struct buyer *buyer, const char *doing, redisReply *reply)
{
    struct failure *failure = &buyer->client.failure;

    if (reply == NULL) {
        (void)failure_set(failure, "%s: %s", doing, failure->text);
    } else {
        (void)failure_set(failure, "%s: the server said: %s", doing, client_text(reply));
        freeReplyObject(reply);
    }
    return PURCHASE_FAILED;
}

void ledger_passes(struct ledger *ledger, int64_t mark)
{
    ledger_raise(&ledger->newest, mark);
}

bool ledger_has_passed(const struct ledger *ledger, int64_t mark)
{
    return atomic_load(&ledger->newest) > mark;
}

int64_t ledger_now_us(void)
{
    struct timespec now;

    check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
