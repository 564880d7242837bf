/* SPDX-License-Identifier: Apache-2.0 */
/* What backup, restore and check share: a database file in the making, and copying one database
 * over another. Each function that returns false has filled in `why`. */
#ifndef STOCKADE_STORE_SQLITE_COPY_H
#define STOCKADE_STORE_SQLITE_COPY_H

#include <sys/types.h>

#include "store/maintenance.h"
#include "store/sqlite/db.h"

/* A database that is being made beside the file whose place it will take. It belongs to whoever has
 * locked it; what a killed process left there is taken over. Nothing in it is durable before
 * scratch_finish. */
struct scratch {
    char *path; /* owned */
    int fd;     /* holds the lock */
    sqlite3 *db;
};
#define SCRATCH_NONE ((struct scratch){.fd = -1})

/* Make an empty one, whose name is `beside` and `suffix`, with these permissions. */
bool scratch_open(struct scratch *scratch, const char *beside, const char *suffix, mode_t mode,
                  char *why, size_t why_size);
/* Close the database and rename the file, both durably. Then the scratch is gone. */
bool scratch_finish(struct scratch *scratch, const char *path, char *why, size_t why_size);
/* Remove what is left of it. Also after scratch_finish, and of SCRATCH_NONE. */
void scratch_remove(struct scratch *scratch);

/* How long to wait for another program's lock, and who may have enough of it earlier. */
struct copy_patience {
    struct maintenance_watch watch;
    int tries;        /* of a millisecond */
    bool interrupted; /* out: the watch had enough */
};

/* Make the connection try for such a lock once a millisecond. (SQLite's own way of waiting, with
 * growing pauses, lets a busy writer come first time and again.) `patience` outlives it. */
void copy_try_often(sqlite3 *db, struct copy_patience *patience);
/* Say in one line what went wrong with `db` last. Return false. */
bool copy_explain(const struct copy_patience *patience, sqlite3 *db, const char *path, char *why,
                  size_t why_size);
/* Make `to` a copy of `from`, in one transaction of `to`. `from` is in a read transaction. */
bool copy_database(sqlite3 *to, const char *to_path, sqlite3 *from,
                   const struct maintenance_watch *watch, char *why, size_t why_size);
/* Let SQLite check that it is sound. `path` is what to call it. */
bool copy_is_sound(sqlite3 *db, const char *path, const struct maintenance_watch *watch, char *why,
                   size_t why_size);
/* Open a store, or a backup of one, for reading, and begin to read: what is read from now on is
 * the state of one moment. NULL: there is none, or it is not a `what` ("store" or "backup"). */
sqlite3 *copy_source(const char *path, const char *what, char *why, size_t why_size);
/* May a file be made under this name, or, with `replace`, take the place of an ordinary one? */
bool copy_name_is_free(const char *path, bool replace, char *why, size_t why_size);
/* Are the two paths one file, or is the first a file that SQLite keeps beside the second? */
bool copy_is_same_file(const char *path, const char *database);
/* Make the names in the file's folder durable. */
bool copy_sync_folder(const char *path, char *why, size_t why_size);

#endif
