/* SPDX-License-Identifier: Apache-2.0 */
/* Looking after a store, whether a daemon works on it or not: take a copy (backup), put it back
 * (restore), check it, move it to another store. These are functions on the URIs of stores
 * and the paths of files, and they print nothing.
 *
 * Each returns false where it could not do its work, with one line in `why`; the store and the
 * backup are then as they were. They block for as long as it takes: `watch` is called meanwhile. */
#ifndef STOCKADE_STORE_MAINTENANCE_H
#define STOCKADE_STORE_MAINTENANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

#define MAINTENANCE_WHY_MAX STORE_OPEN_WHY_MAX /* bytes */

struct maintenance_watch {
    /* `doing` is a word or two; of `total` parts `done` are done, 0 of 0 where nobody knows. False:
     * give up, undo. */
    bool (*step)(void *context, const char *doing, int64_t done, int64_t total);
    void *context;
};

struct backup_call {
    const char *store; /* its URI; of one kind's function: what stands behind its scheme */
    const char *file;  /* a path */
    bool replace;      /* `file` may be there already */
    struct maintenance_watch watch;
    int64_t size_bytes; /* out: of the backup */
};

/* Copy the store as it is at one moment into a file that needs no other beside it, check the copy,
 * make it durable and only then give it its name. Writers go on meanwhile. The file is a store's
 * file of SQLite, whatever the store is. */
bool store_backup(struct backup_call *call, char *why, size_t why_size);

struct restore_call {
    const char *file, *store; /* as above; `store` need not be there */
    struct maintenance_watch watch;
    int64_t floor;          /* out: every token from now on is larger */
    int64_t revoked;        /* out: leases that were live in the backup */
    bool replaced;          /* out: there was a store */
    bool present_forgotten; /* out: its tokens could not be read */
};

/* Put a backup in the store's place, in one transaction of the store's own: daemons that have it
 * open see the old state, then the new one. No token that was given out before is ever given out
 * again (P2) or fits (P1):
 *
 * - Every live lease of the backup is revoked.
 * - The store-wide floor rises to the time in microseconds since 1970 (token_floor_anew). That
 * lies above all that was given out after the backup was taken, also by a store that is lost, and
 * also by one that was restored from the same backup before. Where a token of the backup or of the
 * present store lies higher still (a clock that was wrong, a number that was written by hand), the
 * floor rises above that. */
bool store_restore(struct restore_call *call, char *why, size_t why_size);

/* What is no damage, but had better be known. */
#define CHECK_WARNING "warning"

struct check_call {
    const char *store; /* as above */
    /* A finding, or an CHECK_WARNING: which kind, and one line of printable ASCII. */
    void (*found)(void *context, const char *kind, const char *text);
    struct maintenance_watch watch;                        /* `found` has the same context */
    int64_t findings, resources, values, receipts, guards; /* out; warnings are no findings */
};

/* Check the store as it is at one moment. False: it could not be read. */
bool store_check(struct check_call *call, char *why, size_t why_size);

struct move_call {
    const char *from, *to; /* URIs */
    struct maintenance_watch watch;
    int64_t resources, leases; /* out */
    bool done_before;          /* out: it was there already, all of it */
    bool closed;               /* out, with false: `from` may be closed already; move again */
    char left[200];            /* out: names of users' tables, which stay; empty: none are known */
};

/* Move fences, leases, values, receipts and heads of audits to a store that was never used. What
 * was at work on the old store is refused from then on, by a line that names the new one.
 * A crash leaves the old store as it was, or leaves the rest to the same call: move.c. */
bool store_move(struct move_call *call, char *why, size_t why_size);

/* The head of a chain of the audit (proxy/server/audit/chain.h), as the store has kept it. */
struct store_audit_head {
    char chain[33], hash[65]; /* hexadecimal */
    int64_t lines;
};

/* All that are in the store of this URI, in `*heads`, which the caller frees. */
bool store_audit_heads(const char *uri, struct store_audit_head **heads, size_t *count, char *why,
                       size_t why_size);

/* The same of one kind of store. */
bool store_sqlite_backup(struct backup_call *call, char *why, size_t why_size);
bool store_sqlite_restore(struct restore_call *call, char *why, size_t why_size);
bool store_sqlite_check(struct check_call *call, char *why, size_t why_size);
bool store_sqlite_heads(const char *path, struct store_audit_head **heads, size_t *count, char *why,
                        size_t why_size);
bool store_postgresql_backup(struct backup_call *call, char *why, size_t why_size);
bool store_postgresql_restore(struct restore_call *call, char *why, size_t why_size);
bool store_postgresql_check(struct check_call *call, char *why, size_t why_size);
bool store_postgresql_heads(const char *uri, struct store_audit_head **heads, size_t *count,
                            char *why, size_t why_size);

#endif
