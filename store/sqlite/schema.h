/* SPDX-License-Identifier: Apache-2.0 */
/* What a store's file looks like: made, recognised, migrated forward, or refused by name. */
#ifndef STOCKADE_STORE_SQLITE_SCHEMA_H
#define STOCKADE_STORE_SQLITE_SCHEMA_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/transfer.h"

/* "STKD", in the file's header: how a file of ours is told from any other SQLite file. */
#define SCHEMA_APPLICATION_ID INT64_C(0x53544b44)

/* Make a fresh file a store, bring an older one forward, and count this opening in `opening`, all
 * in one transaction. `opening` NULL: for maintenance, which is not counted, and may also open a
 * file that a move keeps closed for everybody else. False: `why` has one line; a file
 * that is not ours was not touched. */
bool schema_prepare(sqlite3 *db, const char *path, int64_t *opening, char *why, size_t why_size);

/* Is the file a store that this program can open? `version`: its schema's; 0: it is still empty.
 * Changes nothing. False: `why` has one line. */
bool schema_recognise(sqlite3 *db, const char *path, int64_t *version, char *why, size_t why_size);
/* The version that schema_prepare brings a file to. */
int64_t schema_version(void);
/* An object that is not as Stockade has made it, or one of another program's on Stockade's tables
 * or with one of its names. */
struct schema_change {
    const char *type, *name, *table; /* as in sqlite_schema; live as long as the call */
    const char *how;                 /* "is gone", ... */
    bool harms;                      /* it can change what is written: then nothing may be */
};
typedef void schema_each_change(void *context, const struct schema_change *change);
/* Compare the objects of a store of this version with those that it was made with. SQLITE_OK or
 * SQLite's code. */
int schema_compare(sqlite3 *db, int64_t version, schema_each_change *each, void *context);
/* Say it in one line: which one, and what to do. */
void schema_explain_change(const struct schema_change *change, char *why, size_t why_size);
/* Is there none that harms? False: `why` has one line. */
bool schema_is_ours(sqlite3 *db, int64_t version, const char *path, char *why, size_t why_size);

/* Does a move keep the file closed? Then `why` says so. */
bool schema_is_closed(sqlite3 *db, const char *path, char *why, size_t why_size);
/* Read the file's part in a move. */
bool schema_mark(sqlite3 *db, struct transfer_mark *mark);
/* Write it, within a transaction. A file whose rows have gone also gets so high a version that
 * older programs, which do not know of moves, refuse it. SQLITE_OK or SQLite's code. */
int schema_mark_put(sqlite3 *db, const struct transfer_mark *mark);

#endif
