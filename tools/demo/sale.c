/* SPDX-License-Identifier: Apache-2.0 */
/* From the opening of the sale to the count. */
#include "tools/demo/sale.h"

#include <inttypes.h>

#include "fence/base/clock.h"
#include "tools/demo/crowd.h"

struct referee {
    const struct contender *contender;
    const struct sale *sale;
    const struct client_uri *server;
    struct ledger *ledger; /* shared with the buyers */
    struct signals *signals;
    struct term *term;
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
    referee->ledger->failures[index] = buyer.client.failure;
    client_close(&buyer.client);
    return purchase == PURCHASE_SOLD_OUT ? 0 : 1;
}

static void show_progress(void *context, int64_t took_ms)
{
    const struct referee *referee = context;
    const struct ledger *ledger = referee->ledger;

    term_progress(referee->term,
                  "%-20s  sold %" PRId64 "  left %" PRId64 "  stopped %" PRId64 " of %" PRId64
                  "  %.1f s",
                  referee->contender->title, atomic_load(&ledger->sold), atomic_load(&ledger->left),
                  atomic_load(&ledger->stops), referee->sale->stops, (double)took_ms / 1000);
}

static bool hold_sale(struct referee *referee, struct failure *failure)
{
    const struct crowd crowd = {
        .title = referee->contender->title,
        .count = (unsigned)referee->sale->buyers,
        .function = buyer_main,
        .context = referee,
        .failures = referee->ledger->failures,
        .limit_ms = referee->sale->limit_ms,
        .pause_ms = referee->sale->pause_ms,
        .progress = show_progress,
        .signals = referee->signals,
        .term = referee->term,
    };

    referee->began_ms = clock_now_ms(&clock_monotonic);
    return crowd_run(&crowd, failure);
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
    struct client client = {.context = NULL};
    int64_t left;

    referee.ledger = crowd_share(sizeof *referee.ledger);
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
    crowd_unshare(referee.ledger, sizeof *referee.ledger);
    return counted;
}
