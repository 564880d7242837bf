/* SPDX-License-Identifier: Apache-2.0 */
/* The referee. A buyer that is at work when a stop is due raises SIGSTOP itself, so each stop lies
 * between a read and a write, for certain, however busy the machine is. The referee sees that the
 * process has stopped, lets the pause pass and continues it. */
#include "tools/demo/sale.h"

#include <inttypes.h>
#include <sys/mman.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"

enum { TICK_MS = 100, GRACE_MS = 20000 };

struct referee {
    const struct contender *contender;
    const struct sale *sale;
    const struct client_uri *server;
    struct ledger *ledger; /* shared with the buyers */
    struct signals *signals;
    struct term *term;
    struct crew crew;
    int64_t began_ms, tick_ms;
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

    if (client_open(&buyer.client, referee->server) &&
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
    referee->ledger->failures[index] = buyer.client.failure;
    client_close(&buyer.client);
    return purchase == PURCHASE_SOLD_OUT ? 0 : 1;
}

static void show_progress(struct referee *referee, int64_t now_ms)
{
    const struct ledger *ledger = referee->ledger;

    if (now_ms < referee->tick_ms) {
        return;
    }
    referee->tick_ms = now_ms + TICK_MS;
    term_progress(referee->term,
                  "%-20s  sold %" PRId64 "  left %" PRId64 "  stopped %" PRId64 " of %" PRId64
                  "  %.1f s",
                  referee->contender->title, atomic_load(&ledger->sold), atomic_load(&ledger->left),
                  atomic_load(&ledger->stops), referee->sale->stops,
                  (double)(now_ms - referee->began_ms) / 1000);
}

static bool buyers_failed(const struct referee *referee, struct failure *failure)
{
    for (unsigned i = 0; i < referee->crew.count; i++) {
        const char *why = referee->ledger->failures[i].text;
        if (why[0] != '\0') {
            return failure_set(failure, "%s: buyer %u: %s", referee->contender->title, i + 1, why);
        }
    }
    return failure_set(failure, "%s: a buyer crashed", referee->contender->title);
}

/* Until all buyers have left. */
static bool watch_sale(struct referee *referee, struct failure *failure)
{
    int64_t deadline_ms =
        referee->began_ms + referee->sale->limit_ms + referee->sale->pause_ms + GRACE_MS;

    while (referee->crew.running > 0) {
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        if (referee->signals->ending != 0) {
            return failure_set(failure, "interrupted");
        }
        if (now_ms > deadline_ms) {
            return failure_set(failure, "%s: buyers hang", referee->contender->title);
        }
        (void)crew_look(&referee->crew, now_ms, referee->sale->pause_ms);
        if (referee->crew.failed > 0) {
            return buyers_failed(referee, failure);
        }
        crew_wake(&referee->crew, now_ms);
        show_progress(referee, now_ms);
        if (referee->crew.running > 0) {
            int64_t until_ms = crew_next_wake(&referee->crew, referee->tick_ms);
            (void)signals_wait(referee->signals, -1, until_ms - now_ms);
        }
    }
    return true;
}

static bool hold_sale(struct referee *referee, struct failure *failure)
{
    bool held;

    referee->began_ms = clock_now_ms(&clock_monotonic);
    held =
        crew_start(&referee->crew, (unsigned)referee->sale->buyers, buyer_main, referee, failure) &&
        watch_sale(referee, failure);
    crew_end(&referee->crew);
    term_clear(referee->term);
    return held;
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

bool sale_run(const struct contender *contender, const struct sale *sale,
              const struct client_uri *server, struct signals *signals, struct term *term,
              struct sale_result *result, struct failure *failure)
{
    struct referee referee = {
        .contender = contender, .sale = sale, .server = server, .signals = signals, .term = term};
    struct client client;
    int64_t left;

    referee.ledger = mmap(NULL, sizeof *referee.ledger, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(referee.ledger != MAP_FAILED);
    atomic_store(&referee.ledger->left, sale->stock);
    atomic_store(&referee.ledger->lowest, sale->stock);
    bool counted = client_open(&client, server) && contender->stock(&client, sale);
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
    check(munmap(referee.ledger, sizeof *referee.ledger) == 0);
    return counted;
}
