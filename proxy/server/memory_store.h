/* SPDX-License-Identifier: Apache-2.0 */
/* `--store :memory:`: a store for tests, which goes with its daemon. It is a file as any other, in
 * a folder of its own in memory (/dev/shm; where there is none, TMPDIR or /tmp), so that a test
 * runs what production runs. SQLite's own ":memory:" has no log, and no second connection that
 * reads while the first one writes.
 *
 * The folder goes when the daemon ends. One that was killed leaves it; the next daemon with such a
 * store removes it. Those that are in use are locked. */
#ifndef STOCKADE_SERVER_MEMORY_STORE_H
#define STOCKADE_SERVER_MEMORY_STORE_H

#include <stdbool.h>
#include <stddef.h>

enum { MEMORY_STORE_FOLDER_MAX = 256 };

struct memory_store {
    char folder[MEMORY_STORE_FOLDER_MAX]; /* "": there is none */
    char uri[MEMORY_STORE_FOLDER_MAX + 32];
    int lock; /* the folder, open */
};

/* Make a folder, and remove those that daemons have left which are no more. `uri` is then that of
 * the store, which is not there yet. False: `why` is one line. */
bool memory_store_make(struct memory_store *store, char *why, size_t why_size);
/* Remove it with all that is in it, if there is one. */
void memory_store_remove(struct memory_store *store);

#endif
