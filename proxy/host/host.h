/* SPDX-License-Identifier: Apache-2.0 */
/* An engine at work: its store, its lease provider and its turns, on a libuv loop. The daemon and
 * the library's embedded mode both are this, with sockets or without.
 *
 * One turn of the loop: events happen (timers, sockets, the store's wake-up, lease answers), then
 * `prepare`, which libuv calls when all of them are done and before it goes to sleep, lets the
 * engine finish the turn and sets the timer for its next one. Every event thus has its turn before
 * the loop blocks, and what came in together is answered together.
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
    int cache_mb;          /* as in struct store_options */
    /* The engine has had its turn, and the loop is about to sleep. May close the host. */
    void (*turned)(void *context);
    /* A commit has an unknown outcome (store_lost): nothing that is open will be answered. Called
     * once. */
    void (*lost)(void *context);
    void *context;
};

/* NULL: the loop cannot take its handles (no file descriptors are left). */
struct host *host_new(const struct host_options *options);
/* The store at `path`, with threads, and the provider of a lease URI that parses. False: `why` is
 * one line. */
bool host_open(struct host *host, const char *path, const char *lease, char *why, size_t why_size);
/* Fills in the store, the provider, the clock, chance and the log, and makes the engine. */
struct engine *host_open_engine(struct host *host, struct engine_options options);
/* Turns from here on; calls `ready` once it is known how things stand with the lease service. */
void host_start(struct host *host, void (*ready)(void *context));

/* NULL before they are open. */
struct engine *host_engine(const struct host *host);
struct store *host_store(const struct host *host);
struct lease_provider *host_provider(const struct host *host);

/* Ends the turns and the provider; `closed` is called when only the loop has to run dry. Sessions
 * are closed and the engine is idle by then, unless the store is lost. */
void host_close(struct host *host, void (*closed)(void *context));
/* The engine, then the store. Where the store is lost, the engine's open requests are lost with it,
 * and their memory too. */
void host_free(struct host *host);

#endif
