/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade demo oversell`: the same flash sale for each contender, and what is said about it. The
 * exit code says whether Stockade kept its promise, or, where Stockade was not among the
 * contenders, whether the sales could be held. */
#include "tools/demo/oversell.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const struct contender *const contenders[] = {
    &contender_no_lock, &contender_redis_lock, &contender_watchdog, &contender_decrement,
    &contender_version, &contender_stockade,   &contender_library,
};
enum { CONTENDERS = sizeof contenders / sizeof *contenders };
static const char *const names[] = {"none",    "redis-lock", "watchdog", "decrement",
                                    "version", "stockade",   "library",  NULL};
#define CONTENDER_NAMES "none, redis-lock, watchdog, decrement, version, stockade, library"

struct settings {
    struct demo_settings demo; /* first */
    struct sale sale;
};

#define FIELD(field) offsetof(struct settings, field)
static const struct option_row rows[] = {
    {"stock", OPTION_NUMBER, FIELD(sale.stock), 1, 1000000, "N", "pieces on sale (100)", NULL},
    {"buyers", OPTION_NUMBER, FIELD(sale.buyers), 1, CREW_MAX, "N", "buyer processes (16)", NULL},
    {"ttl", OPTION_MS, FIELD(sale.ttl_ms), 10, 60000, "MS", "time limit of locks and leases (200)",
     NULL},
    {"pause", OPTION_MS, FIELD(sale.pause_ms), 1, 600000, "MS",
     "how long a stopped buyer stays stopped (twice the TTL)", NULL},
    {"work", OPTION_MS, FIELD(sale.work_ms), 0, 60000, "MS", "work between read and write (10)",
     NULL},
    {"stops", OPTION_NUMBER, FIELD(sale.stops), 0, 1000, "N", "buyers stopped in each sale (6)",
     NULL},
    DEMO_OPTION_ROWS,
    {"limit", OPTION_MS, FIELD(sale.limit_ms), 1000, 86400000, "MS",
     "a sale that takes longer has failed (10m)", NULL},
};
static const struct option_table table = {
    .command = "stockade demo oversell",
    .usage = "stockade [-u URI] demo oversell [options]",
    .about =
        "Holds the same flash sale once for each contender: no lock, the common Redis lock,\n"
        "the same with a watchdog, two remedies without a lock, and Stockade, with its daemon and\n"
        "without (the buyers open the store by the library). Some buyers are stopped between\n"
        "their read and their write for longer than the TTL.\n\n"
        "Contenders: " CONTENDER_NAMES ".\n\n"
        "Without -u and --redis it starts a private redis-server and a private stockaded on\n"
        "free ports and a temporary folder, and removes them at the end. On a running server\n"
        "it uses keys of its own, stockade-demo:*, and removes them, too.\n\n"
        "Exit code 0: Stockade kept its promise (sold + left = opening stock, nothing\n"
        "negative). 1: it did not, or the demo could not be held.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* What is said. */

static void report_opening(struct term *term, const struct sale *sale)
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

static void report_sale(struct term *term, const struct sale *sale,
                        const struct sale_result *result)
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

static void report_table(struct term *term, const struct sale_result *results, size_t count)
{
    static const char *const heads[] = {"sold",    "left",    "oversold", "stale writes tried",
                                        "refused", "sales/s", NULL};
    struct demo_row table_rows[CONTENDERS];

    for (size_t i = 0; i < count; i++) {
        const struct sale_result *result = &results[i];
        table_rows[i] =
            (struct demo_row){result->contender->title,
                              {result->sold, result->left, result->oversold, result->stale_tried,
                               result->stale_refused, result->sold * 1000 / result->took_ms}};
    }
    demo_table(term, heads, table_rows, count);
}

/* The honest small print. */
static void report_meaning(struct term *term, bool redis_is_private)
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

/* What is done. */

static bool find_servers(struct demo *demo, const struct settings *set, struct failure *failure)
{
    bool needs_redis = false, needs_stockade = false;

    for (size_t i = 0; i < CONTENDERS; i++) {
        bool needs_server = set->demo.chosen[i] && !contenders[i]->embedded;
        needs_stockade |= needs_server && contenders[i]->uses_stockade;
        needs_redis |= needs_server && !contenders[i]->uses_stockade;
    }
    return servers_make_folder(&demo->servers, failure) &&
           demo_find_servers(demo, needs_redis, needs_stockade, failure);
}

static bool hold_sales(struct demo *demo, struct settings *set, bool *kept, struct failure *failure)
{
    struct sale *sale = &set->sale;
    struct sale_result results[CONTENDERS];
    size_t count = 0;

    *kept = true;
    report_opening(&demo->term, sale);
    if (!find_servers(demo, set, failure)) {
        return false;
    }
    (void)snprintf(sale->store, sizeof sale->store, "%s/library.db", demo->servers.folder);
    for (size_t i = 0; i < CONTENDERS; i++) {
        const struct contender *contender = contenders[i];
        if (!set->demo.chosen[i]) {
            continue;
        }
        if (!sale_run(demo, contender, sale, &results[count], failure)) {
            return false;
        }
        report_sale(&demo->term, sale, &results[count]);
        if (contender->uses_stockade) {
            *kept &= sale_is_right(sale, &results[count]);
        }
        count++;
    }
    report_table(&demo->term, results, count);
    report_meaning(&demo->term, demo->servers.redis_program.pid != 0);
    return true;
}

int demo_oversell_run(const struct cli *cli, int argc, char **argv)
{
    struct settings settings = {.demo = {.names = names},
                                .sale = {.stock = 100,
                                         .buyers = 16,
                                         .stops = 6,
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
        settings.sale.pause_ms = 2 * settings.sale.ttl_ms;
    }
    demo_name(settings.sale.key, sizeof settings.sale.key, "stockade-demo:");
    demo_open(&demo, cli, &settings.demo);
    bool held = hold_sales(&demo, &settings, &kept, &failure);
    return demo_close(&demo, table.command, held, kept, &failure);
}
