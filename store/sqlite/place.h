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
 *   who finds it beside another main file;
 * - the file itself says which file it is. One that says another one is a copy, of which there may
 *   be more: who serves it begins anew (anew.h).
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

/* What the file says of where it was served last. All false: here, or it is not the operating
 * system's file. */
struct place {
    bool unnoted;   /* nothing: that was a version before this one */
    bool other;     /* in another file: this one is a copy, or a backup */
    bool elsewhere; /* on another file system, if the machine was not started anew since: some have
                     * another id after that */
    bool differs;   /* the note is to be made anew */
};
/* The functions below return SQLITE_OK or SQLite's code. */
int place_look(sqlite3 *db, struct place *place);
/* Note in `db` that it is served in the file that `files` has open, which may be the same, and
 * where the log of that is. */
int place_note(sqlite3 *db, sqlite3 *files);
/* Bring the note, which is committed, into the main file. Within no transaction. */
int place_copy_back(sqlite3 *db);
/* Note in a backup that whoever serves it has another file. */
int place_disown(sqlite3 *db);

#endif
