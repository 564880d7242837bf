/* SPDX-License-Identifier: Apache-2.0 */
/* The lock on a scratch file is flock's: SQLite's own are fcntl's, which any close() of the file in
 * this process would drop, so our descriptor stays open for as long as SQLite has the file. */
#include "store/sqlite/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "fence/base/plain.h"
#include "store/sqlite/place.h"
#include "store/sqlite/schema.h"

enum {
    COPY_STEP_PAGES = 4096,
    WATCH_EVERY = 200000, /* of the virtual machine's instructions: some milliseconds */
};

/* What SQLite may keep beside a database. */
static const char *const companions[] = {"-wal", "-shm", "-journal"};
enum { COMPANIONS = sizeof companions / sizeof *companions };

static char *joined(const char *path, const char *suffix)
{
    size_t size = strlen(path) + strlen(suffix) + 1;
    char *text = mem_zalloc(size);

    snprintf(text, size, "%s%s", path, suffix);
    return text;
}

static bool is_one_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

bool copy_is_same_file(const char *path, const char *database)
{
    struct stat here, there;

    if (stat(path, &here) != 0)
        return false;
    bool same = stat(database, &there) == 0 && is_one_file(&here, &there);
    for (size_t i = 0; i < COMPANIONS && !same; i++) {
        char *companion = joined(database, companions[i]);
        same = stat(companion, &there) == 0 && is_one_file(&here, &there);
        free(companion);
    }
    return same;
}

bool copy_name_is_free(const char *path, bool replace, char *why, size_t why_size)
{
    struct stat status;

    if (lstat(path, &status) != 0 || (replace && S_ISREG(status.st_mode)))
        return true;
    snprintf(why, why_size,
             S_ISREG(status.st_mode) ? "%s is there already; --force replaces it"
                                     : "%s is no ordinary file",
             path);
    return false;
}

bool copy_sync_folder(const char *path, char *why, size_t why_size)
{
    char *name = mem_strdup(path);
    const char *folder = dirname(name);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;

    if (!synced)
        snprintf(why, why_size, "cannot sync the folder %s: %s", folder, plain_errno(errno));
    if (fd >= 0)
        close(fd);
    free(name);
    return synced;
}

/* May others read or write it who are to have no part in it? */
static bool is_exposed(const struct stat *status, mode_t mode)
{
    return status->st_uid != geteuid() || (status->st_mode & 0777 & ~mode) != 0;
}

/* Open and lock the path. Try again where the file was renamed or removed meanwhile; one that is
 * too open to others makes way for a new one. -1: `why`. */
static int lock_path(const char *path, mode_t mode, char *why, size_t why_size)
{
    struct stat ours, named;
    bool is_new = false; /* some file systems have no permissions: then it looks the same again */

    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, mode);
        if (fd < 0) {
            snprintf(why, why_size, "cannot write %s: %s", path, plain_errno(errno));
            return -1;
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            if (errno == EWOULDBLOCK)
                snprintf(why, why_size, "another backup or restore is writing %s", path);
            else
                snprintf(why, why_size, "cannot lock %s: %s", path, plain_errno(errno));
            close(fd);
            return -1;
        }
        bool named_so =
            fstat(fd, &ours) == 0 && stat(path, &named) == 0 && is_one_file(&ours, &named);
        if (named_so && (is_new || !is_exposed(&ours, mode)))
            return fd;
        is_new = named_so;
        if (named_so && unlink(path) != 0) {
            snprintf(why, why_size, "cannot replace %s: %s", path, plain_errno(errno));
            close(fd);
            return -1;
        }
        close(fd);
    }
}

bool scratch_open(struct scratch *scratch, const char *beside, const char *suffix, mode_t mode,
                  char *why, size_t why_size)
{
    char *path = joined(beside, suffix);
    int fd = lock_path(path, mode, why, why_size);

    if (fd < 0) {
        free(path);
        return false;
    }
    *scratch = (struct scratch){.path = path, .fd = fd};
    if (ftruncate(fd, 0) != 0) {
        snprintf(why, why_size, "cannot write %s: %s", path, plain_errno(errno));
        return false;
    }
    scratch->db = db_open(path, DB_OFFLINE, why, why_size);
    if (scratch->db == NULL)
        return false;
    /* Until it is finished, nobody needs it after a crash. Rows that break a CHECK of the users'
     * own are theirs to mend, and belong into a backup. */
    return db_exec(scratch->db, "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF;"
                                "PRAGMA ignore_check_constraints = ON") == SQLITE_OK ||
           db_explain(scratch->db, path, why, why_size);
}

bool scratch_finish(struct scratch *scratch, const char *path, char *why, size_t why_size)
{
    if (db_close(scratch->db) != SQLITE_OK)
        return db_explain(scratch->db, scratch->path, why, why_size);
    scratch->db = NULL;
    if (fsync(scratch->fd) != 0 || rename(scratch->path, path) != 0) {
        snprintf(why, why_size, "cannot finish %s: %s", path, plain_errno(errno));
        return false;
    }
    free(scratch->path);
    scratch->path = NULL;
    return copy_sync_folder(path, why, why_size);
}

void scratch_remove(struct scratch *scratch)
{
    db_close(scratch->db);
    if (scratch->path != NULL) {
        for (size_t i = 0; i < COMPANIONS; i++) {
            char *companion = joined(scratch->path, companions[i]);
            (void)unlink(companion);
            free(companion);
        }
        (void)unlink(scratch->path);
        free(scratch->path);
    }
    if (scratch->fd >= 0)
        close(scratch->fd);
    *scratch = SCRATCH_NONE;
}

static bool watch_step(const struct maintenance_watch *watch, const char *doing, int64_t done,
                       int64_t total)
{
    return watch->step == NULL || watch->step(watch->context, doing, done, total);
}

static bool interrupted(char *why, size_t why_size)
{
    snprintf(why, why_size, "interrupted");
    return false;
}

static int wait_for_lock(void *context, int tried)
{
    struct timespec delay = {.tv_nsec = 1000000};
    struct copy_patience *patience = context;

    (void)nanosleep(&delay, NULL);
    patience->interrupted |= !watch_step(&patience->watch, "waiting", 0, 0);
    return !patience->interrupted && tried < patience->tries;
}

void copy_try_often(sqlite3 *db, struct copy_patience *patience)
{
    sqlite3_busy_handler(db, wait_for_lock, patience);
}

bool copy_explain(const struct copy_patience *patience, sqlite3 *db, const char *path, char *why,
                  size_t why_size)
{
    return patience->interrupted ? interrupted(why, why_size) : db_explain(db, path, why, why_size);
}

bool copy_database(sqlite3 *to, const char *to_path, sqlite3 *from,
                   const struct maintenance_watch *watch, char *why, size_t why_size)
{
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    bool go_on = true;
    int code = SQLITE_OK;

    if (backup == NULL)
        return db_explain(to, to_path, why, why_size);
    while (go_on && (code = sqlite3_backup_step(backup, COPY_STEP_PAGES)) == SQLITE_OK) {
        int total = sqlite3_backup_pagecount(backup);
        go_on = watch_step(watch, "copying", total - sqlite3_backup_remaining(backup), total);
    }
    /* A copy that is not complete is rolled back here. */
    if (sqlite3_backup_finish(backup) != SQLITE_OK)
        return db_explain(to, to_path, why, why_size);
    return code == SQLITE_DONE || interrupted(why, why_size);
}

static int watch_instructions(void *context)
{
    return !watch_step(context, "checking", 0, 0);
}

bool copy_is_sound(sqlite3 *db, const char *path, const struct maintenance_watch *watch, char *why,
                   size_t why_size)
{
    sqlite3_stmt *stmt;
    struct maintenance_watch copy = *watch;
    bool sound = false;

    if (sqlite3_prepare_v2(db, "PRAGMA integrity_check(1)", -1, &stmt, NULL) != SQLITE_OK)
        return db_explain(db, path, why, why_size);
    sqlite3_progress_handler(db, WATCH_EVERY, watch_instructions, &copy);
    int code = sqlite3_step(stmt);
    if (code == SQLITE_ROW) {
        const char *said = (const char *)sqlite3_column_text(stmt, 0);
        const char *line = said != NULL ? strchr(said, '\n') : NULL; /* below a headline */
        sound = said != NULL && strcmp(said, "ok") == 0;
        if (!sound)
            snprintf(why, why_size, "%s is damaged: %.200s", path,
                     line != NULL   ? line + 1
                     : said != NULL ? said
                                    : "");
    } else if (code == SQLITE_INTERRUPT) {
        (void)interrupted(why, why_size);
    } else {
        (void)db_explain(db, path, why, why_size);
    }
    sqlite3_finalize(stmt);
    sqlite3_progress_handler(db, 0, NULL, NULL);
    return sound;
}

/* Is it? True also where it cannot be read: whoever opens it will say why. SQLite is asked: where
 * the store is open in this process, closing a descriptor of our own would drop all its locks, and
 * another program that closed the store would delete its log. */
static bool is_database(const char *path)
{
    sqlite3 *db = NULL;

    if (db_is_special(path))
        return true;
    int code = sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
    if (code == SQLITE_OK)
        code = db_exec(db, "PRAGMA schema_version");
    sqlite3_close(db);
    return code != SQLITE_NOTADB;
}

/* A backup may have several names: it has no log. */
static bool has_place(sqlite3 *db, const char *path, bool is_store, char *why, size_t why_size)
{
    int64_t has_log = 0;

    if (is_store)
        return place_has_log(db, path, why, why_size);
    if (db_int64(db, "SELECT journal_mode = 'wal' FROM pragma_journal_mode", &has_log) != SQLITE_OK)
        return db_explain(db, path, why, why_size);
    return has_log == 0 || place_is_sole(path, why, why_size);
}

sqlite3 *copy_source(const char *path, const char *what, char *why, size_t why_size)
{
    bool is_store = strcmp(what, "store") == 0;
    int64_t application = 0, objects = 0;
    struct stat status;

    if (stat(path, &status) != 0) {
        if (errno == ENOENT)
            snprintf(why, why_size, "there is no %s", path);
        else
            snprintf(why, why_size, "cannot read %s: %s", path, plain_errno(errno));
        return NULL;
    }
    if (is_store && !place_is_sole(path, why, why_size))
        return NULL;
    if (status.st_size > 0 && !is_database(path)) {
        snprintf(why, why_size, "%s is not a %s: it is not a database", path, what);
        return NULL;
    }
    sqlite3 *db = db_open(path, DB_READER, why, why_size);
    if (db == NULL)
        return NULL;
    if (db_exec(db, "BEGIN") != SQLITE_OK ||
        db_int64(db, "SELECT count(*) FROM sqlite_schema", &objects) != SQLITE_OK ||
        db_int64(db, "PRAGMA application_id", &application) != SQLITE_OK) {
        (void)db_explain(db, path, why, why_size);
    } else if (application == SCHEMA_APPLICATION_ID) {
        if (has_place(db, path, is_store, why, why_size))
            return db;
    } else {
        snprintf(why, why_size, "%s is not a %s: it is %s", path, what,
                 application == 0 && objects == 0 ? "empty" : "another program's database");
    }
    db_close(db);
    return NULL;
}
