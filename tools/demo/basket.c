/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade demo basket`: orders over several articles, on plain Redis and on Stockade, and what is
 * said about them. */
#include "tools/demo/basket.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const struct contender *const contenders[] = {&basket_redis_locks, &basket_stockade};
#define CONTENDER_NAMES "redis-locks, stockade"

#define FIELD(field) offsetof(struct sale, field)
static const struct option_row options[] = {
    {"skus", OPTION_NUMBER, FIELD(skus), BASKET_LINES_MAX, SKUS_MAX, "N", "articles on sale (8)",
     NULL},
    {"stock", OPTION_NUMBER, FIELD(stock), 1, 1000, "N", "pieces of each (20)", NULL},
    {"lines", OPTION_NUMBER, FIELD(lines), 1, BASKET_LINES_MAX, "N", "articles in a basket (3)",
     NULL},
    {"buyers", OPTION_NUMBER, FIELD(buyers), 1, CREW_MAX, "N", "buyer processes (12)", NULL},
    {"ttl", OPTION_MS, FIELD(ttl_ms), 10, 60000, "MS", "time limit of locks and leases (200)",
     NULL},
    {"pause", OPTION_MS, FIELD(pause_ms), 1, 600000, "MS",
     "how long a stopped buyer stays stopped (three times the TTL)", NULL},
    {"work", OPTION_MS, FIELD(work_ms), 0, 60000, "MS", "work between read and write (10)", NULL},
    {"stops", OPTION_NUMBER, FIELD(stops), 0, 1000, "N", "buyers stopped in each sale (6)", NULL},
    {"losses", OPTION_NUMBER, FIELD(losses), 0, 1000, "N", "replies lost in each sale (6)", NULL},
    DEMO_OPTION_ROWS,
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
    OPTION_ROWS(options),
};

/* What is said. */

static void say_opening(struct term *term, const struct sale *sale)
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

static void say_result(struct term *term, const struct sale_result *result)
{
    char verdict[128] = "the books balance";

    if (result->oversold > 0 || result->twice > 0)
        (void)snprintf(verdict, sizeof verdict,
                       "%" PRId64 " pieces oversold, %" PRId64 " sold twice", result->oversold,
                       result->twice);
    else if (!result->is_right)
        (void)snprintf(verdict, sizeof verdict, "the books do not balance");
    term_line(term,
              "  %-11s  %" PRId64 " baskets in %.1f s, %" PRId64 " stops, %" PRId64
              " replies lost: %s",
              result->contender->title, result->baskets, (double)result->took_ms / 1000,
              result->stops, result->losses, verdict);
}

static const char *const heads[] = {"baskets",    "pieces", "left",    "oversold",  "sold twice",
                                    "orders off", "stale",  "refused", "baskets/s", NULL};

static void numbers(const struct sale_result *result, int64_t numbers[COLUMNS_MAX])
{
    numbers[0] = result->baskets;
    numbers[1] = result->pieces;
    numbers[2] = result->left;
    numbers[3] = result->oversold;
    numbers[4] = result->twice;
    numbers[5] = result->orders_wrong;
    numbers[6] = result->stale_tried;
    numbers[7] = result->stale_refused;
    numbers[8] = result->baskets * 1000 / result->took_ms;
}

static const char meaning[] =
    "\n"
    "left: what the stocks add up to. oversold: pieces by which stocks are below zero. sold "
    "twice:\n"
    "pieces that left a stock and were confirmed to no buyer. orders off: orders whose rows are "
    "not\n"
    "one whole basket. stale: transactions sent when one of their locks had passed to another.\n"
    "\n"
    "MULTI makes the basket whole on both sides. But on Redis nothing ties it to the locks: what\n"
    "was read under them may be gone. Stockade judges all tokens of the basket at EXEC, in the\n"
    "transaction that applies it. And the repeated EXEC carries an ID: Stockade answers with the\n"
    "first reply and applies nothing. (On Redis a script could look the order up first, and sell\n"
    "only what is there; then it must hold all of the logic that the locks were taken for.)";
static const char disclaimer[] =
    "\n"
    "Stockade commits every grant and every basket to disk; the private Redis keeps nothing there.";

static const struct demo demo = {
    .options = &table,
    .contenders = contenders,
    .count = sizeof contenders / sizeof *contenders,
    .name = "basket",
    .heads = heads,
    .say_opening = say_opening,
    .say_result = say_result,
    .numbers = numbers,
    .meaning = meaning,
    .disclaimer = disclaimer,
    .pause_ttls = 3,
};

int demo_basket_run(struct cli *cli, int argc, char **argv)
{
    struct sale sale = {.skus = 8,
                        .stock = 20,
                        .lines = 3,
                        .buyers = 12,
                        .stops = 6,
                        .losses = 6,
                        .ttl_ms = 200,
                        .work_ms = 10,
                        .limit_ms = 600000};

    return demo_run(&demo, &sale, cli, argc, argv);
}
