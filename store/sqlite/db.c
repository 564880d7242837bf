/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/db.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fence/base/bytes.h"
#include "fence/base/plain.h"
#include "store/sqlite/place.h"
#include "store/sqlite/wal_vfs.h"

/* Nothing here outlives the connection or touches the file. The writer sets the size of its page
 * cache itself. A reader's is small, 4 MB: after each commit of another connection SQLite empties
 * it by a walk over all of its buckets, and there are as many as it ever had pages. The operating
 * system has the file in memory anyway. */
static const char writer_setup[] = "PRAGMA synchronous = FULL;"
                                   "PRAGMA temp_store = MEMORY;"
                                   "PRAGMA cell_size_check = ON;"
                                   "PRAGMA trusted_schema = OFF;"
                                   "PRAGMA secure_delete = OFF;";
static const char reader_setup[] = "PRAGMA cache_size = -4000;"
                                   "PRAGMA temp_store = MEMORY;"
                                   "PRAGMA cell_size_check = ON;"
                                   "PRAGMA trusted_schema = OFF;";

/* SQLite tells what its last try came to, which may be another file's: find out by ourselves. */
static void explain_cannot_open(sqlite3 *db, const char *path, char *why, size_t why_size)
{
    const char *slash = strrchr(path, '/');
    int folder_len = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    char folder[PATH_MAX];
    struct stat status;
    int system = sqlite3_system_errno(db);
    bool there = stat(path, &status) == 0;

    text_print(folder, sizeof folder, "%.*s", folder_len, slash == NULL ? "." : path);
    if (there && S_ISDIR(status.st_mode))
        snprintf(why, why_size, "cannot open %s: it is a folder", path);
    else if (stat(folder, &status) != 0)
        snprintf(why, why_size, "cannot create %s: %s %s", path,
                 errno == ENOENT ? "there is no folder" : plain_errno(errno), folder);
    else if (!S_ISDIR(status.st_mode))
        snprintf(why, why_size, "cannot create %s: %s is not a folder", path, folder);
    else if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        snprintf(why, why_size, "user %u cannot create %s%s in the folder %s: %s",
                 (unsigned)geteuid(), path, there ? "-wal and -shm" : "", folder,
                 plain_errno(errno));
    else if (there && faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) != 0)
        snprintf(why, why_size, "user %u cannot read and write %s: %s", (unsigned)geteuid(), path,
                 plain_errno(errno));
    else
        snprintf(why, why_size, "cannot open %s, or make its -wal and -shm beside it: %s", path,
                 system != 0 ? plain_errno(system) : sqlite3_errmsg(db));
}

void db_explain_full(const char *path, char *why, size_t why_size)
{
    snprintf(why, why_size, "the disk is full; make room there, and try again: %s", path);
}

bool db_explain(sqlite3 *db, const char *path, char *why, size_t why_size)
{
    int code = sqlite3_errcode(db);
    int system = sqlite3_system_errno(db);

    switch (code) {
    case SQLITE_CANTOPEN: explain_cannot_open(db, path, why, why_size); break;
    case SQLITE_NOTADB:
        snprintf(why, why_size, "%s is not a database; it was left alone", path);
        break;
    case SQLITE_CORRUPT:
        snprintf(why, why_size, "%s is damaged: %s", path, sqlite3_errmsg(db));
        break;
    case SQLITE_READONLY:
        snprintf(why, why_size, "%s is read-only, the file or its folder", path);
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: snprintf(why, why_size, "%s is locked by another program", path); break;
    case SQLITE_FULL: db_explain_full(path, why, why_size); break;
    default:
        snprintf(why, why_size, "%s: %s%s%s", path, sqlite3_errmsg(db), system != 0 ? ": " : "",
                 system != 0 ? plain_errno(system) : "");
    }
    return false;
}

int db_exec(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

int db_int64(sqlite3 *db, const char *sql, int64_t *value)
{
    sqlite3_stmt *stmt;

    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return sqlite3_errcode(db);
    if (sqlite3_step(stmt) == SQLITE_ROW)
        *value = sqlite3_column_int64(stmt, 0);
    return sqlite3_finalize(stmt);
}

bool db_is_special(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode);
}

sqlite3 *db_open(const char *path, enum db_mode mode, char *why, size_t why_size)
{
    int flags =
        mode == DB_READER ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    bool at_work = mode == DB_WRITER || mode == DB_CHECKPOINTER;
    struct wal_vfs *vfs = NULL;
    sqlite3 *db = NULL;

    if (path[0] == '\0') {
        snprintf(why, why_size, "the path of the store is empty");
        return NULL;
    }
    if (db_is_special(path)) {
        snprintf(why, why_size, "cannot open %s: it is not an ordinary file", path);
        return NULL;
    }
    if (mode != DB_READER && !place_is_sole(path, why, why_size))
        return NULL;
    if (at_work && (vfs = wal_vfs_new(mode == DB_WRITER)) == NULL) {
        snprintf(why, why_size, "cannot open %s: %s", path, sqlite3_errstr(SQLITE_NOMEM));
        return NULL;
    }
    bool is_new = mode != DB_READER && access(path, F_OK) != 0;
    int opened =
        sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_NOMUTEX, at_work ? wal_vfs_name(vfs) : NULL);
    if (db == NULL) {
        snprintf(why, why_size, "cannot open %s: %s", path, sqlite3_errstr(opened));
    } else {
        sqlite3_extended_result_codes(db, 0);
        /* Whoever makes it, and whatever the umask is. It is empty yet, and SQLite gives the log
         * and its index the same permissions. */
        if (is_new)
            (void)chmod(path, S_IRUSR | S_IWUSR);
        if (opened == SQLITE_OK && sqlite3_busy_timeout(db, DB_BUSY_TIMEOUT_MS) == SQLITE_OK &&
            db_exec(db, mode == DB_READER ? reader_setup : writer_setup) == SQLITE_OK)
            return db;
        (void)db_explain(db, path, why, why_size);
    }
    sqlite3_close(db);
    wal_vfs_free(vfs);
    return NULL;
}

int db_close(sqlite3 *db)
{
    struct wal_vfs *vfs = db != NULL ? wal_vfs_of(db) : NULL;
    int code = sqlite3_close(db);

    if (code == SQLITE_OK)
        wal_vfs_free(vfs);
    return code;
}
