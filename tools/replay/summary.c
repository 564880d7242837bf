/* SPDX-License-Identifier: Apache-2.0 */
/* Words and numbers of the replay. */
#include "tools/replay/summary.h"

#include <inttypes.h>

enum { BAR_WIDTH = 30 };

void summary_orders(struct term *term, const struct replay *replay)
{
    const struct orders *orders = &replay->orders;
    char lines[TERM_NUMBER_MAX], invoices[TERM_NUMBER_MAX], skus[TERM_NUMBER_MAX],
        malformed[TERM_NUMBER_MAX];

    term_line(term, "orders: %s lines in %s invoices, %s SKUs; %s malformed lines skipped",
              term_number((int64_t)orders->order_count, lines),
              term_number((int64_t)orders->invoice_count, invoices),
              term_number((int64_t)orders->sku_count, skus),
              term_number((int64_t)orders->malformed, malformed));
    term_line(term,
              "opening stock: derived, %" PRId64
              " %% of each SKU's gross demand (the file has no stock levels)",
              replay->opening_percent);
}

void summary_progress(struct term *term, const struct replay *replay, int64_t took_ms)
{
    int64_t done = atomic_load(&replay->tally->done);
    int64_t total = (int64_t)replay->orders.order_count;
    char bar[TERM_BAR_MAX], lines[TERM_NUMBER_MAX], rate[TERM_NUMBER_MAX];

    term_progress(term, "%s %3" PRId64 " %%  %s lines  %s/s  stale refused %" PRId64,
                  term_bar(done, total, BAR_WIDTH, bar), done * 100 / total,
                  term_number(done, lines),
                  term_number(took_ms > 0 ? done * 1000 / took_ms : 0, rate),
                  atomic_load(&replay->tally->stale));
}

void summary_result(struct term *term, const struct replay *replay, int64_t stops, int64_t took_ms)
{
    const struct tally *tally = replay->tally;
    int64_t done = atomic_load(&tally->done);
    char numbers[6][TERM_NUMBER_MAX];

    term_line(term, "replayed %s lines in %.1f s: %s lines/s", term_number(done, numbers[0]),
              (double)took_ms / 1000, term_number(done * 1000 / took_ms, numbers[1]));
    term_line(term, "  sales %s, sold out (found no stock) %s, returns %s",
              term_number(atomic_load(&tally->sales), numbers[2]),
              term_number(atomic_load(&tally->no_stock), numbers[3]),
              term_number(atomic_load(&tally->returns), numbers[4]));
    term_line(term,
              "  workers stopped past their TTL %" PRId64
              ", stale writes refused and done again %s",
              stops, term_number(atomic_load(&tally->stale), numbers[5]));
    if (atomic_load(&tally->busy) + atomic_load(&tally->held) > 0) {
        term_line(term, "  tried again: server busy %" PRId64 ", waited in vain %" PRId64,
                  atomic_load(&tally->busy), atomic_load(&tally->held));
    }
}

bool summary_audit(struct term *term, const struct replay *replay, const struct audit *audit)
{
    int64_t below_zero = atomic_load(&replay->tally->below_zero);
    char right[TERM_NUMBER_MAX], sold_out[TERM_NUMBER_MAX];

    if (audit->wrong == 0 && audit->below_zero == 0 && below_zero == 0) {
        term_line(term,
                  "audit: opening - sold + returned = left for all %s SKUs, none ever below 0; %s"
                  " with nothing left",
                  term_number((int64_t)audit->right, right),
                  term_number((int64_t)audit->sold_out, sold_out));
        return true;
    }
    term_line(term,
              "audit FAILED: wrong for %zu of %zu SKUs; %zu below 0 at the end, %" PRId64
              " times read below 0",
              audit->wrong, audit->wrong + audit->right, audit->below_zero, below_zero);
    return false;
}
