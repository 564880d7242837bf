/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade demo basket`: orders over several articles, on plain Redis and on Stockade, audited;
 * and what is said about it. The exit code says whether Stockade kept its promise, or, where only
 * Redis was asked for, whether the sale could be held. */
#include "tools/demo/basket.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const struct basket_contender *const contenders[] = {&basket_redis_locks, &basket_stockade};
enum { CONTENDERS = sizeof contenders / sizeof *contenders };
static const char *const names[] = {"redis-locks", "stockade", NULL};
#define CONTENDER_NAMES "redis-locks, stockade"

struct settings {
    struct demo_settings demo; /* first */
    struct basket_sale sale;
};

#define FIELD(field) offsetof(struct settings, field)
static const struct option_row rows[] = {
    {"skus", OPTION_NUMBER, FIELD(sale.skus), BASKET_LINES_MAX, BASKET_SKUS_MAX, "N",
     "articles on sale (8)", NULL},
    {"stock", OPTION_NUMBER, FIELD(sale.stock), 1, 1000, "N", "pieces of each (20)", NULL},
    {"lines", OPTION_NUMBER, FIELD(sale.lines), 1, BASKET_LINES_MAX, "N",
     "articles in a basket (3)", NULL},
    {"buyers", OPTION_NUMBER, FIELD(sale.buyers), 1, CREW_MAX, "N", "buyer processes (12)", NULL},
    {"ttl", OPTION_MS, FIELD(sale.ttl_ms), 10, 60000, "MS", "time limit of locks and leases (200)",
     NULL},
    {"pause", OPTION_MS, FIELD(sale.pause_ms), 1, 600000, "MS",
     "how long a stopped buyer stays stopped (three times the TTL)", NULL},
    {"work", OPTION_MS, FIELD(sale.work_ms), 0, 60000, "MS", "work between read and write (10)",
     NULL},
    {"stops", OPTION_NUMBER, FIELD(sale.stops), 0, 1000, "N", "buyers stopped in each sale (6)",
     NULL},
    {"losses", OPTION_NUMBER, FIELD(sale.losses), 0, 1000, "N", "replies lost in each sale (6)",
     NULL},
    DEMO_OPTION_ROWS,
    {"limit", OPTION_MS, FIELD(sale.limit_ms), 1000, 86400000, "MS",
     "a sale that takes longer has failed (10m)", NULL},
};
static const struct option_table table = {
    .command = "stockade demo basket",
    .usage = "stockade [-u URI] demo basket [options]",
    .about =
        "Sells baskets of several articles, once with the common Redis lock and MULTI, once\n"
        "with Stockade, where the order is a row in SQL of the same transaction. Some buyers are\n"
        "stopped for longer than the TTL before their transaction, some lose its reply and send\n"
        "it again. At the end stocks, orders and confirmed sales are held against each other.\n\n"
        "Contenders: " CONTENDER_NAMES ".\n\n"
        "Without -u and --redis it starts a private redis-server and a private stockaded on\n"
        "free ports and a temporary folder, and removes them at the end. On a running server\n"
        "it uses keys of its own, stockade-demo:*, and a table of its own, and removes them,\n"
        "too; it has to be an administrator there.\n\n"
        "Exit code 0: Stockade kept its promise (for each article sold + left = opening stock,\n"
        "nothing negative, and the orders say the same). 1: it did not, or the demo could not\n"
        "be held.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* What is said. */

static void report_opening(struct term *term, const struct basket_sale *sale)
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

static void report_sale(struct term *term, const struct basket_result *result)
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

static void report_table(struct term *term, const struct basket_result *results, size_t count)
{
    static const char *const heads[] = {"baskets",    "pieces",     "left",  "oversold",
                                        "sold twice", "orders off", "stale", "refused",
                                        "baskets/s",  NULL};
    struct demo_row table_rows[CONTENDERS];

    for (size_t i = 0; i < count; i++) {
        const struct basket_result *result = &results[i];
        table_rows[i] =
            (struct demo_row){result->contender->title,
                              {result->baskets, result->pieces, result->left, result->oversold,
                               result->twice, result->orders_wrong, result->stale_tried,
                               result->stale_refused, result->baskets * 1000 / result->took_ms}};
    }
    demo_table(term, heads, table_rows, count);
}

static void report_meaning(struct term *term, bool redis_is_private)
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

/* What is done. */

static bool hold_sales(struct demo *demo, const struct settings *set, bool *kept,
                       struct failure *failure)
{
    struct basket_result results[CONTENDERS];
    size_t count = 0;

    *kept = true;
    report_opening(&demo->term, &set->sale);
    if (!demo_find_servers(demo, set->demo.chosen[0], set->demo.chosen[1], failure)) {
        return false;
    }
    for (size_t i = 0; i < CONTENDERS; i++) {
        const struct basket_contender *contender = contenders[i];
        if (!set->demo.chosen[i]) {
            continue;
        }
        if (!basket_sale_run(demo, contender, &set->sale, &results[count], failure)) {
            return false;
        }
        report_sale(&demo->term, &results[count]);
        if (contender->uses_stockade) {
            *kept = results[count].is_right;
        }
        count++;
    }
    report_table(&demo->term, results, count);
    report_meaning(&demo->term, demo->servers.redis_program.pid != 0);
    return true;
}

int demo_basket_run(const struct cli *cli, int argc, char **argv)
{
    struct settings settings = {.demo = {.names = names},
                                .sale = {.skus = 8,
                                         .stock = 20,
                                         .lines = 3,
                                         .buyers = 12,
                                         .stops = 6,
                                         .losses = 6,
                                         .ttl_ms = 200,
                                         .work_ms = 10,
                                         .limit_ms = 600000}};
    struct demo demo;
    struct failure failure = {.text = ""};
    bool kept = false;

    switch (options_parse(&table, &settings, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    if (settings.sale.pause_ms == 0) {
        settings.sale.pause_ms = 3 * settings.sale.ttl_ms;
    }
    demo_name(settings.sale.key, sizeof settings.sale.key, "stockade-demo:");
    demo_name(settings.sale.table, sizeof settings.sale.table, "demo_orders_");
    demo_open(&demo, cli, &settings.demo);
    bool held = hold_sales(&demo, &settings, &kept, &failure);
    return demo_close(&demo, table.command, held, kept, &failure);
}
