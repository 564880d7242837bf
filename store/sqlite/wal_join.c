/* SPDX-License-Identifier: Apache-2.0 */
/* The buffer holds a run of bytes that the file does not have yet. A write that goes on where it
 * ends is added; before anything else happens to the file, the buffer is written. What fails to be
 * written stays, and fails whatever needs it: SQLite rolls back then, and it is forgotten. */
#include "store/sqlite/wal_join.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

enum {
    BUFFER_SIZE = 64 * 1024, /* os_unix cannot take one write of 128 KiB */
    AHEAD_SIZE = 256 * 1024,
    FRAME_HEADER_SIZE = 24,
    SEARCHED_FRAMES = 4096, /* by SQLite, in one hash table */
};

struct wal_join {
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

static struct wal_join *of(const sqlite3_file *file)
{
    return (struct wal_join *)(uintptr_t)file->pMethods;
}

static int flush(sqlite3_file *file)
{
    struct wal_join *join = of(file);
    int code = SQLITE_OK;

    if (join->len > 0)
        code = join->below->xWrite(file, join->buffer, join->len, join->at);
    if (code == SQLITE_OK)
        join->len = 0;
    return code;
}

/* Only saves time: that it fails costs nothing but that, and it is tried again a piece later. */
static void write_ahead(sqlite3_file *file, sqlite3_int64 end)
{
    struct wal_join *join = of(file);
    sqlite3_int64 size;

    if (end <= join->ahead || join->below->xFileSize(file, &size) != SQLITE_OK)
        return;
    join->ahead = size > end ? size : end + AHEAD_SIZE;
    memset(join->buffer, 0, sizeof join->buffer);
    for (sqlite3_int64 at = end; at < join->ahead && size <= end; at += BUFFER_SIZE)
        if (join->below->xWrite(file, join->buffer, BUFFER_SIZE, at) != SQLITE_OK)
            return;
}

/* The last bytes of a commit: from here on, readers may be told of it. */
static int flush_commit(sqlite3_file *file)
{
    struct wal_join *join = of(file);
    sqlite3_int64 end = join->at + join->len;
    int code = flush(file);

    join->commits = false;
    if (code == SQLITE_OK)
        write_ahead(file, end);
    return code;
}

/* The header of the frame that commits says how large the database is then. */
static bool is_commit_header(const unsigned char *bytes, int len)
{
    return len == FRAME_HEADER_SIZE && (bytes[4] | bytes[5] | bytes[6] | bytes[7]) != 0;
}

/* Counts the frame of which this is the header. */
static void count(struct wal_join *join, const unsigned char *header)
{
    uint16_t *seen = &join->seen[(header[2] << 8 | header[3]) % SEARCHED_FRAMES];

    if (join->frames == SEARCHED_FRAMES) {
        memset(join->seen, 0, sizeof join->seen);
        join->frames = join->repeats = 0;
    }
    join->frames++;
    if (++*seen > join->repeats)
        join->repeats = *seen;
    if (join->commits)
        join->pages = (int64_t)header[4] << 24 | header[5] << 16 | header[6] << 8 | header[7];
}

static int join_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    struct wal_join *join = of(file);
    bool goes_on = join->len > 0 && at == join->at + join->len, ends_commit = join->commits;

    if (!goes_on || join->len + len > BUFFER_SIZE) {
        int code = flush(file);
        if (code != SQLITE_OK)
            return code;
        join->at = at;
    }
    if (len > BUFFER_SIZE) /* no page is that large */
        return join->below->xWrite(file, bytes, len, at);
    memcpy(join->buffer + join->len, bytes, (size_t)len);
    join->len += len;
    join->commits = is_commit_header(bytes, len);
    if (len == FRAME_HEADER_SIZE)
        count(join, bytes);
    else if (at == 0) /* the log is begun anew */
        join->frames = SEARCHED_FRAMES;
    return ends_commit ? flush_commit(file) : SQLITE_OK;
}

static int join_read(sqlite3_file *file, void *bytes, int len, sqlite3_int64 at)
{
    int code = flush(file);
    return code == SQLITE_OK ? of(file)->below->xRead(file, bytes, len, at) : code;
}

static int join_sync(sqlite3_file *file, int flags)
{
    int code = flush(file);
    return code == SQLITE_OK ? of(file)->below->xSync(file, flags) : code;
}

static int join_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    int code = flush(file);

    of(file)->ahead = 0;
    return code == SQLITE_OK ? of(file)->below->xTruncate(file, size) : code;
}

static int join_file_size(sqlite3_file *file, sqlite3_int64 *size)
{
    int code = flush(file);
    return code == SQLITE_OK ? of(file)->below->xFileSize(file, size) : code;
}

/* What is still here was never committed. */
static int join_close(sqlite3_file *file)
{
    struct wal_join *join = of(file);

    file->pMethods = join->below;
    return join->below->xClose(file);
}

struct wal_join *wal_join_attach(sqlite3 *db)
{
    sqlite3_file *file = NULL;
    struct wal_join *join;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL)
        return NULL;
    join = mem_zalloc(sizeof *join);
    join->below = file->pMethods;
    join->methods = *join->below;
    join->methods.xWrite = join_write;
    join->methods.xRead = join_read;
    join->methods.xSync = join_sync;
    join->methods.xTruncate = join_truncate;
    join->methods.xFileSize = join_file_size;
    join->methods.xClose = join_close;
    file->pMethods = &join->methods;
    return join;
}

int wal_join_repeats(const struct wal_join *join)
{
    return join->repeats;
}

int64_t wal_join_pages(const struct wal_join *join)
{
    return join->pages;
}

void wal_join_forget(struct wal_join *join)
{
    join->len = 0;
    join->commits = false;
}

void wal_join_free(struct wal_join *join)
{
    free(join);
}
