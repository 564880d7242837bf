/* SPDX-License-Identifier: Apache-2.0 */
/* Words and numbers of the demo of baskets. */
#include "tools/demo/basket_report.h"

#include <inttypes.h>
#include <stdio.h>

#include "fence/base/check.h"

enum { COLUMNS = 10, RESULTS_MAX = 4 };

void basket_report_opening(struct term *term, const struct basket_sale *sale)
{
    term_line(term,
              "Baskets: %" PRId64 " articles, %" PRId64 " pieces of each, %" PRId64
              " buyers, each a process. A buyer locks %" PRId64 "\n"
              "articles, one after another in one order for all, reads their stocks and prices, "
              "works for\n"
              "%" PRId64 " ms (a price rule, a payment call), and takes 1 or 2 pieces of each and "
              "writes the order's\n"
              "rows in one transaction. %" PRId64 " times in each sale one that is about to take "
              "the last pieces of\n"
              "an article is stopped (SIGSTOP) for %" PRId64
              " ms before its transaction, and %" PRId64 " times the connection\n"
              "breaks before the transaction's reply is read; then the buyer sends it again, as "
              "clients do\n"
              "that retry. Locks and leases have a TTL of %" PRId64 " ms.\n",
              sale->skus, sale->stock, sale->buyers, sale->lines, sale->work_ms, sale->stops,
              sale->pause_ms, sale->losses, sale->ttl_ms);
}

void basket_report_sale(struct term *term, const struct basket_result *result)
{
    char verdict[128] = "the books balance";

    if (result->oversold > 0 || result->twice > 0) {
        (void)snprintf(verdict, sizeof verdict,
                       "%" PRId64 " pieces oversold, %" PRId64 " sold twice", result->oversold,
                       result->twice);
    } else if (!result->is_right) {
        (void)snprintf(verdict, sizeof verdict, "the books do not balance");
    }
    term_line(term,
              "  %-11s  %" PRId64 " baskets in %.1f s, %" PRId64 " stops, %" PRId64
              " replies lost: %s",
              result->contender->title, result->baskets, (double)result->took_ms / 1000,
              result->stops, result->losses, verdict);
}

void basket_report_table(struct term *term, const struct basket_result *results, size_t count)
{
    static const char *const heads[COLUMNS] = {"",         "baskets",    "pieces",     "left",
                                               "oversold", "sold twice", "orders off", "stale",
                                               "refused",  "baskets/s"};
    char text[RESULTS_MAX][COLUMNS][TERM_NUMBER_MAX];
    const char *cells[(RESULTS_MAX + 1) * COLUMNS];

    check(count <= RESULTS_MAX);
    for (size_t column = 0; column < COLUMNS; column++) {
        cells[column] = heads[column];
    }
    for (size_t i = 0; i < count; i++) {
        const struct basket_result *result = &results[i];
        const int64_t numbers[COLUMNS] = {0,
                                          result->baskets,
                                          result->pieces,
                                          result->left,
                                          result->oversold,
                                          result->twice,
                                          result->orders_wrong,
                                          result->stale_tried,
                                          result->stale_refused,
                                          result->baskets * 1000 / result->took_ms};
        const char **row = &cells[(i + 1) * COLUMNS];
        row[0] = result->contender->title;
        for (size_t column = 1; column < COLUMNS; column++) {
            row[column] = term_number(numbers[column], text[i][column]);
        }
    }
    term_line(term, "%s", "");
    term_table(term, cells, count + 1, COLUMNS);
}

void basket_report_meaning(struct term *term, bool redis_is_private)
{
    term_line(term, "%s",
              "\n"
              "left: what the stocks add up to. oversold: pieces by which stocks are below zero. "
              "sold twice:\n"
              "pieces that left a stock and were confirmed to no buyer. orders off: orders whose "
              "rows are not\n"
              "one whole basket. stale: transactions sent when one of their locks had passed to "
              "another.\n"
              "\n"
              "MULTI makes the basket whole on both sides. But on Redis nothing ties it to the "
              "locks: what\n"
              "was read under them may be gone. Stockade judges all tokens of the basket at EXEC, "
              "in the\n"
              "transaction that applies it. And the repeated EXEC carries an ID: Stockade answers "
              "with the\n"
              "first reply and applies nothing. (On Redis a script could look the order up first, "
              "and sell\n"
              "only what is there; then it must hold all of the logic that the locks were taken "
              "for.)");
    if (redis_is_private) {
        term_line(
            term,
            "\nStockade commits every grant and every basket to disk; the private Redis keeps "
            "nothing there.");
    }
}
