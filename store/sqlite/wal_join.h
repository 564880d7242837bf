/* SPDX-License-Identifier: Apache-2.0 */
/* Fewer and cheaper writes to the write-ahead log of the one connection that writes.
 *
 * - SQLite writes each frame in two pieces, header and page. Here they gather in a buffer that is
 *   written at the frame that commits, at a sync, and wherever else somebody could look: a commit
 *   costs one write, and its frames are in the file before SQLite tells readers of them.
 * - A sync of bytes that are new to the file costs twice as much as one of bytes written over. So
 *   where the log grows it is written ahead with zeros, a piece at a time. (SQLite takes the log to
 *   end where the checksums do.)
 *
 * Sits between SQLite and the file of its VFS, whichever that is: it takes the place of the open
 * file's methods. For a connection with PRAGMA synchronous = FULL, which syncs each commit. */
#ifndef STOCKADE_STORE_SQLITE_WAL_JOIN_H
#define STOCKADE_STORE_SQLITE_WAL_JOIN_H

#include <sqlite3.h>
#include <stdint.h>

struct wal_join;

/* The log is open: the connection is in WAL mode and has read something. NULL: it is not. */
struct wal_join *wal_join_attach(sqlite3 *db);
/* How often the page that is there most often is among the latest frames, up to 4,096 of them.
 * SQLite looks for a page in as many at once, by hashing: one that is there a thousand times is a
 * thousand collisions for each page that is looked for there. */
int wal_join_repeats(const struct wal_join *join);
/* Of the database, as this connection's last commit has left it; 0: there was none. */
int64_t wal_join_pages(const struct wal_join *join);
/* What was not committed has been rolled back, and need not be written any more. */
void wal_join_forget(struct wal_join *join);
/* When the connection is closed. NULL is fine. */
void wal_join_free(struct wal_join *join);

#endif
