/* SPDX-License-Identifier: Apache-2.0 */
/* Servers for a demo, and the exit code. */
#include "tools/demo/place.h"

#include <inttypes.h>
#include <stdio.h>

#include "fence/base/clock.h"

void place_open(struct place *place, const struct cli *cli, const struct client_uri *redis_given)
{
    *place = (struct place){.cli = cli, .redis_given = redis_given};
    term_open(&place->term);
    signals_open(&place->signals);
    servers_open(&place->servers, &place->signals);
}

static void say_servers(struct place *place)
{
    if (place->servers.redis_program.pid != 0) {
        term_line(&place->term, "private redis-server on port %d (it keeps nothing on disk)",
                  place->servers.redis.host.port);
    }
    if (place->servers.stockaded_program.pid != 0) {
        term_line(&place->term, "private stockaded on port %d, leases on %s Redis",
                  place->servers.stockade.host.port,
                  place->redis_given != NULL ? "the given" : "that");
    }
    term_line(&place->term, "%s", "");
}

bool place_find_servers(struct place *place, bool needs_redis, bool needs_stockade,
                        struct failure *failure)
{
    bool start_stockade = needs_stockade && !place->cli->uri_given;

    place->redis = place->redis_given != NULL ? place->redis_given : &place->servers.redis;
    place->stockade = place->cli->uri_given ? &place->cli->uri : &place->servers.stockade;
    if ((needs_redis || start_stockade) && place->redis_given == NULL &&
        !servers_start_redis(&place->servers, failure)) {
        return false;
    }
    if (start_stockade && !servers_start_stockaded(&place->servers, place->redis->text, failure)) {
        return false;
    }
    say_servers(place);
    return true;
}

int place_close(struct place *place, const char *command, bool held, bool kept,
                const struct failure *failure)
{
    term_clear(&place->term);
    servers_close(&place->servers);
    signals_close(&place->signals);
    if (place->signals.ending != 0) {
        fprintf(stderr, "%s: interrupted; the servers are gone\n", command);
        return 128 + place->signals.ending;
    }
    if (!held) {
        fprintf(stderr, "%s: %s\n", command, failure->text);
    } else if (!kept) {
        fprintf(stderr, "%s: Stockade did not keep its promise\n", command);
    }
    return held && kept ? CLI_OK : CLI_FAILED;
}

void place_name(char *out, size_t size, const char *prefix)
{
    uint64_t number;

    chance_system.fill(&chance_system, &number, sizeof number);
    (void)snprintf(out, size, "%s%016" PRIx64, prefix, number);
}
