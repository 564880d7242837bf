/* SPDX-License-Identifier: Apache-2.0 */
/* A backup: all pages of one snapshot, which a reader may hold while the writer goes on (the
 * write-ahead log grows meanwhile). It is left in the journal mode that needs no second file, so it
 * can be read from anywhere, and gets its name when all of it is on disk. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "store/sqlite/copy.h"

static bool name_is_free(const struct backup_call *call, char *why, size_t why_size)
{
    struct stat status;

    if (copy_is_same_file(call->file, call->store)) {
        snprintf(why, why_size, "%s is the store itself, or a part of it", call->file);
        return false;
    }
    if (lstat(call->file, &status) != 0)
        return true;
    if (call->replace && S_ISREG(status.st_mode))
        return true;
    snprintf(why, why_size,
             S_ISREG(status.st_mode) ? "%s is there already" : "%s is no ordinary file",
             call->file);
    return false;
}

static bool copy_into(const struct backup_call *call, struct scratch *scratch, sqlite3 *store,
                      char *why, size_t why_size)
{
    if (!copy_database(scratch->db, scratch->path, store, &call->watch, why, why_size))
        return false;
    if (db_exec(scratch->db, "PRAGMA journal_mode = DELETE") != SQLITE_OK)
        return db_explain(scratch->db, scratch->path, why, why_size);
    return copy_is_sound(scratch->db, call->store, &call->watch, why, why_size);
}

static bool make(struct backup_call *call, sqlite3 *store, char *why, size_t why_size)
{
    struct scratch scratch = SCRATCH_NONE;
    struct stat status;

    if (stat(call->store, &status) != 0) {
        snprintf(why, why_size, "cannot read %s: %s", call->store, strerror(errno));
        return false;
    }
    bool made = scratch_open(&scratch, call->file, ".tmp", status.st_mode & 0666, why, why_size) &&
                copy_into(call, &scratch, store, why, why_size) &&
                name_is_free(call, why, why_size) &&
                scratch_finish(&scratch, call->file, why, why_size);
    if (made && stat(call->file, &status) == 0)
        call->size_bytes = status.st_size;
    scratch_remove(&scratch);
    return made;
}

bool store_backup(struct backup_call *call, char *why, size_t why_size)
{
    if (!name_is_free(call, why, why_size))
        return false;
    sqlite3 *store = copy_source(call->store, why, why_size);
    bool made = store != NULL && make(call, store, why, why_size);
    db_close(store);
    return made;
}
