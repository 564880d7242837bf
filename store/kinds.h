/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of store that a URI can name, one row for each: kinds.c has the table. */
#ifndef STOCKADE_STORE_KINDS_H
#define STOCKADE_STORE_KINDS_H

#include "store/maintenance.h"
#include "store/open.h"
#include "store/transfer.h"

/* A kind's functions take a store by its name: the path of its file, or, in the network, its whole
 * URI. Their contracts are in open.h, maintenance.h and transfer.h. */
struct store_kind {
    const char *name;
    const char *schemes[3]; /* its URIs begin with one of these; ends with NULL */
    /* A server has it: its URIs may have passwords in them, and options behind a `?`. */
    bool in_network;
    bool (*is_valid)(const char *name, char *why, size_t why_size);
    struct store *(*open)(const struct store_options *options, char *why, size_t why_size);
    bool (*backup)(struct backup_call *call, char *why, size_t why_size);
    bool (*restore)(struct restore_call *call, char *why, size_t why_size);
    bool (*check)(struct check_call *call, char *why, size_t why_size);
    bool (*heads)(const char *name, struct store_audit_head **heads, size_t *count, char *why,
                  size_t why_size);
    struct transfer *(*transfer)(const char *name, enum transfer_use use,
                                 struct maintenance_watch watch, char *why, size_t why_size);
};

/* Return the kind of store that the URI's scheme names. NULL: no store's. */
const struct store_kind *store_kind_of(const char *uri);
/* Is the store that the URI names in the network? False, too, where it names no store. */
bool store_is_in_network(const char *uri);
/* Does it ask for a store in memory, as SQLite's users write it? Only a daemon has one
 * (proxy/server/memory_store.h); here it names no store. */
bool store_uri_is_memory(const char *uri);
/* Return the kind of a URI that is valid, and the store's name in `*name`, which is a part of the
 * URI. NULL: `why` says what is wrong with it. */
const struct store_kind *store_kind_find(const char *uri, const char **name, char *why,
                                         size_t why_size);

#endif
