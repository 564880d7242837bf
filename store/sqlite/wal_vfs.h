/* SPDX-License-Identifier: Apache-2.0 */
/* A VFS of our own, for the connections that write: a shim over the default VFS, registered for one
 * connection. It changes how the write-ahead log (WAL) is written, and how what is copied from it
 * into the main file is synced. Everything else goes straight to the VFS below: an open file is
 * that VFS's own, with a few methods replaced when it is opened, so the rest costs nothing.
 *
 * The log, of the connection that commits (it needs PRAGMA synchronous = FULL, which syncs each
 * commit):
 *
 * - Writes are joined. SQLite writes each frame in two pieces, header and page. Here they gather in
 *   a buffer that is written with the frame that commits, at a sync, and wherever else somebody
 *   could look: a commit costs one write, and its frames are in the file before SQLite tells
 *   readers of them. A write that fails stays in the buffer and fails whatever needs it; SQLite
 *   rolls back then, and the buffer is forgotten (wal_vfs_forget).
 * - The log is extended ahead. To sync bytes that are new to a file costs twice as much as to sync
 *   bytes written over. So where the log grows it is filled with zeros, a piece at a time. (SQLite
 *   takes the log to end where the checksums do.)
 *
 * The main file, into which a checkpoint copies: it is synced piece by piece, for a single sync at
 * the end would hold up the syncs of commits; and before anybody may take the copy for safe:
 *
 *   SQLite 3.40.1 copies (wal.c, walCheckpoint) in this order: sync the WAL; write the pages;
 *   SQLITE_FCNTL_CKPT_DONE; where the pass has reached the end of the WAL, truncate and sync the
 *   file; then store how far it got in the shared wal-index (nBackfill), and unlock. A pass that
 *   stops short of the end, because a reader needs the rest or the writer went on, thus marks pages
 *   as copied that nobody has synced. SQLite relies on the sync of the pass that does reach the
 *   end. But a failed sync is reported once, to its own file descriptor, and the next one, of a
 *   file opened later, succeeds over the loss. The wal-index lives as long as any process has the
 *   store open. So after a daemon that ended because a sync had failed, a new one, beside a third
 *   program that kept the wal-index, would trust the mark, copy the rest, sync without an error and
 *   begin the WAL anew: with it would go the only good copy of those pages. (Where nobody had it
 *   open, SQLite's recovery sets the mark to 0.)
 *
 *   So every pass of ours is synced before its mark is stored, at CKPT_DONE; and where any sync
 *   fails, the mark goes back to 0 before the pass unlocks: everybody copies the whole WAL again.
 *   That is safe: the locks of a checkpoint are still held; nobody can have begun the WAL anew, for
 *   the mark has not reached its end; and a mark that is too small costs only time.
 *
 * Whoever has the connection owns all of this. */
#ifndef STOCKADE_STORE_SQLITE_WAL_VFS_H
#define STOCKADE_STORE_SQLITE_WAL_VFS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

struct wal_vfs;

/* Register one over the default VFS, for one connection. `commits`: the connection commits, so its
 * log is joined; else it only copies. NULL: there is no VFS, or SQLite has no memory. */
struct wal_vfs *wal_vfs_new(bool commits);
/* What to open the connection with. */
const char *wal_vfs_name(const struct wal_vfs *vfs);
/* Free it, when the connection is closed. NULL is fine. */
void wal_vfs_free(struct wal_vfs *vfs);
/* The one that the connection was opened with; NULL: another VFS. */
struct wal_vfs *wal_vfs_of(sqlite3 *db);

/* Return how often the most frequent page is among the latest frames of the log, up to 4,096 of
 * them. SQLite has a hash table for as many frames: a page that is in it a thousand times means a
 * thousand collisions for each page that is looked up there. */
int wal_vfs_repeats(const struct wal_vfs *vfs);
/* Return the size of the database as this connection's last commit has left it, in pages; 0: there
 * was none. */
int64_t wal_vfs_pages(const struct wal_vfs *vfs);
/* Forget what is still to be written: it was not committed, and has been rolled back. */
void wal_vfs_forget(struct wal_vfs *vfs);
/* SQLITE_OK, or how a sync in the latest checkpoint failed: SQLite does not report all of them. */
int wal_vfs_sync_code(const struct wal_vfs *vfs);

#endif
