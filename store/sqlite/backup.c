/* SPDX-License-Identifier: Apache-2.0 */
/* Backup and restore, for any process, beside daemons that are at work or not.
 *
 * A backup is a copy of all pages of one snapshot, which a reader may hold while the writer goes on
 * (the WAL grows meanwhile). It is left in the journal mode that needs no second file, so it can be
 * read from anywhere, and gets its name when all of it is on disk.
 *
 * A restore has two halves:
 *
 *   backup ──copy──▶ PATH.restore: checked, migrated, leases revoked, floor raised
 *                         └──copy──▶ the store, as one transaction
 *
 * The second half is what any program may do to a SQLite file: it takes the write lock, so a
 * daemon's writer waits for it, notices the foreign commit and drops its caches; readers see the
 * old pages until they begin anew; and what fails half-way, or is killed, is rolled back. What a
 * daemon remembers of leases by itself (the table of `local:`, Redis's locks) delays the next grant
 * by what is left of the old TTL, and no more: the store judges every grant and every write. The
 * store's time goes on as the backup's does (store/clock.h), and running daemons follow it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/base/plain.h"
#include "store/sqlite/anew.h"
#include "store/sqlite/copy.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/place.h"
#include "store/sqlite/rows.h"
#include "store/sqlite/schema.h"

/* Backup. */

static bool copy_into(const struct backup_call *call, struct scratch *scratch, sqlite3 *store,
                      char *why, size_t why_size)
{
    if (!copy_database(scratch->db, scratch->path, store, &call->watch, why, why_size))
        return false;
    if (db_exec(scratch->db, "PRAGMA journal_mode = DELETE") != SQLITE_OK ||
        place_disown(scratch->db) != SQLITE_OK)
        return db_explain(scratch->db, scratch->path, why, why_size);
    return copy_is_sound(scratch->db, call->store, &call->watch, why, why_size);
}

static bool make(struct backup_call *call, sqlite3 *store, char *why, size_t why_size)
{
    struct scratch scratch = SCRATCH_NONE;
    struct stat status;

    if (stat(call->store, &status) != 0) {
        snprintf(why, why_size, "cannot read %s: %s", call->store, plain_errno(errno));
        return false;
    }
    bool made = scratch_open(&scratch, call->file, ".tmp", status.st_mode & 0666, why, why_size) &&
                copy_into(call, &scratch, store, why, why_size) &&
                copy_name_is_free(call->file, call->replace, why, why_size) &&
                scratch_finish(&scratch, call->file, why, why_size);
    if (made && stat(call->file, &status) == 0)
        call->size_bytes = status.st_size;
    scratch_remove(&scratch);
    return made;
}

bool store_sqlite_backup(struct backup_call *call, char *why, size_t why_size)
{
    if (copy_is_same_file(call->file, call->store)) {
        snprintf(why, why_size, "%s is the store itself, or a part of it", call->file);
        return false;
    }
    if (!copy_name_is_free(call->file, call->replace, why, why_size))
        return false;
    sqlite3 *store = copy_source(call->store, "store", why, why_size);
    bool made = store != NULL && make(call, store, why, why_size);
    db_close(store);
    return made;
}

/* Restore. */

enum { LOCK_TRIES_MAX = 30000 }; /* of a millisecond */

/* What must not be lost of the store that is there now. */
struct present {
    bool is_there;
    int64_t token;     /* the largest one known, and the floor */
    int64_t opening;   /* the last one */
    int64_t page_size; /* bytes */
};

static const char largest_token[] =
    "SELECT max((SELECT ifnull(max(token), 0) FROM stockade_resource),"
    " (SELECT value FROM stockade_meta WHERE key = 'floor'))";
static const char last_opening[] = "SELECT value FROM stockade_meta WHERE key = 'session'";

/* The first half: a copy of the backup that could be opened as a store. */
static bool unpack(const struct restore_call *call, struct scratch *scratch, char *why,
                   size_t why_size)
{
    static const struct transfer_mark none = {.part = TRANSFER_NONE};
    sqlite3 *file = copy_source(call->file, "backup", why, why_size);
    bool copied = file != NULL &&
                  copy_database(scratch->db, scratch->path, file, &call->watch, why, why_size);
    db_close(file);
    if (file == NULL)
        text_print(why + strlen(why), why_size - strlen(why), "; the store is unchanged");
    if (!copied)
        return false;
    /* Out of the mode that preparing a store brings: a second file would only be in the way. */
    return copy_is_sound(scratch->db, call->file, &call->watch, why, why_size) &&
           schema_prepare(scratch->db, call->file, NULL, why, why_size) &&
           (schema_mark_put(scratch->db, &none) == SQLITE_OK ||
            db_explain(scratch->db, scratch->path, why, why_size)) &&
           (db_exec(scratch->db, "PRAGMA journal_mode = DELETE") == SQLITE_OK ||
            db_explain(scratch->db, scratch->path, why, why_size));
}

static bool set_meta(sqlite3 *db, const char *key, int64_t value)
{
    char sql[96];

    snprintf(sql, sizeof sql, "REPLACE INTO stockade_meta(key, value) VALUES('%s', %lld)", key,
             (long long)value);
    return db_exec(db, sql) == SQLITE_OK;
}

/* Within a transaction: begins anew above call->floor, in the file of `store`. */
static bool begin_anew(struct restore_call *call, struct transaction *txn, sqlite3 *store,
                       int64_t opening)
{
    struct anew anew = {.floor = call->floor};
    bool begun = anew_begin(txn, &anew) == STK_OK && heads_carry_over(txn->db, store) &&
                 set_meta(txn->db, "session", opening) && place_note(txn->db, store) == SQLITE_OK;

    call->revoked = anew.ended;
    return begun;
}

static bool revise(struct restore_call *call, sqlite3 *db, sqlite3 *store,
                   const struct present *present, char *why, size_t why_size)
{
    struct transaction txn;
    struct store_clock clock;
    int64_t token = 0, opening = 0;
    bool rebooted;

    if (db_int64(db, largest_token, &token) != SQLITE_OK ||
        db_int64(db, last_opening, &opening) != SQLITE_OK)
        return db_explain(db, call->file, why, why_size);
    store_clock_init(&clock, NULL);
    call->floor = anew_floor(&clock, token > present->token ? token : present->token);
    if (call->floor == 0) {
        snprintf(why, why_size, "no token is left above those of %s",
                 token > present->token ? call->file : call->store);
        return false;
    }
    bool revised = operations_init(&txn, db, NULL, &clock) &&
                   transaction_begin(&txn, STATEMENT_BEGIN_WRITE, NULL) &&
                   transaction_open_clock(&txn, &rebooted) == STK_OK &&
                   begin_anew(call, &txn, store,
                              (opening > present->opening ? opening : present->opening) + 1) &&
                   transaction_commit(&txn) == STK_OK;
    if (!revised)
        (void)db_explain(db, call->file, why, why_size);
    operations_free(&txn);
    return revised;
}

/* Read what must not be lost of the store that is there now; it may be too damaged for that. False:
 * it is no store. */
static bool look_at_present(struct restore_call *call, sqlite3 *store, struct present *present,
                            char *why, size_t why_size)
{
    int64_t version;

    if (!present->is_there)
        return true;
    if (!schema_recognise(store, call->store, &version, why, why_size))
        return false;
    if (db_int64(store, "PRAGMA page_size", &present->page_size) != SQLITE_OK)
        return db_explain(store, call->store, why, why_size);
    if (version == 0)
        return true; /* made, and nothing in it yet */
    call->present_forgotten = db_int64(store, largest_token, &present->token) != SQLITE_OK ||
                              db_int64(store, last_opening, &present->opening) != SQLITE_OK;
    return true;
}

/* A database with a write-ahead log does not change its page size, so the copy has to. */
static bool fit_pages(const struct present *present, struct scratch *scratch, char *why,
                      size_t why_size)
{
    int64_t page_size = 0;
    char sql[64];

    if (db_int64(scratch->db, "PRAGMA page_size", &page_size) != SQLITE_OK)
        return db_explain(scratch->db, scratch->path, why, why_size);
    if (!present->is_there || page_size == present->page_size)
        return true;
    snprintf(sql, sizeof sql, "PRAGMA page_size = %lld; VACUUM", (long long)present->page_size);
    return db_exec(scratch->db, sql) == SQLITE_OK ||
           db_explain(scratch->db, scratch->path, why, why_size);
}

/* The second half. */
static bool put_in_place(struct restore_call *call, struct scratch *scratch, sqlite3 *store,
                         char *why, size_t why_size)
{
    bool placed = false;

    if (db_exec(scratch->db, "BEGIN") != SQLITE_OK)
        return db_explain(scratch->db, scratch->path, why, why_size);
    placed = copy_database(store, call->store, scratch->db, &call->watch, why, why_size);
    (void)db_exec(scratch->db, "COMMIT");
    if (!placed)
        return false;
    /* Otherwise a daemon would have to copy it after its next commit. It is safe in the log. */
    (void)sqlite3_wal_checkpoint_v2(store, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return copy_sync_folder(call->store, why, why_size);
}

/* Open the store, or make it with permissions as the copy has them: a backup that only its owner
 * may read becomes no store that everybody may. */
static sqlite3 *open_store(const struct restore_call *call, const struct present *present,
                           mode_t mode, struct copy_patience *patience, char *why, size_t why_size)
{
    int made = present->is_there ? -1 : open(call->store, O_RDWR | O_CREAT | O_CLOEXEC, mode);

    if (made >= 0)
        close(made);
    sqlite3 *store = db_open(call->store, DB_OFFLINE, why, why_size);
    if (store != NULL)
        copy_try_often(store, patience);
    return store;
}

static bool restore_over(struct restore_call *call, struct scratch *scratch,
                         struct present *present, mode_t mode, char *why, size_t why_size)
{
    struct copy_patience patience = {.watch = call->watch, .tries = LOCK_TRIES_MAX};
    sqlite3 *store = open_store(call, present, mode, &patience, why, why_size);
    bool restored = store != NULL && look_at_present(call, store, present, why, why_size) &&
                    fit_pages(present, scratch, why, why_size) &&
                    revise(call, scratch->db, store, present, why, why_size) &&
                    put_in_place(call, scratch, store, why, why_size);

    if (!restored && patience.interrupted)
        (void)copy_explain(&patience, store, call->store, why, why_size);
    db_close(store);
    /* Leave no empty file where there was none. */
    struct stat status;
    if (!restored && !present->is_there && stat(call->store, &status) == 0 && status.st_size == 0)
        (void)unlink(call->store);
    call->replaced = present->is_there;
    return restored;
}

bool store_sqlite_restore(struct restore_call *call, char *why, size_t why_size)
{
    struct scratch scratch = SCRATCH_NONE;
    struct present present = {0};
    struct stat status;

    if (copy_is_same_file(call->file, call->store)) {
        snprintf(why, why_size, "%s is the store itself, or a part of it", call->file);
        return false;
    }
    if (stat(call->file, &status) != 0) {
        snprintf(why, why_size, "cannot read %s: %s", call->file, plain_errno(errno));
        return false;
    }
    mode_t mode = (status.st_mode & 0666) | 0600;
    present.is_there = stat(call->store, &status) == 0 && status.st_size > 0;
    bool restored = scratch_open(&scratch, call->store, ".restore", mode, why, why_size) &&
                    unpack(call, &scratch, why, why_size) &&
                    restore_over(call, &scratch, &present, mode, why, why_size);
    scratch_remove(&scratch);
    return restored;
}
