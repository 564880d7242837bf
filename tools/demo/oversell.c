/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade demo oversell`: the same flash sale for each contender, on private servers where none
 * are named. The exit code says whether Stockade kept its promise, or, where Stockade was not among
 * the contenders asked for, whether the sales could be held. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli.h"
#include "tools/demo/place.h"
#include "tools/demo/report.h"
#include "tools/demo/sale.h"
#include "tools/options.h"

static const struct contender *const contenders[] = {
    &contender_no_lock, &contender_redis_lock, &contender_watchdog, &contender_decrement,
    &contender_version, &contender_stockade,   &contender_library,
};
enum { CONTENDERS = sizeof contenders / sizeof *contenders };
#define CONTENDER_NAMES "none, redis-lock, watchdog, decrement, version, stockade, library"

struct settings {
    struct sale sale;
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
    {"contender", OPTION_CALL, 0, 0, 0, "NAME", "only this one; may be repeated", set_contender},
    {"redis", OPTION_CALL, 0, 0, 0, "URI",
     "a running Redis, redis://host:port[/db], instead of a private one", set_redis},
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

static bool find_servers(struct place *place, const struct settings *set, struct failure *failure)
{
    bool needs_redis = false, needs_stockade = false;

    for (size_t i = 0; i < CONTENDERS; i++) {
        bool needs_server = set->chosen[i] && !contenders[i]->embedded;
        needs_stockade |= needs_server && contenders[i]->uses_stockade;
        needs_redis |= needs_server && !contenders[i]->uses_stockade;
    }
    return servers_make_folder(&place->servers, failure) &&
           place_find_servers(place, needs_redis, needs_stockade, failure);
}

static bool hold_sales(struct place *place, struct settings *set, bool *kept,
                       struct failure *failure)
{
    struct sale *sale = &set->sale;
    struct sale_result results[CONTENDERS];
    size_t count = 0;

    *kept = true;
    report_opening(&place->term, sale);
    if (!find_servers(place, set, failure)) {
        return false;
    }
    (void)snprintf(sale->store, sizeof sale->store, "%s/library.db", place->servers.folder);
    for (size_t i = 0; i < CONTENDERS; i++) {
        const struct contender *contender = contenders[i];
        if (!set->chosen[i]) {
            continue;
        }
        if (!sale_run(contender, sale, contender->uses_stockade ? place->stockade : place->redis,
                      &place->signals, &place->term, &results[count], failure)) {
            return false;
        }
        report_sale(&place->term, sale, &results[count]);
        if (contender->uses_stockade) {
            *kept &= sale_is_right(sale, &results[count]);
        }
        count++;
    }
    report_table(&place->term, results, count);
    report_meaning(&place->term, place->servers.redis_program.pid != 0);
    return true;
}

static void complete_settings(struct settings *set)
{
    bool any = false;

    for (size_t i = 0; i < CONTENDERS; i++) {
        any |= set->chosen[i];
    }
    for (size_t i = 0; i < CONTENDERS; i++) {
        set->chosen[i] |= !any;
    }
    if (set->sale.pause_ms == 0) {
        set->sale.pause_ms = 2 * set->sale.ttl_ms;
    }
    place_name(set->sale.key, sizeof set->sale.key, "stockade-demo:");
}

int demo_oversell_run(const struct cli *cli, int argc, char **argv)
{
    struct settings settings = {.sale = {.stock = 100,
                                         .buyers = 16,
                                         .stops = 6,
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
