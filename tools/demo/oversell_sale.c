/* SPDX-License-Identifier: Apache-2.0 */
/* One flash sale, from its opening to the count: the buyers, each a process, and the referee.
 *
 * A buyer that is at work when a stop is due raises SIGSTOP itself, so each stop lies between a
 * read and a write for certain, however busy the machine is. The referee sees that the process has
 * stopped, lets the pause pass, and continues it. The ledger is atomic and in shared memory: a
 * process that is stopped or killed leaves nothing locked. */
#include "tools/demo/oversell.h"

#include <inttypes.h>
#include <signal.h>

#include "fence/base/clock.h"

enum { GRACE_MS = 20000 };

/* A buyer's work, and its entries in the ledger. */

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
    int64_t stops = atomic_load(&buyer->ledger->stops);

    demo_work(buyer->sale->work_ms);
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

void buyer_sold(struct buyer *buyer, int64_t left)
{
    struct ledger *ledger = buyer->ledger;

    atomic_fetch_add(&ledger->sold, 1);
    atomic_store(&ledger->left, left);
    atomic_lower(&ledger->lowest, left);
    demo_raise(&ledger->last_sale_ms, clock_now_ms(&clock_monotonic));
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
    demo_raise(&ledger->newest, mark);
}

bool ledger_has_passed(const struct ledger *ledger, int64_t mark)
{
    return atomic_load(&ledger->newest) > mark;
}

/* The referee. */

struct referee {
    const struct contender *contender;
    const struct sale *sale;
    const struct client_uri *server;
    struct ledger *ledger; /* shared with the buyers */
    struct demo *demo;
    int64_t began_ms;
};

/* In the child. */
static int buyer_main(void *context, unsigned index)
{
    const struct referee *referee = context;
    const struct contender *contender = referee->contender;
    struct buyer buyer = {
        .sale = referee->sale,
        .server = referee->server,
        .ledger = referee->ledger,
        .deadline_ms = referee->began_ms + referee->sale->limit_ms,
    };
    enum purchase purchase = PURCHASE_FAILED;

    if ((contender->embedded || client_open(&buyer.client, referee->server)) &&
        (contender->open == NULL || contender->open(&buyer))) {
        do {
            purchase = contender->buy(&buyer);
        } while ((purchase == PURCHASE_MADE || purchase == PURCHASE_AGAIN) &&
                 !buyer_is_late(&buyer));
        if (purchase == PURCHASE_MADE || purchase == PURCHASE_AGAIN) {
            (void)failure_set(&buyer.client.failure,
                              "the sale was not over within %" PRId64 " s (--limit)",
                              referee->sale->limit_ms / 1000);
        }
        if (contender->close != NULL) {
            contender->close(&buyer);
        }
    }
    if (purchase != PURCHASE_SOLD_OUT) {
        (void)failure_set(&referee->ledger->failures[index], "buyer %u: %s", index + 1,
                          buyer.client.failure.text);
    }
    client_close(&buyer.client);
    return purchase == PURCHASE_SOLD_OUT ? 0 : 1;
}

static bool show_progress(void *context, int64_t took_ms, struct failure *failure)
{
    const struct referee *referee = context;
    const struct ledger *ledger = referee->ledger;

    term_progress(&referee->demo->term,
                  "%-20s  sold %" PRId64 "  left %" PRId64 "  stopped %" PRId64 " of %" PRId64
                  "  %.1f s",
                  referee->contender->title, atomic_load(&ledger->sold), atomic_load(&ledger->left),
                  atomic_load(&ledger->stops), referee->sale->stops, (double)took_ms / 1000);
    return took_ms <= referee->sale->limit_ms + referee->sale->pause_ms + GRACE_MS ||
           failure_set(failure, "buyers hang");
}

static bool hold_sale(struct referee *referee, struct failure *failure)
{
    struct crew_work work = {
        .member = "buyer",
        .count = (unsigned)referee->sale->buyers,
        .function = buyer_main,
        .context = referee,
        .failures = referee->ledger->failures,
        .pause_ms = referee->sale->pause_ms,
        .progress = show_progress,
        .signals = &referee->demo->signals,
    };

    referee->began_ms = clock_now_ms(&clock_monotonic);
    bool held = crew_run(&work, failure);
    term_clear(&referee->demo->term);
    return held || failure_set(failure, "%s: %s", referee->contender->title, failure->text);
}

static void count_up(const struct referee *referee, int64_t left, struct sale_result *result)
{
    const struct ledger *ledger = referee->ledger;
    int64_t took_ms = atomic_load(&ledger->last_sale_ms) - referee->began_ms;

    *result = (struct sale_result){
        .contender = referee->contender,
        .sold = atomic_load(&ledger->sold),
        .left = left,
        .lowest = atomic_load(&ledger->lowest),
        .stale_tried = atomic_load(&ledger->stale_tried),
        .stale_refused = atomic_load(&ledger->stale_refused),
        .stops = atomic_load(&ledger->stops),
        .took_ms = took_ms > 0 ? took_ms : 1,
    };
    result->oversold = result->sold - (referee->sale->stock - left);
}

bool sale_is_right(const struct sale *sale, const struct sale_result *result)
{
    return result->sold + result->left == sale->stock && result->left >= 0 && result->lowest >= 0;
}

bool sale_run(struct demo *demo, const struct contender *contender, const struct sale *sale,
              struct sale_result *result, struct failure *failure)
{
    const struct client_uri *server = contender->uses_stockade ? demo->stockade : demo->redis;
    struct referee referee = {.contender = contender, .sale = sale, .server = server, .demo = demo};
    struct client client = {.context = NULL};
    int64_t left;

    referee.ledger = crew_share(sizeof *referee.ledger);
    atomic_store(&referee.ledger->left, sale->stock);
    atomic_store(&referee.ledger->lowest, sale->stock);
    bool counted =
        (contender->embedded || client_open(&client, server)) && contender->stock(&client, sale);
    if (!counted) {
        (void)failure_set(failure, "%s: %s", contender->title, client.failure.text);
    } else {
        counted = hold_sale(&referee, failure);
        if (counted && !contender->left(&client, sale, &left)) {
            counted = failure_set(failure, "%s: %s", contender->title, client.failure.text);
        }
        if (counted) {
            count_up(&referee, left, result);
        }
        (void)contender->clear(&client, sale); /* our own key; a private server goes anyway */
    }
    client_close(&client);
    crew_unshare(referee.ledger, sizeof *referee.ledger);
    return counted;
}
