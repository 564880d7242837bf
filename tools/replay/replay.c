/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade replay`: order history as stock movements. The parent loads the orders and the opening
 * stock, forks the workers, continues those that stopped between read and write, and audits every
 * SKU at the end. Exit code 0 only where the audit is right. */
#include "tools/replay/replay.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/clock.h"
#include "tools/cli.h"
#include "tools/options.h"
#include "tools/report/report.h"
#include "tools/servers.h"
#include "tools/term.h"

enum { STALL_LIMIT_MS = 120000, PREFIX_MAX = 128, BAR_WIDTH = 30 };

struct run {
    struct cli *cli;
    struct client_uri given; /* by -u */
    struct replay replay;
    struct signals signals;
    struct servers servers;
    struct term term;
    size_t tally_size;
    int64_t took_ms;        /* at least 1 */
    int64_t stops;          /* how many workers were stopped past their TTL */
    int64_t done, moved_ms; /* as last seen: lines, and when their number rose */
    size_t planned;         /* lines where a worker is to be stopped */
    FILE *report;           /* NULL: none is asked for, or it is written */
};

#define FIELD(field) offsetof(struct replay_settings, field)
static const struct option_row rows[] = {
    {"orders", OPTION_TEXT, FIELD(orders), 0, 0, "FILE", "the orders, .csv or .csv.gz (required)",
     NULL},
    {"opening", OPTION_NUMBER, FIELD(opening_percent), 0, 1000, "PERCENT",
     "opening stock, of each SKU's gross demand (60)", NULL},
    {"workers", OPTION_NUMBER, FIELD(workers), 1, CREW_MAX, "N", "worker processes (32)", NULL},
    {"limit", OPTION_NUMBER, FIELD(limit), 0, INT64_MAX, "LINES",
     "read no more lines than this (0: all)", NULL},
    {"strict", OPTION_FLAG, FIELD(strict), 0, 0, NULL, "stop at the first malformed line", NULL},
    {"pause-every", OPTION_NUMBER, FIELD(pause_every), 0, INT64_MAX, "LINES",
     "stop a worker every so many lines (2000; 0: never)", NULL},
    {"pause", OPTION_MS, FIELD(pause_ms), 1, 600000, "MS", "for how long (twice the TTL)", NULL},
    {"ttl", OPTION_MS, FIELD(ttl_ms), 10, 60000, "MS", "time limit of the leases (200)", NULL},
    {"prefix", OPTION_TEXT, FIELD(prefix), 0, 0, "TEXT", "of the keys, one for each SKU (stock:)",
     NULL},
    {"lease", OPTION_TEXT, FIELD(lease), 0, 0, "URI",
     "the private stockaded's leases; `redis`: a private Redis (local:)", NULL},
    {"report", OPTION_TEXT, FIELD(report), 0, 0, "FILE",
     "write a page that shows the first lines (.html)", NULL},
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
        "below 0. 1: not so, or the replay failed.",
    OPTION_ROWS(rows),
};

/* What is said. */

static void say_orders(struct term *term, const struct replay *replay)
{
    const struct orders *orders = &replay->orders;

    term_line(term, "orders: %s lines in %s invoices, %s SKUs; %s malformed lines skipped",
              TERM_NUMBER((int64_t)orders->order_count),
              TERM_NUMBER((int64_t)orders->invoice_count), TERM_NUMBER((int64_t)orders->sku_count),
              TERM_NUMBER((int64_t)orders->malformed));
    term_line(term,
              "opening stock: derived, %" PRId64
              " %% of each SKU's gross demand (the file has no stock levels)",
              replay->settings.opening_percent);
}

static void say_progress(struct term *term, const struct replay *replay, int64_t took_ms)
{
    int64_t done = atomic_load(&replay->tally->done);
    int64_t total = (int64_t)replay->orders.order_count;
    char bar[TERM_BAR_MAX];

    term_progress(term, "%s %3" PRId64 " %%  %s lines  %s/s  stale refused %" PRId64,
                  term_bar(done, total, BAR_WIDTH, bar), done * 100 / total, TERM_NUMBER(done),
                  TERM_NUMBER(took_ms > 0 ? done * 1000 / took_ms : 0),
                  atomic_load(&replay->tally->stale));
}

static void say_result(struct term *term, const struct replay *replay, int64_t stops,
                       int64_t took_ms)
{
    const struct tally *tally = replay->tally;
    int64_t done = atomic_load(&tally->done);

    term_line(term, "replayed %s lines in %.1f s: %s lines/s", TERM_NUMBER(done),
              (double)took_ms / 1000, TERM_NUMBER(done * 1000 / took_ms));
    term_line(term, "  sales %s, sold out (found no stock) %s, returns %s",
              TERM_NUMBER(atomic_load(&tally->sales)), TERM_NUMBER(atomic_load(&tally->no_stock)),
              TERM_NUMBER(atomic_load(&tally->returns)));
    term_line(term,
              "  workers stopped past their TTL %" PRId64
              ", stale writes refused and done again %s",
              stops, TERM_NUMBER(atomic_load(&tally->stale)));
    if (atomic_load(&tally->busy) + atomic_load(&tally->held) > 0)
        term_line(term, "  tried again: server busy %" PRId64 ", waited in vain %" PRId64,
                  atomic_load(&tally->busy), atomic_load(&tally->held));
}

/* Say whether the books balance and nothing was ever below 0, and return it. */
static bool say_audit(struct term *term, const struct replay *replay, const struct audit *audit)
{
    int64_t below_zero = atomic_load(&replay->tally->below_zero);

    if (audit->wrong == 0 && audit->below_zero == 0 && below_zero == 0) {
        term_line(term,
                  "audit: opening - sold + returned = left for all %s SKUs, none ever below 0; %s"
                  " with nothing left",
                  TERM_NUMBER((int64_t)audit->right), TERM_NUMBER((int64_t)audit->sold_out));
        return true;
    }
    term_line(term,
              "audit FAILED: wrong for %zu of %zu SKUs; %zu below 0 at the end, %" PRId64
              " times read below 0",
              audit->wrong, audit->wrong + audit->right, audit->below_zero, below_zero);
    return false;
}

/* What is done. */

static bool find_server(struct run *run, struct failure *failure)
{
    const char *lease = run->replay.settings.lease;

    run->replay.server = &run->given;
    if (run->cli->uri != NULL)
        return true;
    run->replay.server = &run->servers.stockade;
    if (strcmp(lease, "redis") == 0) {
        if (!servers_start_redis(&run->servers, failure))
            return false;
        lease = run->servers.redis.text;
    }
    if (!servers_start_stockaded(&run->servers, NULL, lease, failure))
        return false;
    struct buf shown = {0};
    uri_append_masked(&shown, lease);
    term_line(&run->term, "server: a private stockaded on port %d, leases %.*s",
              run->servers.stockade.host.port, (int)shown.len, shown.data);
    buf_free(&shown);
    return true;
}

/* In the child. */
static int work_off(void *context, unsigned index)
{
    const struct run *run = context;

    return worker_run(&run->replay, index);
}

/* A replay in which nothing moves has failed. */
static bool on_progress(void *context, int64_t took_ms, struct failure *failure)
{
    struct run *run = context;

    say_progress(&run->term, &run->replay, took_ms);
    if (atomic_load(&run->replay.tally->done) != run->done) {
        run->done = atomic_load(&run->replay.tally->done);
        run->moved_ms = took_ms;
    }
    return took_ms <= run->moved_ms + STALL_LIMIT_MS + run->replay.settings.pause_ms ||
           failure_set(failure, "no line was done for %d s", STALL_LIMIT_MS / 1000);
}

static bool replay_orders(struct run *run, struct failure *failure)
{
    struct crew_work work = {
        .member = "worker",
        .count = (unsigned)run->replay.settings.workers,
        .function = work_off,
        .context = run,
        .failures = run->replay.tally->failures,
        .pause_ms = run->replay.settings.pause_ms,
        .progress = on_progress,
        .signals = &run->signals,
    };

    if (!inventory_load(&run->replay, &run->signals, failure))
        return false;
    trace_begin(run->replay.trace);
    int64_t began_ms = clock_now_ms(&clock_monotonic);
    bool done = crew_run(&work, failure);
    int64_t took_ms = clock_now_ms(&clock_monotonic) - began_ms;
    run->took_ms = took_ms > 0 ? took_ms : 1;
    run->stops = work.stops;
    term_clear(&run->term);
    return done;
}

/* Load what needs no server: the orders, and where workers are to be stopped. */
static bool load_orders(struct run *run, struct failure *failure)
{
    struct replay *replay = &run->replay;
    const struct replay_settings *set = &replay->settings;

    if (!orders_load(&replay->orders, set->orders, set->limit, set->strict, failure))
        return false;
    say_orders(&run->term, replay);
    if (set->pause_every > 0)
        run->planned = orders_plan_stops(&replay->orders, (size_t)set->pause_every);
    run->tally_size =
        sizeof *replay->tally + replay->orders.sku_count * sizeof *replay->tally->skus;
    replay->tally = crew_share(run->tally_size);
    if (set->report != NULL) {
        run->report = report_open(set->report, failure);
        if (run->report == NULL) {
            crew_unshare(replay->tally, run->tally_size);
            return false;
        }
        replay->trace = trace_open();
    }
    return true;
}

static bool write_report(struct run *run, bool right, struct failure *failure)
{
    const struct replay_settings *set = &run->replay.settings;
    const struct tally *tally = run->replay.tally;
    struct buf json = {.data = NULL};
    FILE *file = run->report;

    run->report = NULL;
    buf_printf(&json,
               "{\"demo\": \"replay\", \"skus\": %zu, \"stock\": 0, \"buyers\": %" PRId64
               ", \"ttl_ms\": %" PRId64 ", \"pause_ms\": %" PRId64 ",\n\"ways\": [",
               run->replay.orders.sku_count, set->workers, set->ttl_ms, set->pause_ms);
    buf_printf(&json,
               "{\"title\": \"Stockade\", \"stockade\": true, \"right\": %s, \"took_ms\": %" PRId64
               ", \"lines\": %" PRId64 ", \"sales\": %" PRId64 ", \"returns\": %" PRId64
               ", \"refused\": %" PRId64 ",\n",
               right ? "true" : "false", run->took_ms, atomic_load(&tally->done),
               atomic_load(&tally->sales), atomic_load(&tally->returns),
               atomic_load(&tally->stale));
    trace_json(run->replay.trace, &json);
    buf_append_text(&json, "}]}");
    bool written = report_write(file, set->report, buf_bytes(&json), failure);
    buf_free(&json);
    if (written)
        term_line(&run->term, "to be looked at in a browser: %s", set->report);
    return written;
}

static bool replay_and_audit(struct run *run, bool *right, struct failure *failure)
{
    struct audit audit;

    if (!find_server(run, failure))
        return false;
    term_line(&run->term,
              "workers: %" PRId64 ", TTL %" PRId64 " ms; on up to %zu lines one is stopped between"
              " read and write for %" PRId64 " ms",
              run->replay.settings.workers, run->replay.settings.ttl_ms, run->planned,
              run->replay.settings.pause_ms);
    if (!replay_orders(run, failure))
        return false;
    say_result(&run->term, &run->replay, run->stops, run->took_ms);
    if (!inventory_audit(&run->replay, &audit, failure))
        return false;
    *right = say_audit(&run->term, &run->replay, &audit);
    return run->report == NULL || write_report(run, *right, failure);
}

static bool settings_complete(struct replay_settings *set)
{
    if (set->orders == NULL) {
        term_error("stockade replay: --orders FILE is missing; see stockade replay --help");
        return false;
    }
    if (strlen(set->prefix) > PREFIX_MAX) {
        term_error("stockade replay: --prefix takes at most %d bytes", PREFIX_MAX);
        return false;
    }
    if (set->pause_ms == 0)
        set->pause_ms = 2 * set->ttl_ms;
    return true;
}

int replay_run(struct cli *cli, int argc, char **argv)
{
    struct run run = {
        .replay.settings = {.prefix = "stock:",
                            .lease = "local:",
                            .opening_percent = 60,
                            .workers = 32,
                            .pause_every = 2000,
                            .ttl_ms = 200},
        .cli = cli,
    };
    struct failure failure = {.text = ""};
    bool right = false, done = false;

    switch (options_parse(&table, &run.replay.settings, cli, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    if (!settings_complete(&run.replay.settings))
        return CLI_USAGE;
    if (cli->uri != NULL && !cli_server(cli, &run.given, &failure)) {
        term_error("stockade replay: %s; see stockade replay --help", failure.text);
        return CLI_USAGE;
    }
    term_open(&run.term);
    if (load_orders(&run, &failure)) { /* until here, a signal just ends us */
        signals_open(&run.signals);
        servers_open(&run.servers, &run.signals);
        done = replay_and_audit(&run, &right, &failure);
        term_clear(&run.term);
        servers_close(&run.servers);
        signals_close(&run.signals);
        crew_unshare(run.replay.tally, run.tally_size);
        trace_close(run.replay.trace);
        if (run.report != NULL)
            (void)fclose(run.report); /* the replay failed: it stays empty */
    }
    orders_free(&run.replay.orders);
    if (run.signals.ending != 0) {
        term_error("stockade replay: interrupted; what was started is gone");
        return CLI_SIGNAL + run.signals.ending;
    }
    if (!done)
        term_error("stockade replay: %s", failure.text);
    else if (!right)
        term_error("stockade replay: the books do not balance");
    return done && right ? CLI_OK : CLI_FAILED;
}
