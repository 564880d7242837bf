/* SPDX-License-Identifier: Apache-2.0 */
/* Every call goes to the VFS below; writes and syncs ask first whether they are to fail. */
#include "tests/unit/store/fault_vfs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/mem.h"

struct fault {
    const char *suffix;
    int times, code;
};

struct fault_vfs {
    sqlite3_vfs base;
    sqlite3_vfs *below;
    pthread_mutex_t lock;
    struct fault faults[FAULT_PLACES];
    struct {
        bool armed, once;
        int calls, code;
    } after; /* any call */
    int hits;
    bool hurries;
    const char *held; /* syncs of files with this suffix */
    int waiting;
    pthread_cond_t let;
    struct {
        const char *suffix;
        void (*call)(void *context);
        void *context;
    } on_sync;
};

struct fault_file {
    sqlite3_file base;
    struct fault_vfs *vfs;
    char *path;          /* owned */
    sqlite3_file *below; /* right behind this struct */
};

static sqlite3_file *below(sqlite3_file *file)
{
    return ((struct fault_file *)file)->below;
}

static int meet_any(struct fault_vfs *vfs)
{
    int code = SQLITE_OK;

    pthread_mutex_lock(&vfs->lock);
    if (vfs->after.armed && vfs->after.calls-- <= 0) {
        code = vfs->after.code;
        vfs->hits++;
        vfs->after.armed = !vfs->after.once;
    }
    pthread_mutex_unlock(&vfs->lock);
    return code;
}

/* SQLITE_OK, or what a call has to fail with that has no place of its own. */
static int meet_other(sqlite3_file *base)
{
    return meet_any(((struct fault_file *)base)->vfs);
}

static bool ends_in(const struct fault_file *file, const char *suffix)
{
    size_t len = file->path == NULL ? 0 : strlen(file->path), suffix_len = strlen(suffix);
    return len >= suffix_len && strcmp(file->path + len - suffix_len, suffix) == 0;
}

static void wait_while_held(const struct fault_file *file)
{
    struct fault_vfs *vfs = file->vfs;

    pthread_mutex_lock(&vfs->lock);
    vfs->waiting++;
    while (vfs->held != NULL && ends_in(file, vfs->held))
        pthread_cond_wait(&vfs->let, &vfs->lock);
    vfs->waiting--;
    pthread_mutex_unlock(&vfs->lock);
}

static void tell_of_sync(const struct fault_file *file)
{
    if (file->vfs->on_sync.suffix != NULL && ends_in(file, file->vfs->on_sync.suffix))
        file->vfs->on_sync.call(file->vfs->on_sync.context);
}

/* SQLITE_OK, or what the call has to fail with. */
static int meet(sqlite3_file *base, enum fault_place place)
{
    struct fault_file *file = (struct fault_file *)base;
    struct fault_vfs *vfs = file->vfs;
    struct fault *fault = &vfs->faults[place];
    int code = SQLITE_OK;

    pthread_mutex_lock(&vfs->lock);
    if (fault->times > 0 && ends_in(file, fault->suffix)) {
        code = fault->code;
        fault->times--;
        vfs->hits++;
    }
    pthread_mutex_unlock(&vfs->lock);
    return code != SQLITE_OK ? code : meet_any(vfs);
}

static int file_close(sqlite3_file *base)
{
    free(((struct fault_file *)base)->path);
    return below(base)->pMethods->xClose(below(base));
}

static int file_read(sqlite3_file *base, void *data, int size, sqlite3_int64 at)
{
    int code = meet_other(base);
    return code != SQLITE_OK ? code : below(base)->pMethods->xRead(below(base), data, size, at);
}

static int file_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 at)
{
    int code = meet(base, FAULT_WRITE);
    return code != SQLITE_OK ? code : below(base)->pMethods->xWrite(below(base), data, size, at);
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    int code = meet_other(base);
    return code != SQLITE_OK ? code : below(base)->pMethods->xTruncate(below(base), size);
}

static int file_sync(sqlite3_file *base, int flags)
{
    int code = meet(base, FAULT_SYNC);

    wait_while_held((struct fault_file *)base);
    tell_of_sync((const struct fault_file *)base);
    if (code != SQLITE_OK || ((struct fault_file *)base)->vfs->hurries)
        return code;
    return below(base)->pMethods->xSync(below(base), flags);
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size)
{
    return below(base)->pMethods->xFileSize(below(base), size);
}

static int file_lock(sqlite3_file *base, int level)
{
    int code = meet_other(base);
    return code != SQLITE_OK ? code : below(base)->pMethods->xLock(below(base), level);
}

static int file_unlock(sqlite3_file *base, int level)
{
    return below(base)->pMethods->xUnlock(below(base), level);
}

static int file_check_lock(sqlite3_file *base, int *locked)
{
    return below(base)->pMethods->xCheckReservedLock(below(base), locked);
}

static int file_control(sqlite3_file *base, int what, void *arg)
{
    return below(base)->pMethods->xFileControl(below(base), what, arg);
}

static int file_sector(sqlite3_file *base)
{
    return below(base)->pMethods->xSectorSize(below(base));
}

static int file_traits(sqlite3_file *base)
{
    return below(base)->pMethods->xDeviceCharacteristics(below(base));
}

static int file_shm_map(sqlite3_file *base, int page, int size, int extend, void volatile **out)
{
    return below(base)->pMethods->xShmMap(below(base), page, size, extend, out);
}

static int file_shm_lock(sqlite3_file *base, int offset, int n, int flags)
{
    return below(base)->pMethods->xShmLock(below(base), offset, n, flags);
}

static void file_shm_barrier(sqlite3_file *base)
{
    below(base)->pMethods->xShmBarrier(below(base));
}

static int file_shm_unmap(sqlite3_file *base, int delete)
{
    return below(base)->pMethods->xShmUnmap(below(base), delete);
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

static int vfs_open(sqlite3_vfs *base, const char *path, sqlite3_file *out, int flags, int *given)
{
    struct fault_vfs *vfs = (struct fault_vfs *)base;
    struct fault_file *file = (struct fault_file *)out;

    *file = (struct fault_file){.vfs = vfs, .below = (sqlite3_file *)(file + 1)};
    int code = meet_any(vfs);
    if (code != SQLITE_OK)
        return code;
    code = vfs->below->xOpen(vfs->below, path, file->below, flags, given);
    if (file->below->pMethods == NULL)
        return code;
    file->base.pMethods = &methods;
    file->path = path != NULL ? mem_strdup(path) : NULL;
    return code;
}

static int vfs_sleep_not(sqlite3_vfs *base, int microseconds)
{
    (void)base;
    return microseconds;
}

void fault_vfs_hurry(struct fault_vfs *vfs)
{
    vfs->base.xSleep = vfs_sleep_not;
    vfs->hurries = true;
}

struct fault_vfs *fault_vfs_add(void)
{
    struct fault_vfs *vfs = mem_zalloc(sizeof *vfs);

    vfs->below = sqlite3_vfs_find(NULL);
    vfs->base = *vfs->below; /* what only names files is the same, and needs no file of ours */
    vfs->base.szOsFile += (int)sizeof(struct fault_file);
    vfs->base.pNext = NULL;
    vfs->base.zName = "fault";
    vfs->base.xOpen = vfs_open;
    pthread_mutex_init(&vfs->lock, NULL);
    pthread_cond_init(&vfs->let, NULL);
    sqlite3_vfs_register(&vfs->base, 1);
    return vfs;
}

void fault_vfs_remove(struct fault_vfs *vfs)
{
    if (vfs == NULL)
        return;
    sqlite3_vfs_unregister(&vfs->base);
    pthread_mutex_destroy(&vfs->lock);
    pthread_cond_destroy(&vfs->let);
    free(vfs);
}

void fault_vfs_set(struct fault_vfs *vfs, enum fault_place place, const char *suffix, int times,
                   int code)
{
    pthread_mutex_lock(&vfs->lock);
    vfs->faults[place] = (struct fault){.suffix = suffix, .times = times, .code = code};
    pthread_mutex_unlock(&vfs->lock);
}

void fault_vfs_fail_after(struct fault_vfs *vfs, int calls, int code, bool once)
{
    pthread_mutex_lock(&vfs->lock);
    vfs->after.armed = true;
    vfs->after.once = once;
    vfs->after.calls = calls;
    vfs->after.code = code;
    pthread_mutex_unlock(&vfs->lock);
}

void fault_vfs_hold(struct fault_vfs *vfs, const char *suffix)
{
    pthread_mutex_lock(&vfs->lock);
    vfs->held = suffix;
    pthread_cond_broadcast(&vfs->let);
    pthread_mutex_unlock(&vfs->lock);
}

bool fault_vfs_holds(struct fault_vfs *vfs)
{
    pthread_mutex_lock(&vfs->lock);
    bool holds = vfs->held != NULL && vfs->waiting > 0;
    pthread_mutex_unlock(&vfs->lock);
    return holds;
}

void fault_vfs_on_sync(struct fault_vfs *vfs, const char *suffix, void (*call)(void *context),
                       void *context)
{
    vfs->on_sync.suffix = suffix;
    vfs->on_sync.call = call;
    vfs->on_sync.context = context;
}

void fault_vfs_clear(struct fault_vfs *vfs)
{
    pthread_mutex_lock(&vfs->lock);
    memset(vfs->faults, 0, sizeof vfs->faults);
    memset(&vfs->after, 0, sizeof vfs->after);
    pthread_mutex_unlock(&vfs->lock);
}

int fault_vfs_hits(struct fault_vfs *vfs)
{
    pthread_mutex_lock(&vfs->lock);
    int hits = vfs->hits;
    pthread_mutex_unlock(&vfs->lock);
    return hits;
}
