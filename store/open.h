/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a store. */
#ifndef STOCKADE_STORE_OPEN_H
#define STOCKADE_STORE_OPEN_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/clock.h"
#include "fence/base/log.h"

#include "store/store.h"

/* Enough for a million resources with small values. */
#define STORE_CACHE_MB 128

struct store_options {
    const char *path;     /* the SQLite file, made where it is missing; or libpq's URI. Copied */
    bool threads;         /* own writer and reader threads; else the owner calls store_step */
    size_t queue_ops_max; /* operations waiting, writes and reads counted apart */
    size_t batch_ops_max; /* operations in one transaction */
    int checkpoint_pages; /* so many in the WAL are copied into the file; 0: by the file's size */
    int cache_mb;         /* names and pages that writes find in memory; 0: STORE_CACHE_MB */
    bool passes;          /* it is made for this process, and goes with it */
    void (*wake)(void *context); /* something is finished; called on the store's threads */
    void *context;
    const struct log *log; /* may be NULL */
    /* Its wall clock dates rows; durations are measured with it. NULL: the system's. Outlives the
     * store. */
    const struct clock *clock;
};

/* Open the store of a URI: sqlite:PATH or postgresql://... (also postgres://); `path` of the
 * options is left out. NULL: `why` says in one line what is wrong and what to do. The caller owns
 * the store and ends it with store_close. */
struct store *store_open(const char *uri, struct store_options options, char *why, size_t why_size);
/* Is it the URI of a store? Nothing is opened. */
bool store_uri_is_valid(const char *uri, char *why, size_t why_size);

/* Stop SQLite counting its memory, which takes a lock around each allocation. For the whole
 * process, so only for a program of our own, before it opens a store. */
void store_sqlite_uncounted(void);

/* Open or make the file, migrate it forward, start the threads. NULL: `why` says in one line what
 * is wrong and what to do (foreign file, newer schema, read-only, locked, no room, ...). The caller
 * owns the store and ends it with store_close. */
struct store *store_sqlite_open(const struct store_options *options, char *why, size_t why_size);

/* The same for a store in PostgreSQL: `path` is libpq's URI. NULL: waiting does not mend why it
 * cannot be used (no such role or database, no right, no store of ours). One that cannot be reached
 * now is tried again, and operations get STK_STORE until then. */
struct store *store_postgresql_open(const struct store_options *options, char *why,
                                    size_t why_size);
bool store_postgresql_uri_is_valid(const char *uri, char *why, size_t why_size);

#endif
