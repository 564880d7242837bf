/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade demo oversell`: the flash sale of one article, what is said about it, and when its
 * books balance. */
#include "tools/demo/oversell.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

static const struct contender *const contenders[] = {
    &contender_no_lock,  &contender_redis_lock, &contender_watchdog,
    &contender_redis_py, &contender_decrement,  &contender_version,
    &contender_stockade, &contender_library,    &contender_redis_py_stockade,
};
static const struct contender *const contenders_in_postgresql[] = {
    &contender_plain_lock,
    &contender_row_lock,
    &contender_version_column,
    &contender_guard,
};
#define CONTENDER_NAMES                                                                            \
    "none, redis-lock, watchdog, redis-py, decrement, version, stockade, library,\n"               \
    "redis-py-stockade"

#define FIELD(field) offsetof(struct sale, field)
static const struct option_row rows[] = {
    {"stock", OPTION_NUMBER, FIELD(stock), 1, 1000000, "N", "pieces on sale (100)", NULL},
    {"buyers", OPTION_NUMBER, FIELD(buyers), 1, CREW_MAX, "N", "buyer processes (16)", NULL},
    {"ttl", OPTION_MS, FIELD(ttl_ms), 10, 60000, "MS", "time limit of locks and leases (200)",
     NULL},
    {"pause", OPTION_MS, FIELD(pause_ms), 1, 600000, "MS",
     "how long a stopped buyer stays stopped (twice the TTL)", NULL},
    {"work", OPTION_MS, FIELD(work_ms), 0, 60000, "MS", "work between read and write (10)", NULL},
    {"stops", OPTION_NUMBER, FIELD(stops), 0, 1000, "N", "buyers stopped in each sale (6)", NULL},
    {"store", OPTION_TEXT, FIELD(database), 0, 0, "URI",
     "hold it in PostgreSQL: its URI, or \"postgresql\" for a private one", NULL},
    DEMO_OPTION_ROWS,
};
static const struct option_table table = {
    .command = "stockade demo oversell",
    .usage = "stockade [-u URI] demo oversell [options]",
    .about =
        "Holds the same flash sale once for each contender: no lock, the common Redis lock,\n"
        "the same with a watchdog, redis-py's Lock, two remedies without a lock, and Stockade,\n"
        "with its daemon, without (the buyers open the store by the library), and for redis-py's\n"
        "Lock (lock keys). Some buyers are stopped between their read and their write for longer\n"
        "than the TTL.\n\n"
        "Contenders: " CONTENDER_NAMES ".\n\n"
        "With --store the stock is a row of a table in PostgreSQL, and buyers write SQL of their\n"
        "own: under a lock with a time limit that is kept in a table, under a row lock that is\n"
        "held over the work, with a version column, and with Stockade's guard on the table.\n\n"
        "Contenders there: plain-lock, row-lock, version, guard.\n\n"
        "Without -u and --redis it starts a private redis-server and a private stockaded on\n"
        "free ports and a temporary folder, and removes them at the end. On a running server\n"
        "it uses keys of its own, stockade-demo:*, and removes them, too; in a given PostgreSQL a\n"
        "database of its own, demo_orders_*, which it has to be allowed to make.\n\n"
        "Exit code 0: Stockade kept its promise (sold + left = opening stock, nothing\n"
        "negative). 1: it did not, or the demo could not be held.",
    OPTION_ROWS(rows),
};

/* What is said. */

static void say_opening(struct term *term, const struct sale *sale)
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
    if (sale->pause_ms <= sale->ttl_ms)
        term_line(term, "(The pause is not longer than the TTL: no lock is lost in it.)\n");
}

static void say_result(struct term *term, const struct sale_result *result)
{
    char verdict[64] = "the books balance";

    if (result->oversold > 0)
        (void)snprintf(verdict, sizeof verdict, "%" PRId64 " sold that were not there",
                       result->oversold);
    else if (!result->is_right)
        (void)snprintf(verdict, sizeof verdict, "the books do not balance");
    term_line(term, "  %-20s  %" PRId64 " sold in %.1f s, %" PRId64 " stops: %s",
              result->contender->title, result->pieces, (double)result->took_ms / 1000,
              result->stops, verdict);
}

static const char *const heads[] = {"sold",    "left",    "oversold", "stale writes tried",
                                    "refused", "sales/s", NULL};

static void numbers(const struct sale_result *result, int64_t numbers[COLUMNS_MAX])
{
    numbers[0] = result->pieces;
    numbers[1] = result->left;
    numbers[2] = result->oversold;
    numbers[3] = result->stale_tried;
    numbers[4] = result->stale_refused;
    numbers[5] = result->pieces * 1000 / result->took_ms;
}

/* What the table does not say by itself. */
static const char meaning[] =
    "\n"
    "oversold: sales confirmed to buyers beyond what left the stock (they count in sales/s). A\n"
    "stale write: the lock (or, without one, the stock) had passed to another since its writer\n"
    "read.\n"
    "\n"
    "A lock with a time limit, watchdog or not, cannot stop a holder that sleeps past the limit\n"
    "and writes when it wakes. Stockade refuses that write, because its token is not the newest.\n"
    "\n"
    "The atomic decrement and the version column are right here too, need no lock, and are the\n"
    "better choice where they fit: one row, changed by one statement, nothing computed or called\n"
    "in between (decrement), or cheap enough to do again when another came first (version). They\n"
    "do not cover several rows, calls to the outside that must not be made twice, or longer logic\n"
    "between read and write.";
static const char disclaimer[] =
    "\n"
    "Stockade commits every grant and write to disk; the private Redis keeps nothing there, from\n"
    "which its contenders' sales/s profit.";

static const char *const heads_in_postgresql[] = {"sold",         "left",          "oversold",
                                                  "stale tried",  "refused",       "sales/s",
                                                  "busy ms/sale", "standstill ms", NULL};

static void numbers_in_postgresql(const struct sale_result *result, int64_t out[COLUMNS_MAX])
{
    numbers(result, out);
    out[6] = result->pieces > 0 ? result->used_ms / result->pieces : 0;
    out[7] = result->stood_ms;
}

static const char meaning_in_postgresql[] =
    "\n"
    "busy: how long a connection was in use for each sale, waiting included; in the time between,\n"
    "a pool could have given it to others. standstill: the longest time in which nobody bought.\n"
    "\n"
    "The plain lock, a row with a time limit, cannot stop a holder that sleeps past the limit and\n"
    "writes when it wakes. The row lock is right: the transaction spans the payment call, so\n"
    "nobody is ever late. But everybody who waits needs a connection to wait on, and while the\n"
    "holder sleeps nobody buys, however long that is (under a lease: for its TTL at most). The\n"
    "version column is right, too, and does the work anew, with its payment call, each time that\n"
    "another came first (refused). Stockade's guard is on the table: the late write is refused,\n"
    "whoever sends it, and between its statements a buyer needs no connection.";

static const struct demo in_postgresql = {
    .options = &table,
    .contenders = contenders_in_postgresql,
    .count = sizeof contenders_in_postgresql / sizeof *contenders_in_postgresql,
    .name = "oversell",
    .heads = heads_in_postgresql,
    .say_opening = say_opening,
    .say_result = say_result,
    .numbers = numbers_in_postgresql,
    .meaning = meaning_in_postgresql,
    .disclaimer = "",
    .pause_ttls = 2,
};

static const struct demo demo = {
    .options = &table,
    .contenders = contenders,
    .count = sizeof contenders / sizeof *contenders,
    .name = "oversell",
    .heads = heads,
    .say_opening = say_opening,
    .say_result = say_result,
    .numbers = numbers,
    .meaning = meaning,
    .disclaimer = disclaimer,
    .pause_ttls = 2,
    .in_postgresql = &in_postgresql,
};

int demo_oversell_run(struct cli *cli, int argc, char **argv)
{
    struct sale sale = {.skus = 1,
                        .stock = 100,
                        .buyers = 16,
                        .stops = 6,
                        .ttl_ms = 200,
                        .work_ms = 10,
                        .limit_ms = 600000};

    return demo_run(&demo, &sale, cli, argc, argv);
}
