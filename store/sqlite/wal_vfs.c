/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/wal_vfs.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

enum {
    BUFFER_SIZE = 64 * 1024, /* os_unix cannot take one write of 128 KiB */
    AHEAD_SIZE = 256 * 1024,
    PIECE_SIZE = 1024 * 1024, /* of what is copied into the main file: synced at once */
    /* The log and its index, as sqlite.org/walformat.html has them. */
    FRAME_HEADER_SIZE = 24,
    SEARCHED_FRAMES = 4096, /* by SQLite, in one hash table */
    INDEX_PAGE_SIZE = 32 * 1024,
    BACKFILL_AT = 96,
    READ_LOCK_0 = 3, /* which a checkpoint holds while it writes and marks */
};

/* The log, while it is open. The buffer holds a run of bytes that the file does not have yet. A
 * write that goes on where the run ends is added; before anything else happens to the file, the
 * buffer is written. */
struct log {
    sqlite3_io_methods methods; /* first: the file points here */
    const sqlite3_io_methods *below;
    sqlite3_int64 at; /* where in the file the buffer belongs */
    int len;
    bool commits;                   /* what comes next ends a commit */
    sqlite3_int64 ahead;            /* the file is written up to here, or need not be */
    uint16_t seen[SEARCHED_FRAMES]; /* by page number: how often since `frames` was 0 */
    int frames, repeats;
    int64_t pages; /* of the database, as the last commit's frame has it */
    unsigned char buffer[BUFFER_SIZE];
};

/* The main file, while it is open. */
struct copy {
    sqlite3_io_methods methods; /* first: the file points here */
    const sqlite3_io_methods *below;
    int unsynced; /* bytes */
    int code;     /* of the sync that failed in this pass */
};

struct wal_vfs {
    sqlite3_vfs base; /* first: SQLite points here */
    sqlite3_vfs *below;
    char name[32];
    struct copy copy;
    struct log *log; /* NULL: the connection does not commit */
};

/* The log: joined, and extended ahead. */

static struct log *log_of(const sqlite3_file *file)
{
    return (struct log *)(uintptr_t)file->pMethods;
}

static int flush(sqlite3_file *file)
{
    struct log *log = log_of(file);
    int code = SQLITE_OK;

    if (log->len > 0)
        code = log->below->xWrite(file, log->buffer, log->len, log->at);
    if (code == SQLITE_OK)
        log->len = 0;
    return code;
}

/* Only saves time: that it fails costs nothing but that, and it is tried again a piece later. */
static void write_ahead(sqlite3_file *file, sqlite3_int64 end)
{
    struct log *log = log_of(file);
    sqlite3_int64 size;

    if (end <= log->ahead || log->below->xFileSize(file, &size) != SQLITE_OK)
        return;
    log->ahead = size > end ? size : end + AHEAD_SIZE;
    memset(log->buffer, 0, sizeof log->buffer);
    for (sqlite3_int64 at = end; at < log->ahead && size <= end; at += BUFFER_SIZE)
        if (log->below->xWrite(file, log->buffer, BUFFER_SIZE, at) != SQLITE_OK)
            return;
}

/* The last bytes of a commit: from here on, readers may be told of it. */
static int flush_commit(sqlite3_file *file)
{
    struct log *log = log_of(file);
    sqlite3_int64 end = log->at + log->len;
    int code = flush(file);

    log->commits = false;
    if (code == SQLITE_OK)
        write_ahead(file, end);
    return code;
}

/* The header of the frame that commits says how large the database is then. */
static bool is_commit_header(const unsigned char *bytes, int len)
{
    return len == FRAME_HEADER_SIZE && (bytes[4] | bytes[5] | bytes[6] | bytes[7]) != 0;
}

/* Count the frame of which this is the header. */
static void count(struct log *log, const unsigned char *header)
{
    uint16_t *seen = &log->seen[(header[2] << 8 | header[3]) % SEARCHED_FRAMES];

    if (log->frames == SEARCHED_FRAMES) {
        memset(log->seen, 0, sizeof log->seen);
        log->frames = log->repeats = 0;
    }
    log->frames++;
    if (++*seen > log->repeats)
        log->repeats = *seen;
    if (log->commits)
        log->pages = (int64_t)header[4] << 24 | header[5] << 16 | header[6] << 8 | header[7];
}

static int log_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    struct log *log = log_of(file);
    bool goes_on = log->len > 0 && at == log->at + log->len, ends_commit = log->commits;

    if (!goes_on || log->len + len > BUFFER_SIZE) {
        int code = flush(file);
        if (code != SQLITE_OK)
            return code;
        log->at = at;
    }
    if (len > BUFFER_SIZE) /* no page is that large */
        return log->below->xWrite(file, bytes, len, at);
    memcpy(log->buffer + log->len, bytes, (size_t)len);
    log->len += len;
    log->commits = is_commit_header(bytes, len);
    if (len == FRAME_HEADER_SIZE)
        count(log, bytes);
    else if (at == 0) /* the log is begun anew */
        log->frames = SEARCHED_FRAMES;
    return ends_commit ? flush_commit(file) : SQLITE_OK;
}

static int log_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 at)
{
    int code = flush(file);
    return code == SQLITE_OK ? log_of(file)->below->xRead(file, bytes, len, at) : code;
}

static int log_sync(sqlite3_file *file, int flags)
{
    int code = flush(file);
    return code == SQLITE_OK ? log_of(file)->below->xSync(file, flags) : code;
}

static int log_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int code = flush(file);

    log_of(file)->ahead = 0;
    return code == SQLITE_OK ? log_of(file)->below->xTruncate(file, size) : code;
}

static int log_file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int code = flush(file);
    return code == SQLITE_OK ? log_of(file)->below->xFileSize(file, size) : code;
}

/* What is still here was never committed. */
static int log_close(sqlite3_file *file)
{
    struct log *log = log_of(file);

    file->pMethods = log->below;
    return log->below->xClose(file);
}

/* The main file: synced piece by piece, and before a mark says so. */

static struct copy *copy_of(const sqlite3_file *file)
{
    return (struct copy *)(uintptr_t)file->pMethods;
}

/* One that failed is not tried again: it would succeed. */
static int sync_now(sqlite3_file *file, int flags)
{
    struct copy *copy = copy_of(file);

    if (copy->code == SQLITE_OK && copy->unsynced > 0)
        copy->code = copy->below->xSync(file, flags);
    copy->unsynced = 0;
    return copy->code;
}

static int copy_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    struct copy *copy = copy_of(file);
    int code = copy->below->xWrite(file, bytes, len, at);

    copy->unsynced += len;
    return code == SQLITE_OK && copy->unsynced >= PIECE_SIZE ? sync_now(file, SQLITE_SYNC_NORMAL)
                                                             : code;
}

static int copy_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct copy *copy = copy_of(file);
    sqlite3_int64 before;

    if (copy->below->xFileSize(file, &before) != SQLITE_OK || before != size)
        copy->unsynced++;
    return copy->below->xTruncate(file, size);
}

/* What SQLite would sync is synced already, mostly. */
static int copy_sync(sqlite3_file *file, int flags)
{
    return sync_now(file, flags);
}

static int copy_control(sqlite3_file *file, int what, void *arg)
{
    if (what == SQLITE_FCNTL_CKPT_START)
        copy_of(file)->code = SQLITE_OK;
    if (what == SQLITE_FCNTL_CKPT_DONE)
        (void)sync_now(file, SQLITE_SYNC_NORMAL);
    return copy_of(file)->below->xFileControl(file, what, arg);
}

static void forget_mark(sqlite3_file *file)
{
    void volatile *index = NULL;

    if (copy_of(file)->below->xShmMap(file, 0, INDEX_PAGE_SIZE, 0, &index) == SQLITE_OK &&
        index != NULL)
        __atomic_store_n((volatile uint32_t *)index + BACKFILL_AT / sizeof(uint32_t), 0,
                         __ATOMIC_SEQ_CST);
}

static int copy_shm_lock(sqlite3_file *file, int first, int count, int flags)
{
    if (flags == (SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE) && first == READ_LOCK_0 && count == 1 &&
        copy_of(file)->code != SQLITE_OK)
        forget_mark(file);
    return copy_of(file)->below->xShmLock(file, first, count, flags);
}

/* The VFS. */

static void replace_methods(sqlite3_io_methods *methods, const sqlite3_io_methods **below,
                            sqlite3_file *file)
{
    *methods = *file->pMethods;
    *below = file->pMethods;
    file->pMethods = methods;
}

static void take_log(struct log *log, sqlite3_file *file)
{
    log->at = log->ahead = 0;
    log->len = 0;
    log->commits = false;
    log->frames = SEARCHED_FRAMES; /* counted anew with the next one */
    replace_methods(&log->methods, &log->below, file);
    log->methods.xWrite = log_write;
    log->methods.xRead = log_read;
    log->methods.xSync = log_sync;
    log->methods.xTruncate = log_truncate;
    log->methods.xFileSize = log_file_size;
    log->methods.xClose = log_close;
}

static void take_main(struct copy *copy, sqlite3_file *file)
{
    copy->unsynced = 0;
    copy->code = SQLITE_OK;
    replace_methods(&copy->methods, &copy->below, file);
    copy->methods.xWrite = copy_write;
    copy->methods.xTruncate = copy_truncate;
    copy->methods.xSync = copy_sync;
    copy->methods.xFileControl = copy_control;
    copy->methods.xShmLock = copy_shm_lock;
}

static sqlite3_vfs *below(const sqlite3_vfs *vfs)
{
    return ((const struct wal_vfs *)vfs)->below;
}

static int vfs_open(sqlite3_vfs *base, const char *path, sqlite3_file *file, int flags, int *given)
{
    struct wal_vfs *vfs = (struct wal_vfs *)base;
    int code = vfs->below->xOpen(vfs->below, path, file, flags, given);

    if (code != SQLITE_OK)
        return code;
    if (flags & SQLITE_OPEN_MAIN_DB)
        take_main(&vfs->copy, file);
    if ((flags & SQLITE_OPEN_WAL) && vfs->log != NULL)
        take_log(vfs->log, file);
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync)
{
    return below(vfs)->xDelete(below(vfs), path, sync);
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *result)
{
    return below(vfs)->xAccess(below(vfs), path, flags, result);
}

static int vfs_full_pathname(sqlite3_vfs *vfs, const char *path, int size, char *out)
{
    return below(vfs)->xFullPathname(below(vfs), path, size, out);
}

static int vfs_randomness(sqlite3_vfs *vfs, int size, char *out)
{
    return below(vfs)->xRandomness(below(vfs), size, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    return below(vfs)->xSleep(below(vfs), us);
}

static int vfs_time(sqlite3_vfs *vfs, double *days)
{
    return below(vfs)->xCurrentTime(below(vfs), days);
}

static int vfs_time_ms(sqlite3_vfs *vfs, sqlite3_int64 *ms)
{
    return below(vfs)->xCurrentTimeInt64(below(vfs), ms);
}

static int vfs_last_error(sqlite3_vfs *vfs, int size, char *out)
{
    return below(vfs)->xGetLastError(below(vfs), size, out);
}

struct wal_vfs *wal_vfs_new(bool commits)
{
    sqlite3_vfs *below = sqlite3_vfs_find(NULL);
    struct wal_vfs *vfs;

    if (below == NULL)
        return NULL;
    vfs = mem_zalloc(sizeof *vfs);
    vfs->below = below;
    vfs->log = commits ? mem_zalloc(sizeof *vfs->log) : NULL;
    snprintf(vfs->name, sizeof vfs->name, "stockade-%p", (void *)vfs);
    vfs->base = (sqlite3_vfs){
        .iVersion = below->iVersion < 2 ? below->iVersion : 2,
        .szOsFile = below->szOsFile,
        .mxPathname = below->mxPathname,
        .zName = vfs->name,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_pathname,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_time,
        .xGetLastError = below->xGetLastError != NULL ? vfs_last_error : NULL,
        .xCurrentTimeInt64 = vfs_time_ms,
    };
    if (sqlite3_vfs_register(&vfs->base, 0) == SQLITE_OK)
        return vfs;
    wal_vfs_free(vfs);
    return NULL;
}

const char *wal_vfs_name(const struct wal_vfs *vfs)
{
    return vfs->name;
}

void wal_vfs_free(struct wal_vfs *vfs)
{
    if (vfs == NULL)
        return;
    (void)sqlite3_vfs_unregister(&vfs->base);
    free(vfs->log);
    free(vfs);
}

struct wal_vfs *wal_vfs_of(sqlite3 *db)
{
    sqlite3_vfs *vfs = NULL;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_VFS_POINTER, &vfs) != SQLITE_OK ||
        vfs == NULL || vfs->xOpen != vfs_open)
        return NULL;
    return (struct wal_vfs *)vfs;
}

int wal_vfs_repeats(const struct wal_vfs *vfs)
{
    return vfs->log->repeats;
}

int64_t wal_vfs_pages(const struct wal_vfs *vfs)
{
    return vfs->log->pages;
}

void wal_vfs_forget(struct wal_vfs *vfs)
{
    vfs->log->len = 0;
    vfs->log->commits = false;
}

int wal_vfs_sync_code(const struct wal_vfs *vfs)
{
    return vfs != NULL ? vfs->copy.code : SQLITE_OK;
}
