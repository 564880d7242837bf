/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade demo oversell`: the same flash sale for each contender, on private servers where none
 * are named. The exit code says whether Stockade kept its promise, or, where Stockade was not among
 * the contenders asked for, whether the sales could be held. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/clock.h"
#include "tools/cli.h"
#include "tools/demo/report.h"
#include "tools/demo/sale.h"
#include "tools/options.h"
#include "tools/servers.h"

static const struct contender *const contenders[] = {
    &contender_no_lock,   &contender_redis_lock, &contender_watchdog,
    &contender_decrement, &contender_version,    &contender_stockade,
};
enum { CONTENDERS = sizeof contenders / sizeof *contenders };
#define CONTENDER_NAMES "none, redis-lock, watchdog, decrement, version, stockade"

struct settings {
    struct sale sale;
    bool chosen[CONTENDERS];
    bool redis_given;
    struct client_uri redis;
};

struct demo {
    struct settings settings;
    const struct cli *cli;
    struct signals signals;
    struct servers servers;
    struct term term;
    const struct client_uri *redis, *stockade; /* the servers in use */
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
        "the same with a watchdog, two remedies without a lock, and Stockade. Some buyers are\n"
        "stopped between their read and their write for longer than the TTL.\n\n"
        "Contenders: " CONTENDER_NAMES ".\n\n"
        "Without -u and --redis it starts a private redis-server and a private stockaded on\n"
        "free ports and a temporary folder, and removes them at the end. On a running server\n"
        "it uses keys of its own, stockade-demo:*, and removes them, too.\n\n"
        "Exit code 0: Stockade kept its promise (sold + left = opening stock, nothing\n"
        "negative). 1: it did not, or the demo could not be held.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

/* Running servers where they were named, private ones where they are needed. */
static bool find_servers(struct demo *demo, struct failure *failure)
{
    const struct settings *set = &demo->settings;
    bool needs_redis = false, needs_stockade = false;
    char lease[512];

    for (size_t i = 0; i < CONTENDERS; i++) {
        needs_stockade |= set->chosen[i] && contenders[i]->uses_stockade;
        needs_redis |= set->chosen[i] && !contenders[i]->uses_stockade;
    }
    needs_redis |= needs_stockade && !demo->cli->uri_given; /* for its leases */
    demo->redis = set->redis_given ? &set->redis : &demo->servers.redis;
    demo->stockade = demo->cli->uri_given ? &demo->cli->uri : &demo->servers.stockade;
    if (needs_redis && !set->redis_given && !servers_start_redis(&demo->servers, failure)) {
        return false;
    }
    if (needs_stockade && !demo->cli->uri_given) {
        servers_lease_uri(demo->redis, lease, sizeof lease);
        return servers_start_stockaded(&demo->servers, lease, failure);
    }
    return true;
}

static void say_servers(struct demo *demo)
{
    if (demo->servers.redis_program.pid != 0) {
        term_line(&demo->term, "private redis-server on port %d (it keeps nothing on disk)",
                  demo->servers.redis.port);
    }
    if (demo->servers.stockaded_program.pid != 0) {
        term_line(&demo->term, "private stockaded on port %d, leases on %s Redis",
                  demo->servers.stockade.port, demo->settings.redis_given ? "the given" : "that");
    }
    term_line(&demo->term, "%s", "");
}

static bool hold_sales(struct demo *demo, bool *kept, struct failure *failure)
{
    const struct sale *sale = &demo->settings.sale;
    struct sale_result results[CONTENDERS];
    size_t count = 0;

    *kept = true;
    report_opening(&demo->term, sale);
    if (!find_servers(demo, failure)) {
        return false;
    }
    say_servers(demo);
    for (size_t i = 0; i < CONTENDERS; i++) {
        const struct contender *contender = contenders[i];
        if (!demo->settings.chosen[i]) {
            continue;
        }
        if (!sale_run(contender, sale, contender->uses_stockade ? demo->stockade : demo->redis,
                      &demo->signals, &demo->term, &results[count], failure)) {
            return false;
        }
        report_sale(&demo->term, sale, &results[count]);
        if (contender->uses_stockade) {
            *kept = sale_is_right(sale, &results[count]);
        }
        count++;
    }
    report_table(&demo->term, results, count);
    report_meaning(&demo->term, demo->servers.redis_program.pid != 0);
    return true;
}

/* Keys of this run alone, so that a running server's other data is out of reach. */
static void name_key(struct sale *sale)
{
    uint64_t number;

    chance_system.fill(&chance_system, &number, sizeof number);
    (void)snprintf(sale->key, sizeof sale->key, "stockade-demo:%016" PRIx64, number);
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
    name_key(&set->sale);
}

int demo_oversell_run(const struct cli *cli, int argc, char **argv)
{
    struct demo demo = {
        .settings.sale = {.stock = 100,
                          .buyers = 16,
                          .stops = 6,
                          .ttl_ms = 200,
                          .work_ms = 10,
                          .limit_ms = 600000},
        .cli = cli,
    };
    struct failure failure = {.text = ""};
    bool kept = false;

    switch (options_parse(&table, &demo.settings, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    complete_settings(&demo.settings);
    term_open(&demo.term);
    signals_open(&demo.signals);
    servers_open(&demo.servers, &demo.signals);
    bool held = hold_sales(&demo, &kept, &failure);
    term_clear(&demo.term);
    servers_close(&demo.servers);
    signals_close(&demo.signals);
    if (demo.signals.ending != 0) {
        fprintf(stderr, "stockade demo oversell: interrupted; the servers are gone\n");
        return 128 + demo.signals.ending;
    }
    if (!held) {
        fprintf(stderr, "stockade demo oversell: %s\n", failure.text);
    } else if (!kept) {
        fprintf(stderr, "stockade demo oversell: Stockade did not keep its promise\n");
    }
    return held && kept ? CLI_OK : CLI_FAILED;
}
