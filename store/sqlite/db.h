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

enum db_mode {
    DB_WRITER,       /* commits for a store that is at work; makes the file where it is missing */
    DB_CHECKPOINTER, /* copies the log back for it */
    DB_OFFLINE,      /* writes as any program would; makes the file where it is missing */
    DB_READER,
};

/* Is there a pipe or a device at the path? SQLite would wait for it. (It tells of a folder.) */
bool db_is_special(const char *path);
/* Open a connection, and change nothing in the file: whether it is ours, schema.c has to find out
 * first. Nobody writes by one of several names (place.h). NULL: `why` has one line for people. The
 * caller closes it with db_close. */
sqlite3 *db_open(const char *path, enum db_mode mode, char *why, size_t why_size);
/* NULL is fine. SQLITE_OK or SQLite's code: then it is still open. */
int db_close(sqlite3 *db);
/* Run statements that give no rows, or whose rows do not matter. SQLITE_OK or SQLite's code. */
int db_exec(sqlite3 *db, const char *sql);
/* Take the first column of the first row; `value` is unchanged where there is no row. SQLITE_OK or
 * SQLite's code. */
int db_int64(sqlite3 *db, const char *sql, int64_t *value);
/* Say that there is no room for the file: the path comes last, for it may be cut. */
void db_explain_full(const char *path, char *why, size_t why_size);
/* Say in one line what went wrong with `db` last, and what to do. Return false. */
bool db_explain(sqlite3 *db, const char *path, char *why, size_t why_size);

#endif
