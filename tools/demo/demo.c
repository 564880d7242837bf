/* SPDX-License-Identifier: Apache-2.0 */
/* See demo.h. */
#include "tools/demo/demo.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"

bool demo_set_contender(void *settings, const char *text, struct failure *failure)
{
    struct demo_settings *set = settings;
    char names[200] = "";

    for (size_t i = 0; set->names[i] != NULL; i++) {
        if (strcmp(set->names[i], text) == 0) {
            set->chosen[i] = true;
            return true;
        }
        (void)snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s",
                       i > 0 ? ", " : "", set->names[i]);
    }
    return failure_set(failure, "takes one of %s, not \"%s\"", names, text);
}

bool demo_set_redis(void *settings, const char *text, struct failure *failure)
{
    struct demo_settings *set = settings;

    set->redis_given = true;
    return client_uri_parse(&set->redis, "redis", text, failure);
}

void demo_open(struct demo *demo, const struct cli *cli, struct demo_settings *settings)
{
    bool any = false;

    for (size_t i = 0; settings->names[i] != NULL; i++) {
        any |= settings->chosen[i];
    }
    for (size_t i = 0; settings->names[i] != NULL; i++) {
        settings->chosen[i] |= !any;
    }
    *demo =
        (struct demo){.cli = cli, .redis_given = settings->redis_given ? &settings->redis : NULL};
    term_open(&demo->term);
    signals_open(&demo->signals);
    servers_open(&demo->servers, &demo->signals);
}

static void say_servers(struct demo *demo)
{
    if (demo->servers.redis_program.pid != 0) {
        term_line(&demo->term, "private redis-server on port %d (it keeps nothing on disk)",
                  demo->servers.redis.host.port);
    }
    if (demo->servers.stockaded_program.pid != 0) {
        term_line(&demo->term, "private stockaded on port %d, leases on %s Redis",
                  demo->servers.stockade.host.port,
                  demo->redis_given != NULL ? "the given" : "that");
    }
    term_line(&demo->term, "%s", "");
}

bool demo_find_servers(struct demo *demo, bool needs_redis, bool needs_stockade,
                       struct failure *failure)
{
    bool start_stockade = needs_stockade && !demo->cli->uri_given;

    demo->redis = demo->redis_given != NULL ? demo->redis_given : &demo->servers.redis;
    demo->stockade = demo->cli->uri_given ? &demo->cli->uri : &demo->servers.stockade;
    if ((needs_redis || start_stockade) && demo->redis_given == NULL &&
        !servers_start_redis(&demo->servers, failure)) {
        return false;
    }
    if (start_stockade && !servers_start_stockaded(&demo->servers, demo->redis->text, failure)) {
        return false;
    }
    say_servers(demo);
    return true;
}

int demo_close(struct demo *demo, const char *command, bool held, bool kept,
               const struct failure *failure)
{
    term_clear(&demo->term);
    servers_close(&demo->servers);
    signals_close(&demo->signals);
    if (demo->signals.ending != 0) {
        fprintf(stderr, "%s: interrupted; the servers are gone\n", command);
        return 128 + demo->signals.ending;
    }
    if (!held) {
        fprintf(stderr, "%s: %s\n", command, failure->text);
    } else if (!kept) {
        fprintf(stderr, "%s: Stockade did not keep its promise\n", command);
    }
    return held && kept ? CLI_OK : CLI_FAILED;
}

void demo_name(char *out, size_t size, const char *prefix)
{
    uint64_t number;

    chance_system.fill(&chance_system, &number, sizeof number);
    (void)snprintf(out, size, "%s%016" PRIx64, prefix, number);
}

void demo_raise(_Atomic int64_t *highest, int64_t value)
{
    int64_t old = atomic_load(highest);

    while (value > old && !atomic_compare_exchange_weak(highest, &old, value)) {
    }
}

int64_t demo_now_us(void)
{
    struct timespec now;

    check(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void demo_work(int64_t work_ms)
{
    struct timespec delay = {.tv_sec = work_ms / 1000, .tv_nsec = work_ms % 1000 * 1000000};

    (void)nanosleep(&delay, NULL);
}

void demo_table(struct term *term, const char *const *heads, const struct demo_row *rows,
                size_t count)
{
    char text[DEMO_CONTENDERS_MAX][DEMO_COLUMNS_MAX][TERM_NUMBER_MAX];
    const char *cells[(DEMO_CONTENDERS_MAX + 1) * (DEMO_COLUMNS_MAX + 1)] = {""};
    size_t columns = 0, at = 1;

    check(count <= DEMO_CONTENDERS_MAX);
    for (; heads[columns] != NULL; columns++) {
        check(columns < DEMO_COLUMNS_MAX);
        cells[at++] = heads[columns];
    }
    for (size_t i = 0; i < count; i++) {
        cells[at++] = rows[i].title;
        for (size_t column = 0; column < columns; column++) {
            cells[at++] = term_number(rows[i].numbers[column], text[i][column]);
        }
    }
    term_line(term, "%s", "");
    term_table(term, cells, count + 1, columns + 1);
}
