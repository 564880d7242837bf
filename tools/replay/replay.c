/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade replay`: order history as stock movements. The parent loads the orders and the opening
 * stock, forks the workers, continues those that stopped between read and write, and audits every
 * SKU at the end. Exit code 0 only where the audit is right. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/replay/inventory.h"
#include "tools/replay/replaying.h"
#include "tools/replay/summary.h"
#include "tools/servers.h"
#include "tools/term.h"

enum { TICK_MS = 100, STALL_LIMIT_MS = 120000, PREFIX_MAX = 128 };

struct settings {
    const char *orders, *prefix, *lease;
    int64_t opening_percent, workers, limit, pause_every, ttl_ms, pause_ms;
    bool strict;
};

struct run {
    struct settings settings;
    const struct cli *cli;
    struct replay replay;
    struct signals signals;
    struct servers servers;
    struct term term;
    struct crew crew;
    size_t tally_size;
    int64_t began_ms, took_ms;
    int64_t stops;
    size_t planned; /* lines where a worker is to be stopped */
};

#define FIELD(field) offsetof(struct settings, field)
static const struct option_row rows[] = {
    {"orders", OPTION_TEXT, FIELD(orders), 0, 0, "FILE", "the orders, .csv or .csv.gz (required)",
     NULL},
    {"opening", OPTION_NUMBER, FIELD(opening_percent), 0, 1000, "PERCENT",
     "opening stock, of each SKU's gross demand (60)", NULL},
    {"workers", OPTION_NUMBER, FIELD(workers), 1, CREW_MAX, "N", "worker processes (32)", NULL},
    {"limit", OPTION_NUMBER, FIELD(limit), 0, INT64_MAX, "LINES",
     "only so many lines of the file (0: all)", NULL},
    {"strict", OPTION_FLAG, FIELD(strict), 0, 0, NULL, "stop at the first malformed line", NULL},
    {"pause-every", OPTION_NUMBER, FIELD(pause_every), 0, INT64_MAX, "LINES",
     "stop a worker once in so many lines (2000; 0: never)", NULL},
    {"pause", OPTION_MS, FIELD(pause_ms), 1, 600000, "MS", "for how long (twice the TTL)", NULL},
    {"ttl", OPTION_MS, FIELD(ttl_ms), 10, 60000, "MS", "time limit of the leases (200)", NULL},
    {"prefix", OPTION_TEXT, FIELD(prefix), 0, 0, "TEXT", "of the keys, one for each SKU (stock:)",
     NULL},
    {"lease", OPTION_TEXT, FIELD(lease), 0, 0, "URI",
     "the private stockaded's leases; `redis`: a private Redis (local:)", NULL},
};
static const struct option_table table = {
    .command = "stockade replay",
    .usage = "stockade [-u URI] replay --orders FILE [options]",
    .about =
        "Replays order history as stock movements. The columns are invoice, invoiced_at (Unix\n"
        "seconds), sku, quantity (negative: returned) and customer. Workers take the invoices in\n"
        "order of time; each line is acquire, read, fenced write, release. Some workers are\n"
        "stopped between read and write for longer than the TTL. A sale that asks for more than\n"
        "is left sells nothing and is counted; returns are put back.\n\n"
        "Without -u it starts a private stockaded on a free port and a temporary folder, and\n"
        "removes it at the end. On a running server the keys stay.\n\n"
        "Exit code 0: for every SKU opening - sold + returned = left, and nothing was ever\n"
        "below 0. 1: not so, or the replay could not be done.",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
};

static bool find_server(struct run *run, struct failure *failure)
{
    const char *lease = run->settings.lease;

    run->replay.server = &run->cli->uri;
    if (run->cli->uri_given) {
        return true;
    }
    run->replay.server = &run->servers.stockade;
    if (strcmp(lease, "redis") == 0) {
        if (!servers_start_redis(&run->servers, failure)) {
            return false;
        }
        lease = run->servers.redis.text;
    }
    if (!servers_start_stockaded(&run->servers, lease, failure)) {
        return false;
    }
    term_line(&run->term, "server: a private stockaded on port %d, leases %s",
              run->servers.stockade.host.port, lease);
    return true;
}

static bool worker_failed(const struct run *run, struct failure *failure)
{
    for (unsigned i = 0; i < run->crew.count; i++) {
        if (run->replay.tally->failures[i].text[0] != '\0') {
            return failure_set(failure, "%s", run->replay.tally->failures[i].text);
        }
    }
    return failure_set(failure, "a worker crashed");
}

/* Until all workers are done; a replay in which nothing moves has failed. */
static bool watch_workers(struct run *run, struct failure *failure)
{
    int64_t moved_ms = run->began_ms, tick_ms = 0, done = 0;

    while (run->crew.running > 0) {
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        if (run->signals.ending != 0) {
            return failure_set(failure, "interrupted");
        }
        run->stops += crew_look(&run->crew, now_ms, run->settings.pause_ms);
        if (run->crew.failed > 0) {
            return worker_failed(run, failure);
        }
        crew_wake(&run->crew, now_ms);
        if (now_ms >= tick_ms) {
            summary_progress(&run->term, &run->replay, now_ms - run->began_ms);
            tick_ms = now_ms + TICK_MS;
        }
        if (atomic_load(&run->replay.tally->done) != done) {
            done = atomic_load(&run->replay.tally->done);
            moved_ms = now_ms;
        } else if (now_ms > moved_ms + STALL_LIMIT_MS + run->settings.pause_ms) {
            return failure_set(failure, "no line was done for %d s", STALL_LIMIT_MS / 1000);
        }
        if (run->crew.running > 0) {
            (void)signals_wait(&run->signals, -1, crew_next_wake(&run->crew, tick_ms) - now_ms);
        }
    }
    return true;
}

static bool replay_orders(struct run *run, struct failure *failure)
{
    if (!inventory_load(&run->replay, &run->signals, failure)) {
        return false;
    }
    run->began_ms = clock_now_ms(&clock_monotonic);
    bool done = crew_start(&run->crew, (unsigned)run->settings.workers, worker_main, &run->replay,
                           failure) &&
                watch_workers(run, failure);
    crew_end(&run->crew);
    int64_t took_ms = clock_now_ms(&clock_monotonic) - run->began_ms;
    run->took_ms = took_ms > 0 ? took_ms : 1;
    term_clear(&run->term);
    return done;
}

/* What is known before any server is: the orders, and where workers are to be stopped. */
static bool load_orders(struct run *run, struct failure *failure)
{
    struct replay *replay = &run->replay;
    const struct settings *set = &run->settings;

    if (!orders_load(&replay->orders, set->orders, set->limit, set->strict, failure)) {
        return false;
    }
    summary_orders(&run->term, replay);
    if (set->pause_every > 0) {
        run->planned = orders_plan_stops(&replay->orders, (size_t)set->pause_every);
    }
    run->tally_size =
        sizeof *replay->tally + replay->orders.sku_count * sizeof *replay->tally->skus;
    replay->tally =
        mmap(NULL, run->tally_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check(replay->tally != MAP_FAILED);
    return true;
}

static bool replay_and_audit(struct run *run, bool *right, struct failure *failure)
{
    struct audit audit;

    if (!find_server(run, failure)) {
        return false;
    }
    term_line(&run->term,
              "workers: %" PRId64 ", TTL %" PRId64 " ms; on up to %zu lines one is stopped between"
              " read and write for %" PRId64 " ms",
              run->settings.workers, run->settings.ttl_ms, run->planned, run->settings.pause_ms);
    if (!replay_orders(run, failure)) {
        return false;
    }
    summary_result(&run->term, &run->replay, run->stops, run->took_ms);
    if (!inventory_audit(&run->replay, &audit, failure)) {
        return false;
    }
    *right = summary_audit(&run->term, &run->replay, &audit);
    return true;
}

static bool settings_complete(struct settings *set)
{
    if (set->orders == NULL) {
        fprintf(stderr, "stockade replay: --orders FILE is missing; see stockade replay --help\n");
        return false;
    }
    if (strlen(set->prefix) > PREFIX_MAX) {
        fprintf(stderr, "stockade replay: --prefix takes at most %d bytes\n", PREFIX_MAX);
        return false;
    }
    if (set->pause_ms == 0) {
        set->pause_ms = 2 * set->ttl_ms;
    }
    return true;
}

int replay_run(const struct cli *cli, int argc, char **argv)
{
    struct run run = {
        .settings = {.prefix = "stock:",
                     .lease = "local:",
                     .opening_percent = 60,
                     .workers = 32,
                     .pause_every = 2000,
                     .ttl_ms = 200},
        .cli = cli,
    };
    struct failure failure = {.text = ""};
    bool right = false, done = false;

    switch (options_parse(&table, &run.settings, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    if (!settings_complete(&run.settings)) {
        return CLI_USAGE;
    }
    run.replay.prefix = run.settings.prefix;
    run.replay.opening_percent = run.settings.opening_percent;
    run.replay.ttl_ms = run.settings.ttl_ms;
    run.replay.pause_ms = run.settings.pause_ms;
    term_open(&run.term);
    if (load_orders(&run, &failure)) { /* until here, a signal just ends us */
        signals_open(&run.signals);
        servers_open(&run.servers, &run.signals);
        done = replay_and_audit(&run, &right, &failure);
        term_clear(&run.term);
        servers_close(&run.servers);
        signals_close(&run.signals);
        check(munmap(run.replay.tally, run.tally_size) == 0);
    }
    orders_free(&run.replay.orders);
    if (run.signals.ending != 0) {
        fprintf(stderr, "stockade replay: interrupted; what was started is gone\n");
        return 128 + run.signals.ending;
    }
    if (!done) {
        fprintf(stderr, "stockade replay: %s\n", failure.text);
    } else if (!right) {
        fprintf(stderr, "stockade replay: the books do not balance\n");
    }
    return done && right ? CLI_OK : CLI_FAILED;
}
