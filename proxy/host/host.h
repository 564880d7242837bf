/* SPDX-License-Identifier: Apache-2.0 */
/* An engine at work on a libuv loop, with its store and its lease provider. The daemon and the
 * library's embedded mode are built on it, the one with sockets and the other without.
 *
 * In a turn of the loop events come in: timers, sockets, the store's wake-up, lease answers. After
 * all of them, before the loop sleeps, libuv's `prepare` lets the engine finish the turn and sets
 * the timer for the next one. So what came in together is answered together.
 *
 *   host_new ─▶ host_open ─▶ host_open_engine ─▶ host_start ─▶ host_close ─▶ (the loop runs dry)
 *            ─▶ host_free
 *
 * Calls may skip steps forward, as a start that failed half-way does. One thread, the loop's. */
#ifndef STOCKADE_HOST_HOST_H
#define STOCKADE_HOST_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "fence/base/log.h"
#include "proxy/engine/engine.h"

struct host;

struct host_options {
    uv_loop_t *loop;       /* borrowed; outlives the host */
    const struct log *log; /* may be NULL */
    int cache_mb;          /* as in struct store_options; so the next */
    bool store_passes;
    /* The engine has had its turn, and the loop is about to sleep. May close the host. */
    void (*turned)(void *context);
    /* A commit has an unknown outcome (store_lost): nothing that is open will be answered. Called
     * once. */
    void (*lost)(void *context);
    void *context;
};

/* Make a host. NULL: the loop cannot take its handles, as no file descriptors are left. */
struct host *host_new(const struct host_options *options);
/* Open the store at `path`, with its threads, and the provider of the lease URI. False: `why` is
 * one line. */
bool host_open(struct host *host, const char *store, const char *lease, char *why, size_t why_size);
/* Make the engine; store, provider, clock, chance and log are filled in here. */
struct engine *host_open_engine(struct host *host, struct engine_options options);
/* Begin the turns. Call `ready` once it is known whether the lease service answers. */
void host_start(struct host *host, void (*ready)(void *context));

/* Return the engine, NULL before it is open. */
struct engine *host_engine(const struct host *host);
/* The same for the store. */
struct store *host_store(const struct host *host);
/* The same for the lease provider. */
struct lease_provider *host_provider(const struct host *host);

/* End the turns and the provider; `closed` is called when only the loop has to run dry. Sessions
 * must be closed and the engine idle, unless the store is lost. */
void host_close(struct host *host, void (*closed)(void *context));
/* Free the engine, then the store. Where the store is lost, the engine's open requests are lost
 * with it, and so is their memory. */
void host_free(struct host *host);

#endif
