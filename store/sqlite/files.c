/* SPDX-License-Identifier: Apache-2.0 */
/* What is saved, and when that is safe:
 *
 * - Main file missing: -wal and -shm are shared with everybody as ever, so an ordinary checkpoint
 *   makes the file whole, wherever it is now. The -wal stays where it is: no store is begun anew
 *   beside a -wal without its main file.
 * - No -wal: only those who have it open can still read it. It is copied into the main file, unless
 *   somebody has begun a new one: there must be none, or an empty one whose readers share our -shm.
 *   SQLite's PENDING lock on the main file keeps newcomers out meanwhile. (One who took the lock
 *   just before, and has done nothing else yet, may once see a file that is half copied.)
 * - No -shm, but the -wal: nothing needs to be saved, and nothing may be copied: somebody may have
 *   begun the -wal anew.
 * - Main file cut short: what was copied into it is lost. The -wal is left for people. */
#include "store/sqlite/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fence/base/mem.h"
#include "store/sqlite/names.h"

static const char *const suffixes[FILES] = {"", "-wal", "-shm"};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

void files_open(struct files *files, sqlite3 *db, const char *path, const struct log *log)
{
    const char *name = sqlite3_db_filename(db, "main");
    struct stat status;
    int found = 0;

    *files = (struct files){.path = path, .log = log};
    pthread_mutex_init(&files->lock, NULL);
    for (int i = 0; i < FILES && name != NULL; i++) {
        size_t size = strlen(name) + strlen(suffixes[i]) + 1;
        files->paths[i] = mem_alloc(size);
        snprintf(files->paths[i], size, "%s%s", name, suffixes[i]);
        if (stat(files->paths[i], &status) != 0)
            continue;
        files->ids[i].device = status.st_dev;
        files->ids[i].number = status.st_ino;
        found++;
    }
    files->watched = found == FILES;
}

void files_close(struct files *files)
{
    for (int i = 0; i < FILES; i++)
        free(files->paths[i]);
    if (files->path != NULL)
        pthread_mutex_destroy(&files->lock);
    files->path = NULL;
}

static bool in_place(const struct files *files, int i, struct stat *status)
{
    return stat(files->paths[i], status) == 0 && status->st_dev == files->ids[i].device &&
           status->st_ino == files->ids[i].number;
}

/* The lock is held. */
static void explain(struct files *files)
{
    const char *name = base_name(files->paths[FILE_MAIN]);
    const char *saved = files->saved   ? "what was acknowledged is saved"
                        : files->tried ? "what was acknowledged cannot be saved yet, do not kill -9"
                                       : "what was acknowledged is not saved yet";

    if (files->place == PLACE_LINKED)
        names_explain(files->path, &files->linked, files->why, sizeof files->why);
    else if (files->place == PLACE_MISSING)
        snprintf(files->why, sizeof files->why,
                 "%.48s was moved or deleted; put it back, or stop what uses the store and restore "
                 "a backup (stockade restore)",
                 name);
    else if (files->broken_file == FILE_WAL)
        snprintf(
            files->why, sizeof files->why,
            "%.48s-wal was deleted or replaced while it was open; %s; stop what uses the store, "
            "then start again",
            name, saved);
    else if (files->broken_file == FILE_SHM)
        snprintf(files->why, sizeof files->why,
                 "%.48s-shm was deleted or replaced while it was open; nothing is lost; stop what "
                 "uses the store, then start again",
                 name);
    else
        snprintf(files->why, sizeof files->why,
                 "%.48s was cut short by another program; stop what uses the store and restore a "
                 "backup (stockade restore)",
                 name);
}

/* The lock is held. */
static void set_broken(struct files *files, int file)
{
    files->broken_file = file;
    files->saved = files->tried = false;
    atomic_store(&files->place, PLACE_FINE);
    atomic_store(&files->broken, true);
    explain(files);
    log_error(files->log, "store %s stops: %s", files->path, files->why);
}

static void set_place(struct files *files, enum files_place place)
{
    enum files_place before = files->place;

    if (before == place)
        return;
    atomic_store(&files->place, place);
    files->saved = files->tried = false;
    explain(files);
    if (place != PLACE_FINE)
        log_error(files->log, "store %s stops: %s", files->path, files->why);
    else if (before == PLACE_LINKED)
        log_info(files->log, "store %s: the file has only one name again", files->path);
    else
        log_info(files->log, "store %s: the file is back", files->path);
}

static enum files_place place_of(struct files *files, const struct stat *main)
{
    if (!names_are_several(main))
        return PLACE_FINE;
    files->linked = *main;
    return PLACE_LINKED;
}

static bool has_moved(sqlite3 *db)
{
    int moved = 0;
    return sqlite3_file_control(db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
           moved != 0;
}

/* Has somebody cut the main file, which is there? By itself it only grows, but for commits that
 * make the database smaller: the next checkpoint cuts the file. */
static bool is_cut(struct files *files, int64_t size, bool sized)
{
    int64_t size_min = 0;

    if (sized)
        size_min = files->size < files->size_min ? files->size : files->size_min;
    if (size == 0 || size < size_min)
        return true;
    if (sized) {
        files->size = size;
        files->size_min = files->size_last;
    }
    return false;
}

static bool check_files(struct files *files, sqlite3 *db, bool sized)
{
    struct stat main, wal, shm;

    if (atomic_load(&files->broken))
        return false;
    pthread_mutex_lock(&files->lock);
    if (!files->watched) {
        set_place(files, has_moved(db) ? PLACE_MISSING : PLACE_FINE);
    } else {
        bool main_is = in_place(files, FILE_MAIN, &main);
        bool wal_is = in_place(files, FILE_WAL, &wal), shm_is = in_place(files, FILE_SHM, &shm);

        if (atomic_load(&files->broken))
            ;
        else if (main_is && is_cut(files, main.st_size, sized))
            set_broken(files, FILE_MAIN);
        else if (!wal_is && main_is)
            set_broken(files, FILE_WAL);
        else if (!shm_is && main_is)
            set_broken(files, FILE_SHM);
        else
            set_place(files, main_is ? place_of(files, &main) : PLACE_MISSING);
    }
    pthread_mutex_unlock(&files->lock);
    return !files_stopped(files);
}

bool files_check(struct files *files, sqlite3 *db)
{
    return check_files(files, db, false);
}

bool files_check_writer(struct files *files, sqlite3 *db)
{
    return check_files(files, db, true);
}

void files_resize(struct files *files, int64_t bytes)
{
    files->size_last = bytes;
    if (bytes < files->size_min)
        files->size_min = bytes;
}

void files_resized(struct files *files, int64_t bytes)
{
    files->size = 0; /* whatever it is at the next check */
    files->size_min = files->size_last = bytes;
}

bool files_stopped(const struct files *files)
{
    return atomic_load(&files->place) != PLACE_FINE || atomic_load(&files->broken);
}

bool files_in_place(const struct files *files)
{
    return atomic_load(&files->place) != PLACE_MISSING && !atomic_load(&files->broken);
}

bool files_broken(const struct files *files)
{
    return atomic_load(&files->broken) || atomic_load(&files->gone);
}

void files_gone(struct files *files, const char *why)
{
    pthread_mutex_lock(&files->lock);
    if (!atomic_load(&files->gone) && !files_stopped(files)) {
        snprintf(files->why, sizeof files->why, "%s", why);
        log_error(files->log, "store %s stops: %s", files->path, why);
        atomic_store(&files->gone, true);
    }
    pthread_mutex_unlock(&files->lock);
}

bool files_why(struct files *files, char why[STORE_WHY_MAX])
{
    pthread_mutex_lock(&files->lock);
    bool stopped = files_stopped(files) || atomic_load(&files->gone);
    if (stopped)
        memcpy(why, files->why, STORE_WHY_MAX);
    pthread_mutex_unlock(&files->lock);
    return stopped;
}

/* Copy all of the log into the main file. */
static int copy_all(sqlite3 *db)
{
    int pages = 0, copied = 0;
    int code = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_PASSIVE, &pages, &copied);

    return code == SQLITE_OK && copied < pages ? SQLITE_BUSY : code;
}

/* Has nobody begun with other files? We hold the lock that newcomers need. */
static bool is_alone(const struct files *files)
{
    struct stat status;
    bool no_wal = stat(files->paths[FILE_WAL], &status) != 0, empty = no_wal || status.st_size == 0;

    if (in_place(files, FILE_SHM, &status))
        return empty;
    return no_wal && stat(files->paths[FILE_SHM], &status) != 0;
}

static int save_log(const struct files *files, sqlite3 *db)
{
    sqlite3_file *file = NULL;
    int level = SQLITE_LOCK_NONE, code = SQLITE_BUSY;
    struct stat status;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL)
        return SQLITE_ERROR;
    /* Our other connections keep us from getting EXCLUSIVE: we get PENDING, which is enough. */
    (void)file->pMethods->xLock(file, SQLITE_LOCK_EXCLUSIVE);
    (void)file->pMethods->xFileControl(file, SQLITE_FCNTL_LOCKSTATE, &level);
    if (level >= SQLITE_LOCK_PENDING) {
        if (in_place(files, FILE_MAIN, &status) && is_alone(files))
            code = copy_all(db);
        (void)file->pMethods->xUnlock(file, SQLITE_LOCK_SHARED);
    }
    return code;
}

int files_save(struct files *files, sqlite3 *db)
{
    int code = SQLITE_OK;

    pthread_mutex_lock(&files->lock);
    bool broken = atomic_load(&files->broken), missing = files->place == PLACE_MISSING;
    bool first = !files->tried;
    if (!files->saved && (missing || (broken && files->broken_file == FILE_WAL))) {
        code = missing ? copy_all(db) : save_log(files, db);
        files->saved = code == SQLITE_OK;
        files->tried = true;
        explain(files);
        if (files->saved && broken)
            log_warn(files->log, "store %s: %s", files->path, files->why);
        else if (!files->saved && first)
            log_error(files->log, "store %s: %s: %s", files->path, files->why,
                      code == SQLITE_BUSY ? "another program uses it" : sqlite3_errmsg(db));
    }
    pthread_mutex_unlock(&files->lock);
    return code;
}

bool files_orphaned(const char *path, char *why, size_t why_size)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    int has_main = 0, has_wal = 0;
    bool orphaned = false;

    if (vfs == NULL || *path == '\0')
        return false;
    char *name = mem_zalloc((size_t)vfs->mxPathname + sizeof "-wal");
    /* Both have something in them, or are not there. */
    int named = vfs->xFullPathname(vfs, path, vfs->mxPathname, name);
    if ((named & 0xff) == SQLITE_OK &&
        vfs->xAccess(vfs, name, SQLITE_ACCESS_EXISTS, &has_main) == SQLITE_OK && !has_main) {
        strcat(name, "-wal");
        orphaned = vfs->xAccess(vfs, name, SQLITE_ACCESS_EXISTS, &has_wal) == SQLITE_OK && has_wal;
    }
    if (orphaned)
        snprintf(why, why_size,
                 "%s is missing or empty, but its write-ahead log %s is there: put the file back "
                 "beside it, or restore a backup (stockade restore); only for a new store, whose "
                 "tokens begin at 1 again, remove the -wal",
                 path, base_name(name));
    free(name);
    return orphaned;
}
