/* SPDX-License-Identifier: Apache-2.0 */
/* One sale of baskets, from its opening to the audit, which compares what the stocks say, what the
 * orders say, and what buyers were told. */
#include "tools/demo/basket.h"

#include <inttypes.h>
#include <stdlib.h>

#include "fence/base/clock.h"
#include "fence/base/mem.h"

enum { ORDERS_OF_A_BUYER_MAX = 1000000, GRACE_MS = 20000 };

struct referee {
    const struct basket_contender *contender;
    const struct basket_sale *sale;
    const struct client_uri *server;
    struct basket_ledger *ledger;
    struct demo *demo;
    int64_t began_ms;
};

/* In the child. */
static int buyer_main(void *context, unsigned index)
{
    const struct referee *referee = context;
    const struct basket_sale *sale = referee->sale;
    struct basket_buyer buyer = {
        .sale = sale,
        .contender = referee->contender,
        .server = referee->server,
        .ledger = referee->ledger,
        .deadline_ms = referee->began_ms + sale->limit_ms,
        .order = (int64_t)(index + 1) * ORDERS_OF_A_BUYER_MAX,
    };
    enum purchase purchase = PURCHASE_FAILED;
    bool late = false;

    if (client_open(&buyer.client, referee->server) &&
        client_limit(&buyer.client, 2 * CLIENT_LIMIT_MS)) {
        do {
            purchase = basket_buy(&buyer);
            late = clock_now_ms(&clock_monotonic) > buyer.deadline_ms;
        } while ((purchase == PURCHASE_MADE || purchase == PURCHASE_AGAIN) && !late);
        if (late && purchase != PURCHASE_SOLD_OUT) {
            (void)failure_set(&buyer.client.failure,
                              "the sale was not over within %" PRId64 " s (--limit)",
                              sale->limit_ms / 1000);
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
    const struct basket_ledger *ledger = referee->ledger;

    term_progress(&referee->demo->term,
                  "%-20s  baskets %" PRId64 "  pieces %" PRId64 " of %" PRId64 "  stopped %" PRId64
                  " of %" PRId64 "  %.1f s",
                  referee->contender->title, atomic_load(&ledger->baskets),
                  atomic_load(&ledger->pieces), referee->sale->skus * referee->sale->stock,
                  atomic_load(&ledger->stops), referee->sale->stops, (double)took_ms / 1000);
    return took_ms <= referee->sale->limit_ms + referee->sale->pause_ms + GRACE_MS ||
           failure_set(failure, "buyers hang");
}

/* Every order row that there is. */
struct rows {
    struct row {
        int64_t order, sku, quantity;
    } * list;
    size_t count, room;
};

static void note_row(void *context, int64_t order, int64_t sku, int64_t quantity)
{
    struct rows *rows = context;

    if (rows->count == rows->room) {
        rows->room = rows->room * 2 + 256;
        rows->list = mem_realloc(rows->list, rows->room * sizeof *rows->list);
    }
    rows->list[rows->count++] = (struct row){order, sku, quantity};
}

static int compare_rows(const void *a, const void *b)
{
    const struct row *one = a, *other = b;

    if (one->order != other->order) {
        return one->order < other->order ? -1 : 1;
    }
    return (one->sku > other->sku) - (one->sku < other->sku);
}

/* Count the orders, and those whose rows are not one for each of `lines` articles. */
static void count_orders(struct rows *rows, int64_t lines, int64_t *orders, int64_t *wrong)
{
    *orders = *wrong = 0;
    if (rows->count > 0) {
        qsort(rows->list, rows->count, sizeof *rows->list, compare_rows);
    }
    for (size_t i = 0, first; i < rows->count;) {
        bool twice = false;
        for (first = i++; i < rows->count && rows->list[i].order == rows->list[first].order; i++) {
            twice |= rows->list[i].sku == rows->list[i - 1].sku;
        }
        ++*orders;
        *wrong += twice || (int64_t)(i - first) != lines;
    }
}

/* Compare stocks, orders and confirmed sales, article by article. */
static void audit(const struct referee *referee, struct rows *rows, const int64_t *left,
                  struct basket_result *result)
{
    const struct basket_sale *sale = referee->sale;
    int64_t ordered[BASKET_SKUS_MAX] = {0}, orders;

    count_orders(rows, sale->lines, &orders, &result->orders_wrong);
    result->is_right = result->orders_wrong == 0 && orders == result->baskets;
    for (size_t i = 0; i < rows->count; i++) {
        if (rows->list[i].sku >= 0 && rows->list[i].sku < sale->skus) {
            ordered[rows->list[i].sku] += rows->list[i].quantity;
        } else {
            result->is_right = false;
        }
    }
    for (int sku = 0; sku < (int)sale->skus; sku++) {
        int64_t sold = atomic_load(&referee->ledger->sold[sku]), gone = sale->stock - left[sku];
        result->left += left[sku];
        result->oversold += left[sku] < 0 ? -left[sku] : 0;
        result->twice += gone > sold ? gone - sold : 0;
        result->is_right &= gone == sold && left[sku] >= 0 && ordered[sku] == gone;
    }
}

static bool count_up(const struct referee *referee, struct client *client,
                     struct basket_result *result)
{
    const struct basket_ledger *ledger = referee->ledger;
    const struct basket_sale *sale = referee->sale;
    int64_t took_ms = atomic_load(&ledger->last_sale_ms) - referee->began_ms;
    int64_t left[BASKET_SKUS_MAX];
    int skus[BASKET_SKUS_MAX];
    struct rows rows = {.list = NULL};

    *result = (struct basket_result){
        .contender = referee->contender,
        .baskets = atomic_load(&ledger->baskets),
        .pieces = atomic_load(&ledger->pieces),
        .stops = atomic_load(&ledger->stops),
        .losses = atomic_load(&ledger->losses),
        .stale_tried = atomic_load(&ledger->stale_tried),
        .stale_refused = atomic_load(&ledger->stale_refused),
        .took_ms = took_ms > 0 ? took_ms : 1,
    };
    for (int sku = 0; sku < (int)sale->skus; sku++) {
        skus[sku] = sku;
    }
    bool counted = basket_read(client, sale, "stock", skus, (size_t)sale->skus, left) &&
                   referee->contender->orders(client, sale, note_row, &rows);
    if (counted) {
        audit(referee, &rows, left, result);
    }
    free(rows.list);
    return counted;
}

static bool hold(struct referee *referee, struct failure *failure)
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

bool basket_sale_run(struct demo *demo, const struct basket_contender *contender,
                     const struct basket_sale *sale, struct basket_result *result,
                     struct failure *failure)
{
    const struct client_uri *server = contender->uses_stockade ? demo->stockade : demo->redis;
    struct referee referee = {.contender = contender, .sale = sale, .server = server, .demo = demo};
    struct client client;

    referee.ledger = crew_share(sizeof *referee.ledger);
    bool opened = client_open(&client, server) && contender->open(&client, sale);
    bool held = opened && hold(&referee, failure);
    bool counted = held && count_up(&referee, &client, result);
    if (!opened || (held && !counted)) {
        (void)failure_set(failure, "%s: %s", contender->title, client.failure.text);
    }
    if (client.context != NULL) {
        (void)contender->clear(&client, sale); /* our own keys; a private server goes anyway */
    }
    client_close(&client);
    crew_unshare(referee.ledger, sizeof *referee.ledger);
    return counted;
}
