/* SPDX-License-Identifier: Apache-2.0 */
/* Each file is kept twice: as programs see it, and as it was synced, with the changes between the
 * two. Deletion is durable at once: SQLite asks for that. */
#include "tests/sim/vfs.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/sim/vfs_impl.h"

#define SECTOR 512

static struct vfs_open_file *of(sqlite3_file *base)
{
    return (struct vfs_open_file *)base;
}

static void put(struct buf *buf, const void *data, size_t len, size_t at)
{
    while (buf->len < at + len) {
        size_t more = at + len - buf->len;
        memset(buf_reserve(buf, more), 0, more);
        buf->len += more;
    }
    memcpy(buf->data + at, data, len);
}

static void changes_clear(struct vfs_disk_file *file)
{
    for (size_t i = 0; i < file->changes_count; i++)
        free(file->changes[i].data);
    file->changes_count = 0;
}

static void change_add(struct vfs_disk_file *file, size_t at, size_t len, const void *data)
{
    if (file->changes_count == file->changes_room) {
        file->changes_room = file->changes_room * 2 + 16;
        file->changes = mem_realloc(file->changes, file->changes_room * sizeof *file->changes);
    }
    struct vfs_change *change = &file->changes[file->changes_count++];
    *change = (struct vfs_change){.at = at, .len = len};
    if (data != NULL) {
        change->data = mem_alloc(len);
        memcpy(change->data, data, len);
    }
}

static void change_apply(struct buf *buf, const struct vfs_change *change, size_t len)
{
    if (change->data != NULL)
        put(buf, change->data, len, change->at);
    else if (buf->len > change->at)
        buf->len = change->at;
}

/* File methods. */

static int file_read(sqlite3_file *base, void *data, int size, sqlite3_int64 at)
{
    const struct buf *now = &of(base)->file->now;
    size_t from = (size_t)at, wanted = (size_t)size;
    size_t got = from >= now->len ? 0 : now->len - from < wanted ? now->len - from : wanted;

    if (of(base)->vfs->power_gone)
        return SQLITE_IOERR_READ;
    if (got > 0)
        memcpy(data, now->data + from, got);
    memset((char *)data + got, 0, wanted - got);
    return got < wanted ? SQLITE_IOERR_SHORT_READ : SQLITE_OK;
}

static int file_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 at)
{
    struct vfs *vfs = of(base)->vfs;
    struct vfs_disk_file *file = of(base)->file;

    if (vfs->fault == VFS_POWER && vfs->writes_left-- <= 0)
        vfs->power_gone = true;
    if (vfs->fault == VFS_FULL || vfs->full) {
        vfs->fault = VFS_NO_FAULT;
        return SQLITE_FULL;
    }
    change_add(file, (size_t)at, (size_t)size, data); /* the last one may have got through, too */
    if (vfs->power_gone)
        return SQLITE_IOERR_WRITE;
    put(&file->now, data, (size_t)size, (size_t)at);
    return SQLITE_OK;
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    struct vfs_disk_file *file = of(base)->file;

    if (of(base)->vfs->power_gone)
        return SQLITE_IOERR_TRUNCATE;
    change_add(file, (size_t)size, 0, NULL);
    if (file->now.len > (size_t)size)
        file->now.len = (size_t)size;
    return SQLITE_OK;
}

static int file_sync(sqlite3_file *base, int flags)
{
    struct vfs *vfs = of(base)->vfs;
    struct vfs_disk_file *file = of(base)->file;

    (void)flags;
    if (vfs->power_gone)
        return SQLITE_IOERR_FSYNC;
    if (vfs->fault == VFS_SYNC_FAILS) {
        vfs->fault = VFS_NO_FAULT;
        vfs->sync_failed = true;
        return SQLITE_IOERR_FSYNC;
    }
    for (size_t i = 0; i < file->changes_count; i++)
        change_apply(&file->synced, &file->changes[i], file->changes[i].len);
    changes_clear(file);
    return SQLITE_OK;
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size)
{
    *size = (sqlite3_int64)of(base)->file->now.len;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *base, int what, void *arg)
{
    (void)base, (void)what, (void)arg;
    return SQLITE_NOTFOUND;
}

static int file_sector(sqlite3_file *base)
{
    (void)base;
    return SECTOR;
}

static int file_traits(sqlite3_file *base)
{
    (void)base;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static void disk_file_free(struct vfs_disk_file *file)
{
    changes_clear(file);
    free(file->changes);
    buf_free(&file->now);
    buf_free(&file->synced);
    free(file->path);
    free(file);
}

static int file_close(sqlite3_file *base)
{
    struct vfs_open_file *open = of(base);

    vfs_shm_unmap(base, 0);
    vfs_unlock(base, SQLITE_LOCK_NONE);
    open->file->opens--;
    open->vfs->open--;
    if (open->temporary)
        disk_file_free(open->file);
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = vfs_lock,
    .xUnlock = vfs_unlock,
    .xCheckReservedLock = vfs_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
    .xShmMap = vfs_shm_map,
    .xShmLock = vfs_shm_lock,
    .xShmBarrier = vfs_shm_barrier,
    .xShmUnmap = vfs_shm_unmap,
};

/* The file system. */

static struct vfs_disk_file **find(struct vfs *vfs, const char *path)
{
    for (int i = 0; i < VFS_FILES_MAX; i++)
        if (vfs->files[i] != NULL && strcmp(vfs->files[i]->path, path) == 0)
            return &vfs->files[i];
    return NULL;
}

static struct vfs_disk_file *create(struct vfs *vfs, const char *path)
{
    struct vfs_disk_file *file = mem_zalloc(sizeof *file);
    int i = 0;

    file->path = mem_strdup(path != NULL ? path : "");
    if (path == NULL)
        return file;
    while (i < VFS_FILES_MAX && vfs->files[i] != NULL)
        i++;
    check(i < VFS_FILES_MAX);
    vfs->files[i] = file;
    return file;
}

static int vfs_open(sqlite3_vfs *base, const char *path, sqlite3_file *out, int flags, int *given)
{
    struct vfs *vfs = (struct vfs *)(void *)base;
    struct vfs_disk_file **known = path == NULL ? NULL : find(vfs, path);
    struct vfs_open_file *open = of(out);

    *open = (struct vfs_open_file){.vfs = vfs};
    if (vfs->power_gone || (known == NULL && !(flags & SQLITE_OPEN_CREATE)))
        return SQLITE_CANTOPEN;
    open->file = known != NULL ? *known : create(vfs, path);
    open->temporary = path == NULL;
    open->base.pMethods = &methods;
    open->file->opens++;
    vfs->open++;
    if (given != NULL)
        *given = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *base, const char *path, int sync)
{
    struct vfs *vfs = (struct vfs *)(void *)base;
    struct vfs_disk_file **file = find(vfs, path);

    (void)sync;
    if (vfs->power_gone || (file != NULL && (*file)->opens > 0))
        return SQLITE_IOERR_DELETE;
    if (file == NULL)
        return SQLITE_IOERR_DELETE_NOENT;
    disk_file_free(*file);
    *file = NULL;
    return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *base, const char *path, int flags, int *out)
{
    struct vfs_disk_file **file = find((struct vfs *)(void *)base, path);

    (void)flags;
    *out = file != NULL && (flags != SQLITE_ACCESS_EXISTS || (*file)->now.len > 0);
    return SQLITE_OK;
}

static int vfs_full_path(sqlite3_vfs *base, const char *path, int size, char *out)
{
    (void)base;
    sqlite3_snprintf(size, out, "%s", path);
    return SQLITE_OK;
}

static int vfs_randomness(sqlite3_vfs *base, int size, char *out)
{
    rng_fill(&((struct vfs *)(void *)base)->rng, out, (size_t)size);
    return size;
}

static int vfs_sleep(sqlite3_vfs *base, int microseconds)
{
    (void)base;
    return microseconds;
}

static int vfs_time(sqlite3_vfs *base, sqlite3_int64 *ms)
{
    (void)base;
    *ms = 210866760000000 + 1700000000000; /* of the Julian calendar */
    return SQLITE_OK;
}

static int vfs_last_error(sqlite3_vfs *base, int size, char *out)
{
    (void)base, (void)size, (void)out;
    return 0;
}

struct vfs *vfs_new(struct rng rng)
{
    struct vfs *vfs = mem_zalloc(sizeof *vfs);

    vfs->rng = rng;
    vfs->base = (sqlite3_vfs){.iVersion = 2,
                              .szOsFile = sizeof(struct vfs_open_file),
                              .mxPathname = 64,
                              .zName = "sim",
                              .xOpen = vfs_open,
                              .xDelete = vfs_delete,
                              .xAccess = vfs_access,
                              .xFullPathname = vfs_full_path,
                              .xRandomness = vfs_randomness,
                              .xSleep = vfs_sleep,
                              .xCurrentTimeInt64 = vfs_time,
                              .xGetLastError = vfs_last_error};
    check(sqlite3_vfs_register(&vfs->base, 1) == SQLITE_OK);
    return vfs;
}

void vfs_free(struct vfs *vfs)
{
    sqlite3_vfs_unregister(&vfs->base);
    for (int i = 0; i < VFS_FILES_MAX; i++)
        if (vfs->files[i] != NULL)
            disk_file_free(vfs->files[i]);
    free(vfs);
}

void vfs_set_fault(struct vfs *vfs, enum vfs_fault fault)
{
    vfs->fault = fault;
    vfs->writes_left = (int)rng_below(&vfs->rng, 8);
}

void vfs_power_cycle(struct vfs *vfs)
{
    /* All, nothing, or some. */
    int64_t kept_per_mille = rng_between(&vfs->rng, -1000, 2000);
    bool may_tear = rng_below(&vfs->rng, 2) == 0;

    check(vfs->open == 0);
    for (int i = 0; i < VFS_FILES_MAX; i++) {
        struct vfs_disk_file *file = vfs->files[i];
        for (size_t j = 0; file != NULL && j < file->changes_count; j++) {
            const struct vfs_change *change = &file->changes[j];
            size_t sectors = (change->len + SECTOR - 1) / SECTOR;
            bool torn = may_tear && rng_per_mille(&vfs->rng, 100);
            size_t len =
                torn ? (size_t)rng_below(&vfs->rng, (int64_t)sectors + 1) * SECTOR : change->len;
            if (rng_per_mille(&vfs->rng, kept_per_mille))
                change_apply(&file->synced, change, len < change->len ? len : change->len);
        }
        if (file == NULL)
            continue;
        changes_clear(file);
        buf_clear(&file->now);
        if (file->synced.len > 0)
            buf_append(&file->now, file->synced.data, file->synced.len);
    }
    vfs->power_gone = false;
    vfs->fault = VFS_NO_FAULT;
}
