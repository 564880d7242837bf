/* SPDX-License-Identifier: Apache-2.0 */
/* One SQLite connection: opened, set up, asked simple questions. Each connection belongs to one
 * thread at a time (it has no mutex of its own). */
#ifndef STOCKADE_STORE_SQLITE_DB_H
#define STOCKADE_STORE_SQLITE_DB_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DB_BUSY_TIMEOUT_MS 5000 /* another program may hold the file's locks this long */

enum db_mode { DB_WRITER, DB_READER };

/* NULL: `why` has one line for people. DB_WRITER makes the file where it is missing, and has
 * changed nothing in it yet; DB_READER wants it to be there. The caller closes with sqlite3_close.
 */
sqlite3 *db_open(const char *path, enum db_mode mode, char *why, size_t why_size);
/* Runs statements that give no rows, or whose rows do not matter. SQLITE_OK or SQLite's code. */
int db_exec(sqlite3 *db, const char *sql);
/* The first column of the first row; unchanged where there is no row. SQLITE_OK or its code. */
int db_int64(sqlite3 *db, const char *sql, int64_t *value);
/* What went wrong with `db` last, and what to do, as one line. Returns false. */
bool db_explain(sqlite3 *db, const char *path, char *why, size_t why_size);

#endif
