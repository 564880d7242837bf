/* SPDX-License-Identifier: Apache-2.0 */
/* The note is a row of stockade_meta: which file the main one is, on which file system, the inode
 * number of its log, and the log's name. */
#include "store/sqlite/place.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "fence/base/mem.h"
#include "store/sqlite/names.h"
#include "store/sqlite/wal_vfs.h"

#define SUFFIX "-wal"

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* One name. */

static bool is_mounted(const char *name)
{
    struct statx status;

    return statx(AT_FDCWD, name, 0, 0, &status) == 0 &&
           (status.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

bool place_is_sole(const char *path, char *why, size_t why_size)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    struct stat status, named;
    bool sole = false;

    if (vfs == NULL || stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return true;
    char *name = mem_zalloc((size_t)vfs->mxPathname + 1);
    int resolved = vfs->xFullPathname(vfs, path, vfs->mxPathname, name);
    if ((resolved & 0xff) == SQLITE_OK && (stat(name, &named) != 0 || !is_same(&status, &named)))
        snprintf(why, why_size,
                 "%s leads to a file that SQLite does not find by it: name the file "
                 "itself",
                 path);
    else if (names_are_several(&status))
        names_explain(path, &status, why, why_size);
    else if (is_mounted(name))
        snprintf(why, why_size,
                 "%s is mounted by itself, and its log would lie elsewhere than under its other "
                 "name: mount its folder",
                 path);
    else
        sole = true;
    free(name);
    return sole;
}

/* The note. */

struct note {
    bool kept;              /* false: an earlier version has served the file last */
    struct names_file main; /* as noted */
    uint64_t system;        /* the file system's id; 0: it has none */
    uint64_t log;           /* inode number; 0: there was none yet */
    char *name;             /* of the log; owned; NULL: the note is of no file */
};

static void note_free(struct note *note)
{
    free(note->name);
    note->name = NULL;
}

static bool read_note(sqlite3 *db, struct note *note)
{
    sqlite3_stmt *stmt;

    *note = (struct note){.name = NULL};
    if (sqlite3_prepare_v2(db, "SELECT value FROM main.stockade_meta WHERE key = 'log'", -1, &stmt,
                           NULL) != SQLITE_OK)
        return false;
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        int len = text != NULL ? names_get(text, &note->main) : 0, at = 0;
        note->kept = text != NULL && strcmp(text, NAMES_COPY) == 0;
        if (len > 0 &&
            sscanf(text + len, "%" SCNu64 " %" SCNu64 " %n", &note->system, &note->log, &at) == 2 &&
            text[len + at] == '/' && strlen(text + len + at) > strlen(SUFFIX))
            note->name = mem_strdup(text + len + at);
        note->kept |= note->name != NULL;
    }
    return sqlite3_finalize(stmt) == SQLITE_OK;
}

/* Make the note of the files that `db` has open, as they are. False: they are not the operating
 * system's. */
static bool take_note(sqlite3 *db, struct note *note)
{
    const char *path = sqlite3_db_filename(db, "main");
    struct statfs system;
    struct stat log;

    *note = (struct note){.kept = true};
    if (path == NULL || *path != '/' || !names_identify(path, &note->main))
        return false;
    note->name = mem_zalloc(strlen(path) + sizeof SUFFIX);
    strcat(strcpy(note->name, path), SUFFIX);
    if (stat(note->name, &log) == 0)
        note->log = log.st_ino;
    if (statfs(path, &system) == 0)
        memcpy(&note->system, &system.f_fsid, sizeof note->system);
    return true;
}

static bool is_equal(const struct note *a, const struct note *b)
{
    return a->name != NULL && b->name != NULL && a->main.inode == b->main.inode &&
           a->main.born_ns == b->main.born_ns && a->system == b->system && a->log == b->log &&
           strcmp(a->name, b->name) == 0;
}

static int put_text(sqlite3 *db, const char *text)
{
    char *sql =
        sqlite3_mprintf("REPLACE INTO main.stockade_meta(key, value) VALUES('log', %Q)", text);
    int code = sql != NULL ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

    sqlite3_free(sql);
    return code;
}

static int put_note(sqlite3 *db, const struct note *note)
{
    char file[NAMES_TEXT_SIZE];

    names_put(&note->main, file);
    char *text = sqlite3_mprintf("%s %llu %llu %s", file, (unsigned long long)note->system,
                                 (unsigned long long)note->log, note->name);
    int code = text != NULL ? put_text(db, text) : SQLITE_NOMEM;
    sqlite3_free(text);
    return code;
}

/* One log. */

/* Is the log there that the note names, with something in it? */
static bool is_there(const struct note *note, struct stat *log)
{
    return stat(note->name, log) == 0 && log->st_size > 0 && log->st_ino == note->log;
}

/* Was this file, which is at `path`, copied from one that is still where the note says? A clone of
 * the whole file system has files of the same numbers. */
static bool is_copy(const struct note *note, const struct names_file *main, const char *path)
{
    struct stat there, here;
    struct names_file named;
    char *name = mem_strdup(note->name);

    name[strlen(name) - strlen(SUFFIX)] = '\0';
    bool copy = stat(name, &there) == 0;
    if (copy && names_are_one(&note->main, main))
        copy = names_identify(name, &named) && names_are_one(&note->main, &named) &&
               stat(path, &here) == 0 && there.st_dev != here.st_dev;
    free(name);
    return copy;
}

bool place_has_log(sqlite3 *db, const char *path, char *why, size_t why_size)
{
    struct note note, now;
    struct names_file main;
    struct stat log, own;
    bool has = true;

    if (!read_note(db, &note)) {
        snprintf(why, why_size, "%s: %s", path, sqlite3_errmsg(db));
        return false;
    }
    const char *name = sqlite3_db_filename(db, "main");
    if (note.name == NULL || name == NULL || !names_identify(name, &main) ||
        !is_there(&note, &log)) {
        note_free(&note);
        return true;
    }
    bool noted = take_note(db, &now);
    bool beside = noted && stat(now.name, &own) == 0 && is_same(&log, &own);
    if (beside && !names_are_one(&note.main, &main) && strcmp(note.name, now.name) == 0) {
        has = false;
        snprintf(why, why_size,
                 "%s has the log of another file beside it, %s: put that file back, or move the "
                 "log away (stockade restore puts a backup in place)",
                 path, note.name);
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    } else if (!beside && !is_copy(&note, &main, name)) {
        has = false;
        snprintf(why, why_size,
                 "%s was renamed, and its log is %s: stop what uses it, and rename it back, or "
                 "the log, too",
                 path, note.name);
    }
    note_free(&now);
    note_free(&note);
    return has;
}

/* One file. */

int place_look(sqlite3 *db, struct place *place)
{
    struct note note, now;
    int code = SQLITE_OK;

    *place = (struct place){.other = false};
    if (!take_note(db, &now))
        return SQLITE_OK;
    if (!read_note(db, &note))
        code = sqlite3_errcode(db);
    place->unnoted = !note.kept;
    place->other = note.kept && (note.name == NULL || !names_are_one(&note.main, &now.main));
    place->elsewhere = note.system != now.system && note.system != 0 && now.system != 0;
    place->differs = !is_equal(&note, &now);
    note_free(&now);
    note_free(&note);
    return code;
}

int place_note(sqlite3 *db, sqlite3 *files)
{
    struct note now;

    if (!take_note(files, &now))
        return SQLITE_OK;
    int code = put_note(db, &now);
    note_free(&now);
    return code;
}

/* A reader may keep the log from being copied, or another program copies it: the next opening
 * finds the note in the log. */
int place_copy_back(sqlite3 *db)
{
    int code = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);

    if (code == SQLITE_OK)
        return wal_vfs_sync_code(wal_vfs_of(db));
    return code == SQLITE_BUSY ? SQLITE_OK : code;
}

int place_disown(sqlite3 *db)
{
    return put_text(db, NAMES_COPY);
}
