/* SPDX-License-Identifier: Apache-2.0 */
/* stockade_guard(prefix, key, newest, file): the SQL function that the triggers of a guarded table
 * call with the key of each row that changes. `newest` is the live token of the resource
 * prefix || key, which the trigger has looked up in its own file and in the same transaction, NULL
 * where there is none; `file` tells that file from others on the same connection.
 *
 * It returns 1 where the transaction has presented that very token, and fails the statement
 * otherwise, with a text that begins with "GUARDED " and says what to do.
 *
 * stockade_assigned(column, prefix, key, old_key, standing, assigned, token, state, file, takes):
 * what the triggers of a guard by column call at an INSERT or UPDATE. The statement assigns
 * `assigned` to `column`, where the row has `standing` as yet; `token` and `state` are the fence's.
 * It returns 1 where that is the live token of a row that stays its resource's. With `takes` the
 * trigger goes on to set the column to NULL, and that is let through: once. */
#ifndef STOCKADE_STORE_SQLITE_GUARD_FUNCTION_H
#define STOCKADE_STORE_SQLITE_GUARD_FUNCTION_H

#include <stdbool.h>
#include <stdint.h>

/* This is compiled twice: into the daemon, which is linked with SQLite, and into the loadable
 * extension, which is handed the functions of whatever SQLite has loaded it. */
#ifdef STOCKADE_EXTENSION
#include <sqlite3ext.h>
SQLITE_EXTENSION_INIT3
#else
#include <sqlite3.h>
#endif

#include "fence/base/bytes.h"
#include "store/txn.h"

/* What a connection knows of its transaction under way. */
struct guard_witness {
    /* Has it presented exactly this token for this resource? */
    bool (*presented)(void *context, struct bytes file, struct bytes resource, int64_t token);
    /* Is the connection's recursive_triggers on? NULL: it is, and nobody can turn it off. Where it
     * is off, REPLACE deletes rows without firing their triggers. */
    bool (*recursive)(void *context);
    /* Has a daemon served all files with this mark that the connection has open? If not, say so in
     * `why`. NULL: it is a daemon's. */
    bool (*served)(void *context, struct bytes file, char *why, size_t why_size);
    void *context;
    const char *how; /* for messages: how a token is presented here */
    /* The token that a trigger is about to take out of its row; 0: none. */
    int64_t taken;
    char taken_from[RESOURCE_NAME_MAX]; /* its resource */
    size_t taken_from_len;
};

/* Make the functions known to the connection, which borrows `witness` until it closes, or until it
 * calls `destroy` (may be NULL) with it. SQLITE_OK or SQLite's code. */
int guard_function_add(sqlite3 *db, struct guard_witness *witness, void (*destroy)(void *));

/* `text` without unprintable bytes and cut to fit, for a message; returns `out`. */
#define GUARD_PRINTABLE_MAX 80
const char *guard_printable(struct bytes text, char out[GUARD_PRINTABLE_MAX]);

#endif
