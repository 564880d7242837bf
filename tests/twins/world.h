/* SPDX-License-Identifier: Apache-2.0 */
/* A whole daemon in one thread, but for sockets: its engine, its store, its lease provider, time,
 * and clients that write and read the bytes of the protocol. Unit tests, fuzzers and the crash disk
 * are built on it; the simulator, which runs several daemons, shares the clients' connections.
 *
 * Unless a test brings its own, the store and the lease service are the twins in memory, and the
 * clock is one that only the test turns. Nothing happens but in world_settle. */
#ifndef STOCKADE_TESTS_TWINS_WORLD_H
#define STOCKADE_TESTS_TWINS_WORLD_H

#include "fence/base/clock.h"
#include "store/open.h"
#include "tests/twins/memory_conn.h"
#include "tests/twins/memory_lease.h"
#include "tests/twins/memory_store.h"

#define WORLD_CLIENTS_MAX 80

struct world {
    struct clock own_clock;
    const struct clock *clock; /* the engine's */
    int64_t now_ms;            /* of its own clock */
    struct chance chance;
    uint64_t chance_state;
    struct store *store;
    struct world *twin; /* another daemon on the same store and lease service, or NULL */
    struct world *lost; /* the next of those whose store was lost */
    struct lease_service *service;
    struct lease_provider *provider;
    struct engine_options options; /* as given */
    struct engine *engine;
    bool holds_asides;
    struct engine_job *asides[WORLD_CLIENTS_MAX];
    size_t asides_count;
    struct memory_conn clients[WORLD_CLIENTS_MAX];
    bool shutdown;
};

/* The options may be NULL. What they say of the store and the clock is borrowed where it is not
 * NULL; host, provider and chance are filled in. */
struct world *world_new(const struct engine_options *options);
/* The same with leases in the store, `local:`. */
struct world *world_new_local(const struct engine_options *options);
/* Add another daemon on the same store and lease service: the world's twin, which goes with it.
 * Time passes in the world; what settles one settles both. */
struct world *world_add_twin(struct world *world);
/* End it. Where the store is lost, what waits in the engine stays there, and its memory with it. */
void world_free(struct world *world);
/* Free all that is in it, and begin as world_new does. */
void world_renew(struct world *world, const struct engine_options *options);
/* Turn everything until nothing moves any more, or the store is lost. */
void world_settle(struct world *world);
/* Let the store do one step, and collect it: what comes after it waits. */
void world_step_store(struct world *world);
/* Let time pass in small steps; everything settles after each. */
void world_pass(struct world *world, int64_t ms);
/* While they are held, nothing that the engine has done aside, such as checking a password, ends.
 */
void world_hold_asides(struct world *world, bool held);
/* Begin another engine on the same store and lease service, as a daemon that was killed and has
 * been started again after so long. Clients are gone. */
void world_restart_engine(struct world *world, int64_t ms);

void world_connect(struct world *world, int number);
void world_disconnect(struct world *world, int number);
/* Send one line (an inline command), and settle. The client is connected where it is not. */
void world_send(struct world *world, int number, const char *line);
/* The same without settling: the command is on its way. */
void world_send_only(struct world *world, int number, const char *line);
/* Return what the client has received since the last call, as text that is valid until it receives
 * more. */
const char *world_received(struct world *world, int number);
/* Send the line, and return what came back. */
const char *world_call(struct world *world, int number, const char *line);
/* Return one of INFO's counters. */
long world_counter(struct world *world, const char *name);

#endif
