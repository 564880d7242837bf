/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/pieces.h"

#include <stddef.h>
#include <stdint.h>

enum {
    PIECE_SIZE = 1024 * 1024,
    /* The wal-index, as sqlite.org/walformat.html has it. */
    INDEX_PAGE_SIZE = 32 * 1024,
    BACKFILL_AT = 96,
    READ_LOCK_0 = 3, /* which a checkpoint holds while it writes and marks */
};

static struct pieces *of(const sqlite3_file *file)
{
    return (struct pieces *)(uintptr_t)file->pMethods;
}

/* One that failed is not tried again: it would succeed. */
static int sync_now(sqlite3_file *file, int flags)
{
    struct pieces *pieces = of(file);

    if (pieces->code == SQLITE_OK && pieces->unsynced > 0)
        pieces->code = pieces->below->xSync(file, flags);
    pieces->unsynced = 0;
    return pieces->code;
}

static int pieces_write(sqlite3_file *file, const void *bytes, int len, sqlite3_int64 at)
{
    struct pieces *pieces = of(file);
    int code = pieces->below->xWrite(file, bytes, len, at);

    pieces->unsynced += len;
    return code == SQLITE_OK && pieces->unsynced >= PIECE_SIZE ? sync_now(file, SQLITE_SYNC_NORMAL)
                                                               : code;
}

static int pieces_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct pieces *pieces = of(file);
    sqlite3_int64 before;

    if (pieces->below->xFileSize(file, &before) != SQLITE_OK || before != size)
        pieces->unsynced++;
    return pieces->below->xTruncate(file, size);
}

/* What SQLite would sync is synced already, mostly. */
static int pieces_sync(sqlite3_file *file, int flags)
{
    return sync_now(file, flags);
}

static int pieces_control(sqlite3_file *file, int what, void *arg)
{
    if (what == SQLITE_FCNTL_CKPT_START)
        of(file)->code = SQLITE_OK;
    if (what == SQLITE_FCNTL_CKPT_DONE)
        (void)sync_now(file, SQLITE_SYNC_NORMAL);
    return of(file)->below->xFileControl(file, what, arg);
}

static void forget_mark(sqlite3_file *file)
{
    void volatile *index = NULL;

    if (of(file)->below->xShmMap(file, 0, INDEX_PAGE_SIZE, 0, &index) == SQLITE_OK && index != NULL)
        __atomic_store_n((volatile uint32_t *)index + BACKFILL_AT / sizeof(uint32_t), 0,
                         __ATOMIC_SEQ_CST);
}

static int pieces_shm_lock(sqlite3_file *file, int first, int count, int flags)
{
    if (flags == (SQLITE_SHM_UNLOCK | SQLITE_SHM_EXCLUSIVE) && first == READ_LOCK_0 && count == 1 &&
        of(file)->code != SQLITE_OK)
        forget_mark(file);
    return of(file)->below->xShmLock(file, first, count, flags);
}

void pieces_attach(struct pieces *pieces, sqlite3 *db)
{
    sqlite3_file *file = NULL;

    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL)
        return;
    *pieces = (struct pieces){.methods = *file->pMethods, .below = file->pMethods};
    pieces->methods.xWrite = pieces_write;
    pieces->methods.xTruncate = pieces_truncate;
    pieces->methods.xSync = pieces_sync;
    pieces->methods.xFileControl = pieces_control;
    pieces->methods.xShmLock = pieces_shm_lock;
    file->pMethods = &pieces->methods;
}

int pieces_code(const struct pieces *pieces)
{
    return pieces->code;
}
