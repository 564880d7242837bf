/* SPDX-License-Identifier: Apache-2.0 */
/* What the demos have in common: the servers on which they take place, running ones where those
 * were named and private ones otherwise; what a purchase can come to; the table at the end; and how
 * a demo ends, whatever ends it. */
#ifndef STOCKADE_TOOLS_DEMO_DEMO_H
#define STOCKADE_TOOLS_DEMO_DEMO_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/cli.h"
#include "tools/options.h"
#include "tools/servers.h"
#include "tools/signals.h"
#include "tools/term.h"

enum { DEMO_CONTENDERS_MAX = 8, DEMO_COLUMNS_MAX = 9 };

/* The first member of a demo's settings. */
struct demo_settings {
    const char *const *names; /* the contenders', NULL behind the last */
    bool chosen[DEMO_CONTENDERS_MAX];
    bool redis_given;
    struct client_uri redis;
};

/* --contender NAME and --redis URI, for the option tables. */
#define DEMO_OPTION_ROWS                                                                           \
    {"contender",       OPTION_CALL, 0, 0, 0, "NAME", "only this one; may be repeated",            \
     demo_set_contender},                                                                          \
    {                                                                                              \
        "redis", OPTION_CALL, 0, 0, 0, "URI",                                                      \
            "a running Redis, redis://host:port[/db], instead of a private one", demo_set_redis    \
    }
bool demo_set_contender(void *settings, const char *text, struct failure *failure);
bool demo_set_redis(void *settings, const char *text, struct failure *failure);

struct demo {
    const struct cli *cli;
    const struct client_uri *redis_given; /* --redis; NULL: it was not there */
    struct signals signals;
    struct servers servers;
    struct term term;
    const struct client_uri *redis, *stockade; /* the servers in use */
};

/* Begin. Where no contender was chosen, all are from here on. */
void demo_open(struct demo *demo, const struct cli *cli, struct demo_settings *settings);
/* Start the servers that are needed and were not named, and say so. */
bool demo_find_servers(struct demo *demo, bool needs_redis, bool needs_stockade,
                       struct failure *failure);
/* End what was started, and return the exit code. `held` false: `failure` says why. `kept`:
 * Stockade kept its promise. */
int demo_close(struct demo *demo, const char *command, bool held, bool kept,
               const struct failure *failure);

/* Write a name for this run alone, so that a running server's other data is out of reach: 16 hex
 * digits behind `prefix`. */
void demo_name(char *out, size_t size, const char *prefix);

enum purchase {
    PURCHASE_MADE,
    PURCHASE_SOLD_OUT,
    PURCHASE_AGAIN,  /* nothing was bought: another came first */
    PURCHASE_FAILED, /* the server failed us: client.failure says how */
};

/* Raise a number in shared memory; it never falls. */
void demo_raise(_Atomic int64_t *highest, int64_t value);
/* Return the monotonic clock's time, which all processes share. */
int64_t demo_now_us(void);
/* Sleep for the delay between read and write: a price rule, a call to a payment service. */
void demo_work(int64_t work_ms);

struct demo_row {
    const char *title;
    int64_t numbers[DEMO_COLUMNS_MAX];
};

/* Print the results under their heads, which name the columns behind the title; NULL ends them. */
void demo_table(struct term *term, const char *const *heads, const struct demo_row *rows,
                size_t count);

#endif
