/* SPDX-License-Identifier: Apache-2.0 */
/* What a store's file looks like: made, recognised, migrated forward, or refused by name. */
#ifndef STOCKADE_STORE_SQLITE_SCHEMA_H
#define STOCKADE_STORE_SQLITE_SCHEMA_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "STKD", in the file's header: how a file of ours is told from any other SQLite file. */
#define SCHEMA_APPLICATION_ID INT64_C(0x53544b44)

/* Makes a fresh file a store, brings an older one forward, and counts this opening in `session`,
 * all in one transaction. False: `why` has one line; a file that is not ours was not touched. */
bool schema_prepare(sqlite3 *db, const char *path, int64_t *session, char *why, size_t why_size);

#endif
