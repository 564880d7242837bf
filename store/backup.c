/* SPDX-License-Identifier: Apache-2.0 */
/* Backup and restore of a store in PostgreSQL. A backup is a store's file, as one of a store in
 * SQLite is: it can be looked at, checked, and put in the place of either kind of store.
 *
 * What only PostgreSQL has is not in it: the users' own tables, for whose backups the database's
 * own tools are, and the guards on them, which a restore leaves as they are. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "store/floor.h"
#include "store/sqlite/copy.h"
#include "store/transfer.h"

enum { MODE = 0600 };

/* Backup. */

static bool pump(struct transfer *from, struct transfer *to, char *why, size_t why_size)
{
    struct transfer_facts source, target;

    bool good = to->impl->begin(to) && to->impl->facts(to, &target);
    if (!from->impl->begin(from) || !from->impl->facts(from, &source)) {
        text_print(why, why_size, "%s", from->why);
        return false;
    }
    if (source.mark.part == TRANSFER_COMING &&
        transfer_is_closed(&source.mark, from->label, why, why_size))
        return false;
    good = good && transfer_rows(from, &source, to, &target, source.floor) && to->impl->commit(to);
    if (!good)
        text_print(why, why_size, "%s", to->why);
    return good;
}

static bool fill(const struct backup_call *call, struct scratch *scratch, char *why,
                 size_t why_size)
{
    struct transfer *to, *from;
    bool filled = false;

    from = transfer_postgresql(call->store, TRANSFER_READ, call->watch, why, why_size);
    if (from == NULL)
        return false;
    to = transfer_sqlite(scratch->path, TRANSFER_FILL, call->watch, why, why_size);
    if (to != NULL) {
        filled = pump(from, to, why, why_size);
        to->impl->close(to);
    }
    from->impl->close(from);
    /* Out of the mode that a store at work has: a second file would only be in the way. */
    return filled &&
           (db_exec(scratch->db, "PRAGMA journal_mode = DELETE") == SQLITE_OK ||
            db_explain(scratch->db, scratch->path, why, why_size)) &&
           copy_is_sound(scratch->db, scratch->path, &call->watch, why, why_size);
}

bool store_postgresql_backup(struct backup_call *call, char *why, size_t why_size)
{
    struct scratch scratch = SCRATCH_NONE;
    struct stat status;

    if (!copy_name_is_free(call->file, call->replace, why, why_size))
        return false;
    bool made = scratch_open(&scratch, call->file, ".tmp", MODE, why, why_size) &&
                fill(call, &scratch, why, why_size) &&
                copy_name_is_free(call->file, call->replace, why, why_size) &&
                scratch_finish(&scratch, call->file, why, why_size);
    if (made && stat(call->file, &status) == 0)
        call->size_bytes = status.st_size;
    scratch_remove(&scratch);
    return made;
}

/* Restore. */

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* All in the store's one transaction. */
static bool replace(struct restore_call *call, struct transfer *from, struct transfer *to,
                    char *why, size_t why_size)
{
    static const struct transfer_mark none = {.part = TRANSFER_NONE};
    struct transfer_facts source, target;

    if (!from->impl->begin(from) || !from->impl->facts(from, &source)) {
        text_print(why, why_size, "%s", from->why);
        return false;
    }
    if (!to->impl->begin(to) || !to->impl->facts(to, &target)) {
        text_print(why, why_size, "%s", to->why);
        return false;
    }
    int64_t known = larger(larger(source.token, source.floor), larger(target.token, target.floor));
    call->floor = store_floor_anew(known, target.now_ms * 1000);
    call->replaced = target.opening > 0;
    if (call->floor == 0) {
        text_print(why, why_size, "no token is left above those of %s",
                   known == larger(source.token, source.floor) ? call->file : to->label);
        return false;
    }
    bool good = to->impl->clear(to) && transfer_rows(from, &source, to, &target, call->floor) &&
                to->impl->revoke(to, &call->revoked) && to->impl->mark(to, &none) &&
                to->impl->commit(to);
    if (!good)
        text_print(why, why_size, "%s", to->why);
    return good;
}

static bool file_is_sound(const struct restore_call *call, char *why, size_t why_size)
{
    sqlite3 *file = copy_source(call->file, "backup", why, why_size);
    bool sound = file != NULL && copy_is_sound(file, call->file, &call->watch, why, why_size);

    db_close(file);
    if (file == NULL)
        text_print(why + strlen(why), why_size - strlen(why), "; the store is unchanged");
    return sound;
}

bool store_postgresql_restore(struct restore_call *call, char *why, size_t why_size)
{
    struct transfer *from, *to;
    bool restored = false;

    if (!file_is_sound(call, why, why_size))
        return false;
    from = transfer_sqlite(call->file, TRANSFER_READ, call->watch, why, why_size);
    if (from == NULL)
        return false;
    to = transfer_postgresql(call->store, TRANSFER_FILL, call->watch, why, why_size);
    if (to != NULL) {
        restored = replace(call, from, to, why, why_size);
        to->impl->close(to);
    }
    from->impl->close(from);
    return restored;
}
