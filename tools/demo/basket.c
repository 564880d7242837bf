/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade demo basket`: orders over several articles, on plain Redis and on Stockade, audited.
 * The exit code says whether Stockade kept its promise, or, where only Redis was asked for, whether
 * the sale could be held. */
#include <stddef.h>
#include <string.h>

#include "tools/cli.h"
#include "tools/demo/basket_report.h"
#include "tools/demo/place.h"
#include "tools/options.h"

static const struct basket_contender *const contenders[] = {&basket_redis_locks, &basket_stockade};
enum { CONTENDERS = sizeof contenders / sizeof *contenders };
#define CONTENDER_NAMES "redis-locks, stockade"

struct settings {
    struct basket_sale sale;
    bool chosen[CONTENDERS];
    bool redis_given;
    struct client_uri redis;
};

static bool set_contender(void *settings, const char *text, struct failure *failure)
{
    for (size_t i = 0; i < CONTENDERS; i++) {
        if (strcmp(contenders[i]->name, text) == 0) {
            ((struct settings *)settings)->chosen[i] = true;
            return true;
        }
    }
    return failure_set(failure, "takes one of " CONTENDER_NAMES ", not \"%s\"", text);
}

static bool set_redis(void *settings, const char *text, struct failure *failure)
{
    struct settings *set = settings;

    set->redis_given = true;
    return client_uri_parse(&set->redis, "redis", text, failure);
}

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
    {"contender", OPTION_CALL, 0, 0, 0, "NAME", "only this one; may be repeated", set_contender},
    {"redis", OPTION_CALL, 0, 0, 0, "URI",
     "a running Redis, redis://host:port[/db], instead of a private one", set_redis},
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

static bool hold_sales(struct place *place, const struct settings *set, bool *kept,
                       struct failure *failure)
{
    struct basket_result results[CONTENDERS];
    size_t count = 0;

    *kept = true;
    basket_report_opening(&place->term, &set->sale);
    if (!place_find_servers(place, set->chosen[0], set->chosen[1], failure)) {
        return false;
    }
    for (size_t i = 0; i < CONTENDERS; i++) {
        const struct basket_contender *contender = contenders[i];
        if (!set->chosen[i]) {
            continue;
        }
        if (!basket_sale_run(contender, &set->sale,
                             contender->uses_stockade ? place->stockade : place->redis,
                             &place->signals, &place->term, &results[count], failure)) {
            return false;
        }
        basket_report_sale(&place->term, &results[count]);
        if (contender->uses_stockade) {
            *kept = results[count].is_right;
        }
        count++;
    }
    basket_report_table(&place->term, results, count);
    basket_report_meaning(&place->term, place->servers.redis_program.pid != 0);
    return true;
}

static void complete_settings(struct settings *set)
{
    if (!set->chosen[0] && !set->chosen[1]) {
        set->chosen[0] = set->chosen[1] = true;
    }
    if (set->sale.pause_ms == 0) {
        set->sale.pause_ms = 3 * set->sale.ttl_ms;
    }
    place_name(set->sale.key, sizeof set->sale.key, "stockade-demo:");
    place_name(set->sale.table, sizeof set->sale.table, "demo_orders_");
}

int demo_basket_run(const struct cli *cli, int argc, char **argv)
{
    struct settings settings = {.sale = {.skus = 8,
                                         .stock = 20,
                                         .lines = 3,
                                         .buyers = 12,
                                         .stops = 6,
                                         .losses = 6,
                                         .ttl_ms = 200,
                                         .work_ms = 10,
                                         .limit_ms = 600000}};
    struct place place;
    struct failure failure = {.text = ""};
    bool kept = false;

    switch (options_parse(&table, &settings, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    complete_settings(&settings);
    place_open(&place, cli, settings.redis_given ? &settings.redis : NULL);
    bool held = hold_sales(&place, &settings, &kept, &failure);
    return place_close(&place, table.command, held, kept, &failure);
}
