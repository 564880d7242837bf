/* SPDX-License-Identifier: Apache-2.0 */
/* Where a store lies: one file, one name, one log.
 *
 * SQLite finds a file's write-ahead log by the file's name (sqlite.org/howtocorrupt.html, 2.4). Who
 * opens the same file by another name has another log: two daemons would grant the same tokens, and
 * what was acknowledged by one would be unknown to the other. Locks do not help, for the two have
 * no file in common but the main one, on which everybody who reads it has the same lock. So
 *
 * - a file with more than one name is not opened: neither one with hard links, nor one that is
 *   mounted by itself (its folder may be). That a link is made later is seen by files.c;
 * - the file itself says where its log is, from before the first grant on. Who opens it elsewhere,
 *   since it was renamed, and finds that log with something in it, leaves it alone, and likewise
 *   who finds it beside another main file.
 *
 * Symbolic links are resolved by SQLite, and a folder may have any number of names: all of these
 * lead to one log, so several daemons may use them. */
#ifndef STOCKADE_STORE_SQLITE_PLACE_H
#define STOCKADE_STORE_SQLITE_PLACE_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

/* Is it fit to be opened by this name? True also where there is nothing yet, or no file: whoever
 * opens it will say so. Opens nothing. False: `why` has one line. */
bool place_is_sole(const char *path, char *why, size_t why_size);

/* Is the log beside the file that of this file, and no other is? The connection is in a
 * transaction. False: `why` has one line, and closing the connection will leave the log alone. */
bool place_has_log(sqlite3 *db, const char *path, char *why, size_t why_size);
/* Note in the file where its log is, which is open, and bring that into the main file. Within no
 * transaction. SQLITE_OK or SQLite's code. */
int place_note_log(sqlite3 *db);
/* Remove the note from a copy. SQLITE_OK or SQLite's code. */
int place_forget_log(sqlite3 *db);

#endif
