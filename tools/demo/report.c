/* SPDX-License-Identifier: Apache-2.0 */
/* Words and numbers of the demo. */
#include "tools/demo/report.h"

#include <inttypes.h>
#include <stdio.h>

#include "fence/base/check.h"

enum { COLUMNS = 7, CELL_MAX = TERM_NUMBER_MAX, RESULTS_MAX = 16 };

void report_opening(struct term *term, const struct sale *sale)
{
    term_line(term,
              "Flash sale: %" PRId64 " pieces of one article, %" PRId64
              " buyers, each a process. A buyer reads the stock,\n"
              "works for %" PRId64
              " ms (a price rule, a payment call) and writes the stock back. %" PRId64
              " times in each\n"
              "sale one is stopped (SIGSTOP) between its read and its write for %" PRId64
              " ms, as by a garbage\n"
              "collector, then continued. Locks and leases have a TTL of %" PRId64 " ms.\n",
              sale->stock, sale->buyers, sale->work_ms, sale->stops, sale->pause_ms, sale->ttl_ms);
    if (sale->pause_ms <= sale->ttl_ms) {
        term_line(term, "(The pause is not longer than the TTL: no lock is lost in it.)\n");
    }
}

void report_sale(struct term *term, const struct sale *sale, const struct sale_result *result)
{
    const char *verdict = "the books balance";
    char oversold[64];

    if (result->oversold > 0) {
        (void)snprintf(oversold, sizeof oversold, "%" PRId64 " sold that were not there",
                       result->oversold);
        verdict = oversold;
    } else if (!sale_is_right(sale, result)) {
        verdict = "the books do not balance";
    }
    term_line(term, "  %-20s  %" PRId64 " sold in %.1f s, %" PRId64 " stops: %s",
              result->contender->title, result->sold, (double)result->took_ms / 1000, result->stops,
              verdict);
}

void report_table(struct term *term, const struct sale_result *results, size_t count)
{
    static const char *const heads[COLUMNS] = {
        "", "sold", "left", "oversold", "stale writes tried", "refused", "sales/s"};
    char text[RESULTS_MAX][COLUMNS][CELL_MAX];
    const char *cells[(RESULTS_MAX + 1) * COLUMNS];

    check(count <= RESULTS_MAX);
    for (size_t column = 0; column < COLUMNS; column++) {
        cells[column] = heads[column];
    }
    for (size_t i = 0; i < count; i++) {
        const struct sale_result *result = &results[i];
        const int64_t numbers[COLUMNS] = {0,
                                          result->sold,
                                          result->left,
                                          result->oversold,
                                          result->stale_tried,
                                          result->stale_refused,
                                          result->sold * 1000 / result->took_ms};
        const char **row = &cells[(i + 1) * COLUMNS];
        row[0] = result->contender->title;
        for (size_t column = 1; column < COLUMNS; column++) {
            row[column] = term_number(numbers[column], text[i][column]);
        }
    }
    term_line(term, "%s", "");
    term_table(term, cells, count + 1, COLUMNS);
}

void report_meaning(struct term *term, bool redis_is_private)
{
    term_line(term, "\noversold: sales confirmed to buyers beyond what left the stock (they count "
                    "in sales/s). A\n"
                    "stale write: the lock (or, without one, the stock) had passed to another "
                    "since its writer\n"
                    "read.\n"
                    "\n"
                    "A lock with a time limit, watchdog or not, cannot stop a holder that sleeps "
                    "past the limit\n"
                    "and writes when it wakes. Stockade refuses that write, because its token is "
                    "not the newest.\n"
                    "\n"
                    "The atomic decrement and the version column are right here too, need no lock, "
                    "and are the\n"
                    "better choice where they fit: one row, changed by one statement, nothing "
                    "computed or called\n"
                    "in between (decrement), or cheap enough to do again when another came first "
                    "(version). They\n"
                    "do not cover several rows, calls to the outside that must not be made twice, "
                    "or longer logic\n"
                    "between read and write.");
    if (redis_is_private) {
        term_line(
            term,
            "\nStockade commits every grant and write to disk; the private Redis keeps nothing"
            " there, from\nwhich its contenders' sales/s profit.");
    }
}
