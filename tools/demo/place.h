/* SPDX-License-Identifier: Apache-2.0 */
/* Where a demo takes place: on running servers where they were named, on private ones otherwise;
 * and how it ends, whatever ends it. */
#ifndef STOCKADE_TOOLS_DEMO_PLACE_H
#define STOCKADE_TOOLS_DEMO_PLACE_H

#include "tools/cli.h"
#include "tools/servers.h"
#include "tools/signals.h"
#include "tools/term.h"

struct place {
    const struct cli *cli;
    const struct client_uri *redis_given; /* --redis; NULL: it was not there */
    struct signals signals;
    struct servers servers;
    struct term term;
    const struct client_uri *redis, *stockade; /* the servers in use */
};

void place_open(struct place *place, const struct cli *cli, const struct client_uri *redis_given);
/* Starts what is needed and was not named; says so. */
bool place_find_servers(struct place *place, bool needs_redis, bool needs_stockade,
                        struct failure *failure);
/* Ends what was started; returns the exit code. `held` false: `failure` says why. `kept`: Stockade
 * kept its promise. */
int place_close(struct place *place, const char *command, bool held, bool kept,
                const struct failure *failure);

/* A name for this run alone, so that a running server's other data is out of reach: 16 hex digits
 * behind `prefix`. */
void place_name(char *out, size_t size, const char *prefix);

#endif
