/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/checkpointer.h"

#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/thread.h"
#include "store/sqlite/db.h"
#include "store/sqlite/holders.h"
#include "store/sqlite/wal_vfs.h"

enum {
    REST_PAGES = 512, /* so few are left to the writer: half a megabyte */
    PASSES_MAX = 8,   /* each one copies what was committed during the one before */
    PAGES_FACTOR = 4,
    /* The longer the log, the more often a page changes before it is copied. But it is to stay in
     * proportion to the file, and a very long one takes long to search. */
    PAGES_MAX_LEAST = 32 * 1024,
    PAGES_MAX_MOST = 128 * 1024,
    FILE_FACTOR = 4,
    /* Writing one resource again and again repeats its pages. The log is short then, and cheap to
     * copy: only the last of the repeats counts. */
    REPEATS_MAX = 512,
    REPEATS_AGAIN_PAGES = 2048,
    /* A reader that is done sooner is none that holds the log. */
    HELD_LONG_MS = 1000,
};

static void set_state(struct checkpointer *checkpointer, enum checkpoint_state state)
{
    pthread_mutex_lock(&checkpointer->lock);
    atomic_store(&checkpointer->state, state);
    pthread_cond_broadcast(&checkpointer->news);
    pthread_mutex_unlock(&checkpointer->lock);
}

/* After a failed sync nothing is tried again: the system has forgotten what it could not write, and
 * the next sync would succeed over the loss. */
static void note_result(struct checkpointer *checkpointer, sqlite3 *db, int code)
{
    /* Another program, or the writer, has the locks just now. */
    if (code == SQLITE_BUSY)
        return;
    if (code == SQLITE_OK) {
        checkpointer->outage = code;
        return;
    }
    if (code == SQLITE_IOERR_FSYNC || sqlite3_extended_errcode(db) == SQLITE_IOERR_FSYNC)
        atomic_store(&checkpointer->lost, true);
    if (code != atomic_exchange(&checkpointer->outage, code))
        log_error(checkpointer->log, "store %s: cannot copy the write-ahead log into the file: %s",
                  checkpointer->path, sqlite3_errstr(code));
}

/* Return how many pages are still to be copied. A pass knows only how long the log was when it
 * began; the writer has gone on since. */
static int left_over(const struct checkpointer *checkpointer, int pages, int copied)
{
    int now = atomic_load(&checkpointer->pages);
    return (now > pages ? now : pages) - copied;
}

/* Copy what is in the log. True: what is left over is for the writer. */
static bool copy(struct checkpointer *checkpointer)
{
    int copied_before = -1;

    for (int pass = 0; pass < PASSES_MAX && !atomic_load(&checkpointer->stopping); pass++) {
        int pages = 0, copied = 0;
        if (!files_check(checkpointer->files, checkpointer->db))
            return false;
        int code = sqlite3_wal_checkpoint_v2(checkpointer->db, "main", SQLITE_CHECKPOINT_PASSIVE,
                                             &pages, &copied);
        if (code == SQLITE_OK)
            code = wal_vfs_sync_code(wal_vfs_of(checkpointer->db));
        note_result(checkpointer, checkpointer->db, code);
        if (code != SQLITE_OK || left_over(checkpointer, pages, copied) <= REST_PAGES)
            return code == SQLITE_OK;
        if (copied <= copied_before) { /* a reader needs what the next pages would overwrite */
            checkpointer->held = true;
            return false;
        }
        copied_before = copied;
    }
    return true; /* the writer is faster than the copying, and is to feel it */
}

/* Set it by the size of the file, unless the caller has given it. */
static void set_pages_max(struct checkpointer *checkpointer)
{
    int64_t file = 0;

    if (checkpointer->fixed || db_int64(checkpointer->db, "PRAGMA page_count", &file) != SQLITE_OK)
        return;
    int64_t pages = file * FILE_FACTOR;
    if (pages < PAGES_MAX_LEAST)
        pages = PAGES_MAX_LEAST;
    atomic_store(&checkpointer->pages_max, pages < PAGES_MAX_MOST ? (int)pages : PAGES_MAX_MOST);
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* The most that the log takes by itself, in bytes. */
static int64_t usual_bytes(const struct checkpointer *checkpointer)
{
    int64_t page_size = 0;

    (void)db_int64(checkpointer->db, "PRAGMA page_size", &page_size);
    return (int64_t)atomic_load(&checkpointer->pages_max) * PAGES_FACTOR * page_size;
}

static void warn_of_reader(struct checkpointer *checkpointer, int64_t bytes, int64_t held_ms)
{
    const struct files *files = checkpointer->files;
    char holders[128];

    holders_name(files->ids[FILE_SHM].device, files->ids[FILE_SHM].number, holders, sizeof holders);
    log_warn(checkpointer->log,
             "store %s: its write-ahead log has %lld MB and grows, for a reader has kept its "
             "snapshot for %lld s or longer: %s; end that transaction or program",
             checkpointer->path, (long long)(bytes >> 20), (long long)(held_ms / 1000), holders);
    checkpointer->warned_bytes = bytes;
}

/* After a pass, and once a second: how large is the log, and does a reader hold it? */
static void look_at_log(struct checkpointer *checkpointer)
{
    int64_t since_ms = atomic_load(&checkpointer->held_since_ms), bytes;
    struct stat status;

    if (!checkpointer->files->watched || stat(checkpointer->files->paths[FILE_WAL], &status) != 0)
        return;
    bytes = status.st_size;
    atomic_store(&checkpointer->log_bytes, bytes);
    if (checkpointer->held && since_ms == 0)
        atomic_store(&checkpointer->held_since_ms, since_ms = now_ms());
    if (!checkpointer->held) {
        atomic_store(&checkpointer->held_since_ms, 0);
        if (checkpointer->warned_bytes > 0)
            log_info(checkpointer->log, "store %s: nobody holds its write-ahead log any more",
                     checkpointer->path);
        checkpointer->warned_bytes = 0;
    } else if (now_ms() - since_ms >= HELD_LONG_MS &&
               bytes > (checkpointer->warned_bytes > 0 ? 2 * checkpointer->warned_bytes
                                                       : usual_bytes(checkpointer))) {
        warn_of_reader(checkpointer, bytes, now_ms() - since_ms);
    }
}

int64_t checkpointer_log_bytes(const struct checkpointer *checkpointer)
{
    return atomic_load(&checkpointer->log_bytes);
}

int64_t checkpointer_held_ms(const struct checkpointer *checkpointer)
{
    int64_t since_ms = atomic_load(&checkpointer->held_since_ms);
    return since_ms != 0 ? now_ms() - since_ms : 0;
}

static void work(struct checkpointer *checkpointer)
{
    checkpointer->held = false;
    set_pages_max(checkpointer);
    bool copied = copy(checkpointer);
    look_at_log(checkpointer);
    set_state(checkpointer, copied ? CHECKPOINT_REST : CHECKPOINT_IDLE);
}

/* Has the reader gone? */
static void work_again(struct checkpointer *checkpointer)
{
    set_state(checkpointer, CHECKPOINT_COPYING);
    work(checkpointer);
}

/* True: it is over, and nothing has happened. The lock is held. */
static bool wait_a_second(struct checkpointer *checkpointer)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec++;
    return pthread_cond_clockwait(&checkpointer->news, &checkpointer->lock, CLOCK_MONOTONIC,
                                  &end) == ETIMEDOUT;
}

bool checkpointer_save(struct checkpointer *checkpointer, sqlite3 *db)
{
    int code = files_save(checkpointer->files, db);

    note_result(checkpointer, db, code);
    return code == SQLITE_OK;
}

static void *checkpointer_main(void *context)
{
    struct checkpointer *checkpointer = context;

    pthread_mutex_lock(&checkpointer->lock);
    while (!atomic_load(&checkpointer->stopping)) {
        bool copies = atomic_load(&checkpointer->state) == CHECKPOINT_COPYING;
        if (!copies && !wait_a_second(checkpointer))
            continue;
        pthread_mutex_unlock(&checkpointer->lock);
        if (copies)
            work(checkpointer);
        else if (!files_check(checkpointer->files, checkpointer->db))
            (void)checkpointer_save(checkpointer, checkpointer->db);
        else if (checkpointer->held && !checkpointer_lost(checkpointer))
            work_again(checkpointer);
        else
            look_at_log(checkpointer);
        pthread_mutex_lock(&checkpointer->lock);
    }
    pthread_mutex_unlock(&checkpointer->lock);
    return NULL;
}

bool checkpointer_start(struct checkpointer *checkpointer, sqlite3 *db, struct files *files,
                        int pages_max, bool threaded, const char *path, const struct log *log)
{
    *checkpointer = (struct checkpointer){
        .db = db,
        .files = files,
        .path = path,
        .log = log,
        .fixed = pages_max != 0,
        .pages_max = pages_max != 0 ? pages_max : PAGES_MAX_LEAST,
    };
    pthread_mutex_init(&checkpointer->lock, NULL);
    pthread_cond_init(&checkpointer->news, NULL);
    /* A connection finds out that there is a WAL when it first reads. */
    (void)db_exec(db, "PRAGMA user_version");
    set_pages_max(checkpointer);
    if (!threaded)
        return true;
    checkpointer->threaded =
        thread_start(&checkpointer->thread, "store-copier", checkpointer_main, checkpointer);
    return checkpointer->threaded;
}

void checkpointer_stop(struct checkpointer *checkpointer)
{
    if (checkpointer->db == NULL)
        return;
    pthread_mutex_lock(&checkpointer->lock);
    atomic_store(&checkpointer->stopping, true);
    pthread_cond_broadcast(&checkpointer->news);
    pthread_mutex_unlock(&checkpointer->lock);
    if (checkpointer->threaded)
        pthread_join(checkpointer->thread, NULL);
    check(db_close(checkpointer->db) == SQLITE_OK);
    pthread_mutex_destroy(&checkpointer->lock);
    pthread_cond_destroy(&checkpointer->news);
    checkpointer->db = NULL;
}

bool checkpointer_step(struct checkpointer *checkpointer)
{
    check(!checkpointer->threaded);
    if (atomic_load(&checkpointer->state) != CHECKPOINT_COPYING)
        return false;
    work(checkpointer);
    return true;
}

static bool is_too_long(const struct checkpointer *checkpointer)
{
    return atomic_load(&checkpointer->pages) / PAGES_FACTOR > atomic_load(&checkpointer->pages_max);
}

void checkpointer_on_commit(struct checkpointer *checkpointer, int pages, int repeats)
{
    int pages_max = atomic_load(&checkpointer->pages_max);
    bool repeated = repeats > REPEATS_MAX;

    if (pages < atomic_exchange(&checkpointer->pages, pages)) /* it was begun anew */
        checkpointer->again_at = 0;
    if ((pages <= pages_max && !repeated) || pages < checkpointer->again_at ||
        atomic_load(&checkpointer->state) != CHECKPOINT_IDLE || checkpointer_lost(checkpointer))
        return;
    checkpointer->again_at = pages + (repeated ? REPEATS_AGAIN_PAGES : pages_max / 4);
    set_state(checkpointer, CHECKPOINT_COPYING);
}

bool checkpointer_has_rest(struct checkpointer *checkpointer)
{
    int state = atomic_load(&checkpointer->state);
    return state == CHECKPOINT_REST || (state == CHECKPOINT_COPYING && is_too_long(checkpointer));
}

bool checkpointer_lost(struct checkpointer *checkpointer)
{
    return atomic_load(&checkpointer->lost);
}

void checkpointer_copy_rest(struct checkpointer *checkpointer, sqlite3 *db)
{
    if (!checkpointer_has_rest(checkpointer))
        return;
    pthread_mutex_lock(&checkpointer->lock);
    while (checkpointer->threaded && atomic_load(&checkpointer->state) == CHECKPOINT_COPYING)
        pthread_cond_wait(&checkpointer->news, &checkpointer->lock);
    pthread_mutex_unlock(&checkpointer->lock);
    if (!checkpointer_lost(checkpointer) && files_check(checkpointer->files, db)) {
        int code = sqlite3_wal_checkpoint_v2(db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        note_result(checkpointer, db, code == SQLITE_OK ? wal_vfs_sync_code(wal_vfs_of(db)) : code);
    }
    set_state(checkpointer, CHECKPOINT_IDLE);
}
