/* SPDX-License-Identifier: Apache-2.0 */
/* A whole Stockade in one thread, for the engine's unit tests: engine, memory store, a lease
 * service that can be made to fail, a clock that only the test turns, and clients that write and
 * read the bytes of the protocol. */
#ifndef STOCKADE_TESTS_ENGINE_WORLD_H
#define STOCKADE_TESTS_ENGINE_WORLD_H

#include "fence/base/clock.h"
#include "proxy/engine/engine.h"
#include "store/open.h"
#include "tests/twins/memory_lease.h"
#include "tests/twins/memory_store.h"

#define WORLD_CLIENTS_MAX 64

struct client {
    struct session *session; /* NULL: not connected */
    struct buf received;
    bool closed; /* by the engine */
};

struct world {
    struct clock clock;
    int64_t now_ms;
    struct chance chance;
    uint64_t chance_state;
    struct store *store;
    bool keeps_store;   /* world_free leaves it to the test */
    struct world *twin; /* another daemon on the same store and lease service, or NULL */
    struct lease_service *service;
    struct lease_provider *provider;
    struct engine_options options; /* as given */
    struct engine *engine;
    struct client clients[WORLD_CLIENTS_MAX];
    bool shutdown;
};

/* The options may be NULL; store, provider, clock and chance are filled in. */
struct world *world_new(const struct engine_options *options);
/* On another store than that of memory; one that is stepped. */
struct world *world_new_on(struct store *(*store_new)(const struct store_options *),
                           const struct engine_options *options);
/* With leases in the store, `local:`. */
struct world *world_new_local(void);
/* Another daemon on the same store and lease service: the world's twin, which goes with it. Time
 * passes in the world; what settles one settles both. */
struct world *world_add_twin(struct world *world);
void world_free(struct world *world);
/* Free all that is in it and begin as world_new does. */
void world_renew(struct world *world, const struct engine_options *options);
/* Turns everything until nothing moves any more. */
void world_settle(struct world *world);
/* Time passes in small steps; everything settles after each. */
void world_pass(struct world *world, int64_t ms);
/* Another engine on the same store and lease service: what a killed daemon leaves behind, started
 * again. Clients are gone. */
void world_restart_engine(struct world *world);
/* The same; it was down for so long. */
void world_restart_engine_in(struct world *world, int64_t ms);

struct client *world_connect(struct world *world, int number);
void world_disconnect(struct world *world, int number);
/* Sends one line (an inline command) and settles. */
void world_send(struct world *world, int number, const char *line);
/* The same without settling: the command is on its way. */
void world_send_only(struct world *world, int number, const char *line);
/* What the client received since the last call, as a C string of the test's. */
const char *world_received(struct world *world, int number);
/* Sends and returns what came back. */
const char *world_call(struct world *world, int number, const char *line);
/* INFO's counter. */
long world_counter(struct world *world, const char *name);

#endif
