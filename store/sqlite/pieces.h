/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection syncs what it copies from the WAL into the main file: piece by piece, and before
 * anybody may take it for safe. It takes the place of the methods of the open file.
 *
 * Piece by piece: synced at the end, all in one, it would hold up the syncs of commits.
 *
 * SQLite 3.40.1 copies (wal.c, walCheckpoint) in this order: sync the WAL; write the pages;
 * SQLITE_FCNTL_CKPT_DONE; where the pass has reached the end of the WAL, truncate and sync the
 * file; then store how far it got in the shared wal-index (nBackfill), and unlock. A pass that
 * stops short of the end, since a reader needs the rest or the writer went on, thus marks pages as
 * copied that nobody has synced. SQLite relies on the sync of the pass that does reach the end. But
 * a sync that fails tells its own file descriptor once, and the next one, of a file opened later,
 * succeeds over the loss. The wal-index lives as long as any process has the store open. So after a
 * daemon that ended because a sync had failed, a new one, beside a third program that kept the
 * wal-index, would trust the mark, copy the rest, sync without an error and begin the WAL anew:
 * with it would go the only good copy of those pages. (Where nobody had it open, recovery sets the
 * mark to 0.)
 *
 * So every pass of ours is synced before its mark is stored, at CKPT_DONE; and where any sync
 * fails, the mark goes back to 0 before the pass unlocks: everybody copies the whole WAL again.
 * That is safe: the locks of a checkpoint are still held, nobody can have begun the WAL anew, for
 * the mark has not reached its end, and a mark that is too small costs only time. */
#ifndef STOCKADE_STORE_SQLITE_PIECES_H
#define STOCKADE_STORE_SQLITE_PIECES_H

#include <sqlite3.h>
#include <stdbool.h>

struct pieces {
    sqlite3_io_methods methods; /* first: the file points here */
    const sqlite3_io_methods *below;
    int unsynced; /* bytes */
    int code;     /* of the sync that failed in this pass */
};

/* The connection has its WAL open; `pieces` outlives it. */
void pieces_attach(struct pieces *pieces, sqlite3 *db);
/* SQLITE_OK, or how a sync in the latest pass failed: SQLite does not say so of all. */
int pieces_code(const struct pieces *pieces);

#endif
