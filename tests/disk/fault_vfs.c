/* SPDX-License-Identifier: Apache-2.0 */
/* A file is the one of the VFS behind, with other methods for the calls that can fail: each asks
 * first whether it has to, and then goes on to the method that stood there. */
#include "tests/disk/fault_vfs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/disk/ramdisk_vfs.h"

struct fault_vfs {
    sqlite3_vfs base;
    sqlite3_vfs *below;
    pthread_mutex_t lock;
    struct io_fault faults[FAULT_CALLS_COUNT + 1]; /* the last one is for several kinds */
    struct fault_counts counts;
    bool broken;
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

enum { BELOW_SIZE_MAX = 512 };

/* What stands so far behind the start of a file. */
struct fault_file {
    struct fault_vfs *vfs;
    const char *path; /* SQLite's; NULL: a temporary file */
    sqlite3_io_methods methods;
    const sqlite3_io_methods *below;
};

static struct fault_file *of(sqlite3_file *file)
{
    return (struct fault_file *)((char *)file + BELOW_SIZE_MAX);
}

static const sqlite3_io_methods *below(sqlite3_file *file)
{
    return of(file)->below;
}

static bool ends_in(const char *path, const char *suffix)
{
    size_t len = path == NULL ? 0 : strlen(path), suffix_len = strlen(suffix);
    return path != NULL && len >= suffix_len && strcmp(path + len - suffix_len, suffix) == 0;
}

/* With the lock held: does the fault strike now? */
static bool strikes(struct io_fault *fault, enum fault_call call, const char *path)
{
    if ((fault->calls & 1u << call) == 0 || fault->times == 0 ||
        (fault->suffix != NULL && !ends_in(path, fault->suffix)))
        return false;
    if (fault->passes > 0) {
        fault->passes--;
        return false;
    }
    if (fault->times != FAULT_FOR_EVER)
        fault->times--;
    return true;
}

/* SQLITE_OK, or what the call has to fail with. */
static int meet(struct fault_vfs *vfs, enum fault_call call, const char *path)
{
#define FAULT_OF(name, words, code) {words, code},
    static const struct {
        const char *words;
        int code;
    } calls[] = {FAULT_CALLS(FAULT_OF)};
#undef FAULT_OF
    int code = SQLITE_OK;

    pthread_mutex_lock(&vfs->lock);
    vfs->counts.calls += (vfs->faults[FAULT_CALLS_COUNT].calls >> call) & 1;
    if (vfs->broken)
        code = calls[call].code;
    for (int i = 0; i <= FAULT_CALLS_COUNT && code == SQLITE_OK; i++)
        if (strikes(&vfs->faults[i], call, path)) {
            code = vfs->faults[i].code != 0 ? vfs->faults[i].code : calls[call].code;
            vfs->broken = vfs->faults[i].breaks_all;
        }
    if (code != SQLITE_OK && vfs->counts.hits++ == 0)
        vfs->counts.hit = calls[call].words;
    vfs->counts.syncs += code != SQLITE_OK && call == FAULT_SYNC;
    pthread_mutex_unlock(&vfs->lock);
    return code;
}

static int meet_file(sqlite3_file *file, enum fault_call call)
{
    return meet(of(file)->vfs, call, of(file)->path);
}

static void wait_while_held(const struct fault_file *file)
{
    struct fault_vfs *vfs = file->vfs;

    pthread_mutex_lock(&vfs->lock);
    vfs->waiting++;
    while (vfs->held != NULL && ends_in(file->path, vfs->held))
        pthread_cond_wait(&vfs->let, &vfs->lock);
    vfs->waiting--;
    pthread_mutex_unlock(&vfs->lock);
}

/* Calls that go on, unless they have to fail. */

static int file_read(sqlite3_file *base, void *data, int size, sqlite3_int64 at)
{
    int code = meet_file(base, FAULT_READ);
    return code != SQLITE_OK ? code : below(base)->xRead(base, data, size, at);
}

static int file_truncate(sqlite3_file *base, sqlite3_int64 size)
{
    int code = meet_file(base, FAULT_TRUNCATE);
    return code != SQLITE_OK ? code : below(base)->xTruncate(base, size);
}

static int file_size(sqlite3_file *base, sqlite3_int64 *size)
{
    int code = meet_file(base, FAULT_SIZE);
    return code != SQLITE_OK ? code : below(base)->xFileSize(base, size);
}

static int file_lock(sqlite3_file *base, int level)
{
    int code = meet_file(base, FAULT_LOCK);
    return code != SQLITE_OK ? code : below(base)->xLock(base, level);
}

static int file_check_lock(sqlite3_file *base, int *locked)
{
    int code = meet_file(base, FAULT_CHECK_LOCK);
    return code != SQLITE_OK ? code : below(base)->xCheckReservedLock(base, locked);
}

/* A write that fails may have got half-way. */
static int file_write(sqlite3_file *base, const void *data, int size, sqlite3_int64 at)
{
    bool gone = fault_vfs_is_broken(of(base)->vfs);
    int code = meet_file(base, FAULT_WRITE);

    if (code == SQLITE_OK)
        return below(base)->xWrite(base, data, size, at);
    if (!gone && size > 1)
        (void)below(base)->xWrite(base, data, size / 2, at);
    return code;
}

static int file_sync(sqlite3_file *base, int flags)
{
    struct fault_vfs *vfs = of(base)->vfs;
    int code = meet_file(base, FAULT_SYNC);

    wait_while_held(of(base));
    if (vfs->on_sync.suffix != NULL && ends_in(of(base)->path, vfs->on_sync.suffix))
        vfs->on_sync.call(vfs->on_sync.context);
    if (code != SQLITE_OK)
        (void)below(base)->xFileControl(base, RAMDISK_SYNC_HAS_FAILED, NULL);
    if (code != SQLITE_OK || vfs->hurries)
        return code;
    return below(base)->xSync(base, flags);
}

static int file_shm_map(sqlite3_file *base, int page, int size, int extend, void volatile **out)
{
    int code = meet_file(base, FAULT_SHM_MAP);

    *out = NULL;
    return code != SQLITE_OK ? code : below(base)->xShmMap(base, page, size, extend, out);
}

static int file_shm_lock(sqlite3_file *base, int offset, int n, int flags)
{
    int code = (flags & SQLITE_SHM_UNLOCK) != 0 ? SQLITE_OK : meet_file(base, FAULT_SHM_LOCK);
    return code != SQLITE_OK ? code : below(base)->xShmLock(base, offset, n, flags);
}

static sqlite3_io_methods methods_over(const sqlite3_io_methods *below)
{
    sqlite3_io_methods methods = *below;

    methods.iVersion = 2; /* no mapping of the file past these */
    methods.xRead = file_read;
    methods.xWrite = file_write;
    methods.xTruncate = file_truncate;
    methods.xSync = file_sync;
    methods.xFileSize = file_size;
    methods.xLock = file_lock;
    methods.xCheckReservedLock = file_check_lock;
    methods.xShmMap = file_shm_map;
    methods.xShmLock = file_shm_lock;
    return methods;
}

static int vfs_open(sqlite3_vfs *base, const char *path, sqlite3_file *out, int flags, int *given)
{
    struct fault_vfs *vfs = (struct fault_vfs *)base;
    int code = meet(vfs, FAULT_OPEN, path);

    out->pMethods = NULL;
    if (code != SQLITE_OK)
        return code;
    code = vfs->below->xOpen(vfs->below, path, out, flags, given);
    if (out->pMethods == NULL)
        return code;
    *of(out) = (struct fault_file){vfs, path, methods_over(out->pMethods), out->pMethods};
    out->pMethods = &of(out)->methods;
    return code;
}

static int vfs_delete(sqlite3_vfs *base, const char *path, int sync_folder)
{
    struct fault_vfs *vfs = (struct fault_vfs *)base;
    int code = meet(vfs, FAULT_DELETE, path);

    return code != SQLITE_OK ? code : vfs->below->xDelete(vfs->below, path, sync_folder);
}

static int vfs_access(sqlite3_vfs *base, const char *path, int flags, int *there)
{
    struct fault_vfs *vfs = (struct fault_vfs *)base;
    int code = meet(vfs, FAULT_ACCESS, path);

    return code != SQLITE_OK ? code : vfs->below->xAccess(vfs->below, path, flags, there);
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

void fault_vfs_register(struct fault_vfs *vfs)
{
    sqlite3_vfs_register(&vfs->base, 1);
}

struct fault_vfs *fault_vfs_add(void)
{
    struct fault_vfs *vfs = mem_zalloc(sizeof *vfs);

    vfs->below = sqlite3_vfs_find(NULL);
    vfs->base = *vfs->below; /* what only names files is the same, and needs no file of ours */
    check(vfs->below->szOsFile <= BELOW_SIZE_MAX);
    vfs->base.szOsFile = BELOW_SIZE_MAX + (int)sizeof(struct fault_file);
    vfs->base.pNext = NULL;
    vfs->base.zName = "fault";
    vfs->base.xOpen = vfs_open;
    vfs->base.xDelete = vfs_delete;
    vfs->base.xAccess = vfs_access;
    pthread_mutex_init(&vfs->lock, NULL);
    pthread_cond_init(&vfs->let, NULL);
    fault_vfs_register(vfs);
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

void fault_vfs_set(struct fault_vfs *vfs, enum fault_call call, const char *suffix, int64_t times,
                   int code)
{
    pthread_mutex_lock(&vfs->lock);
    vfs->faults[call] =
        (struct io_fault){.calls = 1u << call, .suffix = suffix, .times = times, .code = code};
    pthread_mutex_unlock(&vfs->lock);
}

void fault_vfs_set_any(struct fault_vfs *vfs, struct io_fault fault)
{
    pthread_mutex_lock(&vfs->lock);
    vfs->faults[FAULT_CALLS_COUNT] = fault;
    vfs->counts = (struct fault_counts){0};
    pthread_mutex_unlock(&vfs->lock);
}

void fault_vfs_clear(struct fault_vfs *vfs)
{
    pthread_mutex_lock(&vfs->lock);
    memset(vfs->faults, 0, sizeof vfs->faults);
    vfs->broken = false;
    pthread_mutex_unlock(&vfs->lock);
}

struct fault_counts fault_vfs_counts(struct fault_vfs *vfs)
{
    pthread_mutex_lock(&vfs->lock);
    struct fault_counts counts = vfs->counts;
    pthread_mutex_unlock(&vfs->lock);
    return counts;
}

bool fault_vfs_is_broken(struct fault_vfs *vfs)
{
    pthread_mutex_lock(&vfs->lock);
    bool broken = vfs->broken;
    pthread_mutex_unlock(&vfs->lock);
    return broken;
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

void fault_vfs_on_sync(struct fault_vfs *vfs, const char *suffix, void (*on_sync)(void *context),
                       void *context)
{
    vfs->on_sync.suffix = suffix;
    vfs->on_sync.call = on_sync;
    vfs->on_sync.context = context;
}
