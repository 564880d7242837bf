/* SPDX-License-Identifier: Apache-2.0 */
/* A RAM disk as SQLite sees it. Locks are found by looking through the open files: there are never
 * more than a few. */
#include "tests/disk/ramdisk_vfs.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/list.h"
#include "fence/base/mem.h"

enum { SECTOR_SIZE = 4096, SHM_REGIONS_MAX = 64, INODES_MAX = 256 };

/* The WAL's index of one file. */
struct shm {
    void *regions[SHM_REGIONS_MAX];
    int users;
};

struct ramdisk_vfs {
    sqlite3_vfs base;
    struct ramdisk *disk;
    struct list open; /* files */
    struct shm *shm[INODES_MAX];
    uint64_t random;
};

struct ramdisk_file {
    sqlite3_file base;
    struct ramdisk_vfs *vfs;
    struct list link;
    int inode;
    bool syncs_folder; /* with its first sync */
    int level;         /* SQLITE_LOCK_ */
    bool uses_shm;
    unsigned shared, exclusive; /* locks on the shared memory, as bits */
};

static struct ramdisk_file *of(sqlite3_file *file)
{
    return (struct ramdisk_file *)file;
}

static struct ramdisk *disk_of(sqlite3_file *file)
{
    return of(file)->vfs->disk;
}

/* Files. */

static void shm_leave(struct ramdisk_file *file)
{
    struct shm *shm = file->vfs->shm[file->inode];

    if (!file->uses_shm)
        return;
    file->uses_shm = false;
    file->shared = file->exclusive = 0;
    if (--shm->users > 0)
        return;
    for (int i = 0; i < SHM_REGIONS_MAX; i++)
        free(shm->regions[i]);
    free(shm);
    file->vfs->shm[file->inode] = NULL;
}

static int file_close(sqlite3_file *base)
{
    shm_leave(of(base));
    list_remove(&of(base)->link);
    return SQLITE_OK;
}

static int file_read(sqlite3_file *base, void *data, int size, sqlite3_int64 at)
{
    const struct ramdisk_bytes *bytes = &disk_of(base)->inodes[of(base)->inode];
    size_t wanted = (size_t)size, from = (size_t)at;
    size_t there = from < bytes->size ? bytes->size - from : 0;

    if (there > wanted)
        there = wanted;
    if (there > 0)
        memcpy(data, bytes->data + from, there);
    memset((char *)data + there, 0, wanted - there);
    return there == wanted ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int file_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 at)
{
    ramdisk_write(disk_of(base), of(base)->inode, data, (size_t)size, (size_t)at);
    return SQLITE_OK;
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    ramdisk_truncate(disk_of(base), of(base)->inode, (size_t)size);
    return SQLITE_OK;
}

static int file_sync(sqlite3_file *base, int flags)
{
    (void)flags;
    ramdisk_sync(disk_of(base), of(base)->inode, false);
    if (of(base)->syncs_folder)
        ramdisk_sync_folder(disk_of(base));
    of(base)->syncs_folder = false;
    return SQLITE_OK;
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size)
{
    *size = (sqlite3_int64)disk_of(base)->inodes[of(base)->inode].size;
    return SQLITE_OK;
}

/* The highest lock that somebody else has on the file. */
static int level_elsewhere(const struct ramdisk_file *file)
{
    const struct list *open = &file->vfs->open;
    int level = SQLITE_LOCK_NONE;

    for (const struct list *at = open->next; at != open; at = at->next) {
        const struct ramdisk_file *other = list_entry(at, struct ramdisk_file, link);
        if (other != file && other->inode == file->inode && other->level > level)
            level = other->level;
    }
    return level;
}

static int file_lock(sqlite3_file *base, int level)
{
    struct ramdisk_file *file = of(base);
    int elsewhere = level_elsewhere(file);

    if (level <= file->level)
        return SQLITE_OK;
    if (level == SQLITE_LOCK_SHARED ? elsewhere >= SQLITE_LOCK_PENDING
                                    : elsewhere >= SQLITE_LOCK_RESERVED)
        return SQLITE_BUSY;
    if (level == SQLITE_LOCK_EXCLUSIVE && elsewhere >= SQLITE_LOCK_SHARED) {
        file->level = SQLITE_LOCK_PENDING;
        return SQLITE_BUSY;
    }
    file->level = level;
    return SQLITE_OK;
}

static int file_unlock(sqlite3_file *base, int level)
{
    if (of(base)->level > level)
        of(base)->level = level;
    return SQLITE_OK;
}

static int file_check_lock(sqlite3_file *base, int *locked)
{
    *locked = of(base)->level >= SQLITE_LOCK_RESERVED ||
              level_elsewhere(of(base)) >= SQLITE_LOCK_RESERVED;
    return SQLITE_OK;
}

static int file_control(sqlite3_file *base, int what, void *arg)
{
    (void)arg;
    if (what != RAMDISK_SYNC_HAS_FAILED)
        return SQLITE_NOTFOUND;
    ramdisk_sync(disk_of(base), of(base)->inode, true);
    return SQLITE_OK;
}

static int file_sector(sqlite3_file *base)
{
    (void)base;
    return SECTOR_SIZE;
}

static int file_traits(sqlite3_file *base)
{
    (void)base;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

/* The WAL's index. */

static int file_shm_map(sqlite3_file *base, int region, int size, int extend, void volatile **out)
{
    struct ramdisk_file *file = of(base);
    struct shm **shm = &file->vfs->shm[file->inode];

    check(region < SHM_REGIONS_MAX && file->inode < INODES_MAX);
    if (*shm == NULL)
        *shm = mem_zalloc(sizeof **shm);
    if (!file->uses_shm)
        (*shm)->users++;
    file->uses_shm = true;
    if ((*shm)->regions[region] == NULL && extend)
        (*shm)->regions[region] = mem_zalloc((size_t)size);
    *out = (*shm)->regions[region];
    return SQLITE_OK;
}

static int file_shm_lock(sqlite3_file *base, int offset, int n, int flags)
{
    struct ramdisk_file *file = of(base);
    const struct list *open = &file->vfs->open;
    unsigned mask = ((1u << n) - 1) << offset, taken = 0;

    if ((flags & SQLITE_SHM_UNLOCK) != 0) {
        file->shared &= ~mask;
        file->exclusive &= ~mask;
        return SQLITE_OK;
    }
    for (const struct list *at = open->next; at != open; at = at->next) {
        const struct ramdisk_file *other = list_entry(at, struct ramdisk_file, link);
        if (other == file || other->inode != file->inode)
            continue;
        taken |= other->exclusive;
        if ((flags & SQLITE_SHM_EXCLUSIVE) != 0)
            taken |= other->shared;
    }
    if ((taken & mask) != 0)
        return SQLITE_BUSY;
    if ((flags & SQLITE_SHM_EXCLUSIVE) != 0)
        file->exclusive |= mask;
    else
        file->shared |= mask;
    return SQLITE_OK;
}

static void file_shm_barrier(sqlite3_file *base)
{
    (void)base;
}

static int file_shm_unmap(sqlite3_file *base, int delete)
{
    (void)delete; /* it is not on the disk */
    shm_leave(of(base));
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
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector,
    .xDeviceCharacteristics = file_traits,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
};

/* The file system. */

static struct ramdisk_vfs *vfs_of(sqlite3_vfs *base)
{
    return base->pAppData;
}

static int vfs_open(sqlite3_vfs *base, const char *path, sqlite3_file *out, int flags, int *given)
{
    struct ramdisk_vfs *vfs = vfs_of(base);

    out->pMethods = NULL;
    check(path != NULL); /* what is temporary is in memory */
    int name = ramdisk_name(vfs->disk, path);
    if (vfs->disk->names[name].inode < 0 && (flags & SQLITE_OPEN_CREATE) == 0)
        return SQLITE_CANTOPEN;
    if (vfs->disk->names[name].inode < 0)
        ramdisk_create(vfs->disk, name);
    *of(out) = (struct ramdisk_file){
        .base.pMethods = &methods,
        .vfs = vfs,
        .inode = vfs->disk->names[name].inode,
        .syncs_folder =
            (flags & SQLITE_OPEN_CREATE) != 0 &&
            (flags & (SQLITE_OPEN_WAL | SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL)) != 0,
    };
    list_append(&vfs->open, &of(out)->link);
    if (given != NULL)
        *given = flags;
    return SQLITE_OK;
}

static int vfs_delete(sqlite3_vfs *base, const char *path, int sync_folder)
{
    struct ramdisk_vfs *vfs = vfs_of(base);
    int name = ramdisk_name(vfs->disk, path);

    if (vfs->disk->names[name].inode < 0)
        return SQLITE_IOERR_DELETE_NOENT;
    ramdisk_delete(vfs->disk, name);
    if (sync_folder)
        ramdisk_sync_folder(vfs->disk);
    return SQLITE_OK;
}

static int vfs_access(sqlite3_vfs *base, const char *path, int flags, int *there)
{
    struct ramdisk_vfs *vfs = vfs_of(base);
    int inode = vfs->disk->names[ramdisk_name(vfs->disk, path)].inode;

    /* As SQLite's own: an empty file counts for nothing. */
    *there = inode >= 0 && (flags != SQLITE_ACCESS_EXISTS || vfs->disk->inodes[inode].size > 0);
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
    for (int i = 0; i < size; i++)
        out[i] = (char)dice(&vfs_of(base)->random);
    return size;
}

static int vfs_sleep(sqlite3_vfs *base, int microseconds)
{
    (void)base;
    return microseconds;
}

static int vfs_time(sqlite3_vfs *base, sqlite3_int64 *now)
{
    /* Julian days in milliseconds, at 1970. */
    *now = INT64_C(210866760000000) + vfs_of(base)->disk->now_ms;
    return SQLITE_OK;
}

static int vfs_last_error(sqlite3_vfs *base, int size, char *out)
{
    (void)base, (void)size, (void)out;
    return 0;
}

struct ramdisk_vfs *ramdisk_vfs_add(void)
{
    struct ramdisk_vfs *vfs = mem_zalloc(sizeof *vfs);

    vfs->base = (sqlite3_vfs){
        .iVersion = 2,
        .szOsFile = sizeof(struct ramdisk_file),
        .mxPathname = 512,
        .zName = "ramdisk",
        .pAppData = vfs,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_path,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_time,
    };
    list_init(&vfs->open);
    check(sqlite3_vfs_register(&vfs->base, 1) == SQLITE_OK);
    return vfs;
}

void ramdisk_vfs_remove(struct ramdisk_vfs *vfs)
{
    check(list_empty(&vfs->open));
    sqlite3_vfs_unregister(&vfs->base);
    free(vfs);
}

void ramdisk_vfs_mount(struct ramdisk_vfs *vfs, struct ramdisk *disk)
{
    struct list *link;

    while ((link = list_pop(&vfs->open)) != NULL)
        shm_leave(list_entry(link, struct ramdisk_file, link));
    vfs->disk = disk;
    vfs->random = 1;
}

struct ramdisk *ramdisk_vfs_disk(const struct ramdisk_vfs *vfs)
{
    return vfs->disk;
}
