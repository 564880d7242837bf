/* SPDX-License-Identifier: Apache-2.0 */
/* A demo from its command line to its exit code: the options, the servers, a sale for each
 * contender, the table. Whatever ends it, no server and no folder is left behind. */
#include "tools/demo/demo.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"
#include "fence/base/json.h"
#include "store/kinds.h"
#include "tools/report/report.h"
#include "tools/term.h"

bool demo_set_contender(void *settings, const char *text, struct failure *failure)
{
    struct sale *sale = settings;

    if (sale->named_count == CONTENDERS_MAX)
        return failure_set(failure, "is given more than %d times", CONTENDERS_MAX);
    sale->named[sale->named_count++] = text;
    return true;
}

bool demo_set_redis(void *settings, const char *text, struct failure *failure)
{
    struct sale *sale = settings;

    sale->redis_given = true;
    return client_uri_parse(&sale->redis, "redis", text, failure);
}

struct run {
    struct cli *cli;
    struct sale *sale;
    struct signals signals;
    struct servers servers;
    struct term term;
    const struct client_uri *redis, *stockade; /* the servers in use */
    struct client_uri given;                   /* by -u */
    FILE *report;                              /* NULL: none is asked for, or it is written */
    struct buf json;                           /* its data: one object for each sale so far */
};

static bool choose_contender(struct sale *sale, const char *text, struct failure *failure)
{
    char names[200] = "";

    for (size_t i = 0; i < sale->demo->count; i++) {
        const char *name = sale->demo->contenders[i]->name;
        if (strcmp(name, text) == 0) {
            sale->chosen[i] = true;
            return true;
        }
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                       i > 0 ? ", " : "", name);
    }
    return failure_set(failure, "--contender takes one of %s, not \"%s\"", names, text);
}

/* Where none was named, all are chosen. */
static bool choose_contenders(struct sale *sale, struct failure *failure)
{
    for (size_t i = 0; i < sale->demo->count; i++)
        sale->chosen[i] = sale->named_count == 0;
    for (size_t i = 0; i < sale->named_count; i++)
        if (!choose_contender(sale, sale->named[i], failure))
            return false;
    return true;
}

/* Put the demo together as the options ask for it. False: they make no sense. */
static bool choose(struct run *run, const struct demo *demo, struct failure *failure)
{
    struct sale *sale = run->sale;

    sale->demo = sale->database != NULL ? demo->in_postgresql : demo;
    if (sale->database == NULL)
        return (run->cli->uri == NULL || cli_server(run->cli, &run->given, failure)) &&
               choose_contenders(sale, failure);
    if (run->cli->uri != NULL || sale->redis_given)
        return failure_set(failure,
                           "%s and --store do not go together: the sale in PostgreSQL has "
                           "a stockaded of its own, on a database of its own",
                           sale->redis_given ? "--redis" : "-u");
    if (strcmp(sale->database, "postgresql") != 0 && !store_is_in_network(sale->database))
        return failure_set(failure, "--store takes \"postgresql\" or postgresql://...");
    return choose_contenders(sale, failure);
}

/* Write `prefix` and 16 hex digits that nobody else has. */
static void name_anew(char *out, size_t size, const char *prefix)
{
    uint64_t number;

    chance_system.fill(&chance_system, &number, sizeof number);
    (void)snprintf(out, size, "%s%016" PRIx64, prefix, number);
}

static void say_servers(struct run *run)
{
    if (run->servers.redis_program.pid != 0)
        term_line(&run->term, "private redis-server on port %d (it keeps nothing on disk)",
                  run->servers.redis.host.port);
    if (run->servers.postgresql_program.pid != 0)
        term_line(&run->term, "%s", "private PostgreSQL (it commits to disk)");
    if (run->servers.stockaded_program.pid != 0)
        term_line(&run->term, "private stockaded on port %d, %s", run->servers.stockade.host.port,
                  run->sale->database != NULL ? "store and leases in PostgreSQL"
                  : run->sale->redis_given    ? "leases on the given Redis"
                                              : "leases on that Redis");
    term_line(&run->term, "%s", "");
}

/* The sale in PostgreSQL has a database of its own, wherever that is. */
static bool find_postgresql(struct run *run, bool needs_stockade, struct failure *failure)
{
    struct sale *sale = run->sale;
    struct servers *servers = &run->servers;
    bool given = strcmp(sale->database, "postgresql") != 0;

    sale->postgresql = servers->database;
    return (given || servers_start_postgresql(servers, failure)) &&
           servers_make_database(servers, given ? sale->database : servers->postgresql, sale->table,
                                 failure) &&
           (!needs_stockade ||
            servers_start_stockaded(servers, sale->postgresql, "local:", failure));
}

/* Start the servers that are needed and were not named, and say so. */
static bool find_servers(struct run *run, struct failure *failure)
{
    struct sale *sale = run->sale;
    bool needs_redis = false, needs_stockade = false, found;

    for (size_t i = 0; i < sale->demo->count; i++) {
        const struct contender *contender = sale->demo->contenders[i];
        bool needs_server = sale->chosen[i] && !contender->embedded;
        needs_stockade |= needs_server && contender->uses_stockade;
        needs_redis |= needs_server && !contender->uses_stockade;
    }
    needs_stockade &= run->cli->uri == NULL;
    run->redis = sale->redis_given ? &sale->redis : &run->servers.redis;
    run->stockade = run->cli->uri != NULL ? &run->given : &run->servers.stockade;
    if (!servers_make_folder(&run->servers, failure))
        return false;
    if (sale->database != NULL)
        found = find_postgresql(run, needs_stockade, failure);
    else
        found = (!(needs_redis || needs_stockade) || sale->redis_given ||
                 servers_start_redis(&run->servers, failure)) &&
                (!needs_stockade ||
                 servers_start_stockaded(&run->servers, NULL, run->redis->text, failure));
    if (!found)
        return false;
    (void)snprintf(sale->store, sizeof sale->store, "%s/library.db", run->servers.folder);
    say_servers(run);
    return true;
}

static void print_table(struct run *run, const struct sale_result *results, size_t count)
{
    const struct demo *demo = run->sale->demo;
    char text[CONTENDERS_MAX][COLUMNS_MAX][TERM_NUMBER_MAX];
    const char *cells[(CONTENDERS_MAX + 1) * (COLUMNS_MAX + 1)] = {""};
    size_t columns = 0, at = 1;

    for (; demo->heads[columns] != NULL; columns++) {
        check(columns < COLUMNS_MAX);
        cells[at++] = demo->heads[columns];
    }
    for (size_t i = 0; i < count; i++) {
        int64_t numbers[COLUMNS_MAX] = {0};
        demo->numbers(&results[i], numbers);
        cells[at++] = results[i].contender->title;
        for (size_t column = 0; column < columns; column++)
            cells[at++] = term_number(numbers[column], text[i][column]);
    }
    term_line(&run->term, "%s", "");
    term_table(&run->term, cells, count + 1, columns + 1);
}

/* The report. */

/* The page has one set of names, whatever a demo calls its columns. */
static void report_sale(struct run *run, const struct sale_result *result)
{
    const struct {
        const char *name;
        int64_t number;
    } figures[] = {{"pieces", result->pieces},     {"left", result->left},
                   {"oversold", result->oversold}, {"twice", result->twice},
                   {"stale", result->stale_tried}, {"refused", result->stale_refused}};

    buf_append_text(&run->json, run->json.len > 0 ? ",\n{\"title\": " : "{\"title\": ");
    json_string(&run->json, bytes_of(result->contender->title));
    buf_printf(&run->json, ", \"stockade\": %s, \"right\": %s, \"took_ms\": %" PRId64,
               result->contender->uses_stockade ? "true" : "false",
               result->is_right ? "true" : "false", result->took_ms);
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        buf_printf(&run->json, ", \"%s\": %" PRId64, figures[i].name, figures[i].number);
    buf_append_text(&run->json, ",\n");
    trace_json(run->sale->trace, &run->json);
    buf_append_text(&run->json, "}");
}

static bool write_report(struct run *run, struct failure *failure)
{
    const struct sale *sale = run->sale;
    FILE *file = run->report;
    struct buf json = {.data = NULL};

    if (file == NULL)
        return true;
    buf_printf(&json,
               "{\"demo\": \"%s\", \"skus\": %" PRId64 ", \"stock\": %" PRId64
               ", \"buyers\": %" PRId64 ", \"ttl_ms\": %" PRId64 ", \"pause_ms\": %" PRId64
               ", \"work_ms\": %" PRId64 ",\n\"meaning\": ",
               sale->demo->name, sale->skus, sale->stock, sale->buyers, sale->ttl_ms,
               sale->pause_ms, sale->work_ms);
    json_string(&json, bytes_of(sale->demo->meaning));
    buf_append_text(&json, ",\n\"ways\": [");
    buf_append_bytes(&json, buf_bytes(&run->json));
    buf_append_text(&json, "]}");
    run->report = NULL;
    bool written = report_write(file, sale->report, buf_bytes(&json), failure);
    buf_free(&json);
    if (written)
        term_line(&run->term, "\nThe sales, to be looked at in a browser: %s", sale->report);
    return written;
}

/* `*kept`: Stockade kept its promise. */
static bool hold_sales(struct run *run, bool *kept, struct failure *failure)
{
    struct sale *sale = run->sale;
    const struct demo *demo = sale->demo;
    struct sale_result results[CONTENDERS_MAX];
    size_t count = 0;

    demo->say_opening(&run->term, sale);
    if (!find_servers(run, failure))
        return false;
    for (size_t i = 0; i < demo->count; i++) {
        const struct contender *contender = demo->contenders[i];
        const struct client_uri *server = contender->uses_stockade ? run->stockade : run->redis;
        if (!sale->chosen[i])
            continue;
        bool missing = contender->missing != NULL && contender->missing(sale, server, failure);
        if (missing && sale->named_count == 0) {
            term_line(&run->term, "  %-20s  left out: %s", contender->title, failure->text);
            continue;
        }
        if (missing ||
            !sale_run(sale, contender, server, &run->signals, &run->term, &results[count], failure))
            return failure_set(failure, "%s: %s", contender->title, failure->text);
        demo->say_result(&run->term, &results[count]);
        if (run->report != NULL)
            report_sale(run, &results[count]);
        *kept &= !contender->uses_stockade || results[count].is_right;
        count++;
    }
    print_table(run, results, count);
    term_line(&run->term, "%s", demo->meaning);
    if (run->servers.redis_program.pid != 0)
        term_line(&run->term, "%s", demo->disclaimer);
    return write_report(run, failure);
}

int demo_run(const struct demo *demo, struct sale *sale, struct cli *cli, int argc, char **argv)
{
    const char *command = demo->options->command;
    struct run run = {.cli = cli, .sale = sale};
    struct failure failure = {.text = ""};
    bool kept = true;

    switch (options_parse(demo->options, sale, cli, argc, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    if (!choose(&run, demo, &failure)) {
        term_error("%s: %s; see %s --help", command, failure.text, command);
        return CLI_USAGE;
    }
    check(sale->demo->count <= CONTENDERS_MAX);
    if (sale->pause_ms == 0)
        sale->pause_ms = demo->pause_ttls * sale->ttl_ms;
    name_anew(sale->key, sizeof sale->key, "stockade-demo:");
    name_anew(sale->table, sizeof sale->table, "demo_orders_");
    if (sale->report != NULL) {
        run.report = report_open(sale->report, &failure);
        if (run.report == NULL) {
            term_error("%s: %s", command, failure.text);
            return CLI_FAILED;
        }
        sale->trace = trace_open();
    }
    term_open(&run.term);
    signals_open(&run.signals);
    servers_open(&run.servers, &run.signals);
    bool held = hold_sales(&run, &kept, &failure);
    term_clear(&run.term);
    servers_close(&run.servers);
    signals_close(&run.signals);
    if (run.report != NULL)
        (void)fclose(run.report); /* a sale failed: it stays empty */
    trace_close(sale->trace);
    buf_free(&run.json);
    if (run.signals.ending != 0) {
        term_error("%s: interrupted; the servers are gone", command);
        return CLI_SIGNAL + run.signals.ending;
    }
    if (!held)
        term_error("%s: %s", command, failure.text);
    else if (!kept)
        term_error("%s: Stockade did not keep its promise", command);
    return held && kept ? CLI_OK : CLI_FAILED;
}
