/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite store: opened, put together, closed. It has one writer, two readers and a
 * checkpointer, each with a connection and a thread, and a list of what is finished, which the
 * caller collects.
 *
 *   thread          what is its own
 *   the caller's    this file; the owner's side of worker.c; and, while a worker rests, what is
 *                   that worker's
 *   store-writer    writer.c and its transaction; the cache; files.c, where it checks a commit
 *   store-reader    a reader.c and its transaction; the names that it remembers
 *   store-slow      the same for reads that may take long, one at a time: the others do not wait
 *                   for them, and no snapshot keeps the WAL from being emptied for longer than that
 *   store-copier    checkpointer.c
 *
 * The path of a write: submit (inlined) ─▶ worker.c ─▶ writer_work() ─▶ struct finished ─▶ collect
 * (here). Where the writer rests, brief reads that run on the caller's thread go over its
 * connection, which has the latest pages in memory.
 *
 * Without threads (store_step) one caller is all of these in turn.
 *
 * The file fails in two ways. Cleanly: operations get STK_STORE, and the next may succeed. Or the
 * outcome of a commit is unknown: then the writer is lost, nothing of that commit is answered,
 * store_lost() is true, and the process has to end.
 *
 * Recovery. No start knows how the process before it ended, so every start does the same, and this
 * is what heals each point at which a process or the power can go:
 *
 *   while the file is made,      One transaction makes the tables, brings an older schema forward
 *   or an older one migrated     and counts the opening: schema_prepare().
 *   before a commit is synced    SQLite drops what the checksums at the end of the WAL do not
 *                                cover. Nobody was answered.
 *   after it is synced, before   The commit stands. Who repeats the request with its ID gets the
 *   the reply                    first reply: receipts_find().
 *   a commit's outcome is        Nothing is answered, and the process ends (writer_work()). The
 *   unknown (a sync failed)      next one finds the commit in the WAL, or not; receipts tell.
 *   while the WAL is copied      The WAL has everything; it is copied again. Where a sync of the
 *   back                         copy failed, all of it is: wal_vfs.h.
 *   the files are moved,         What was acknowledged is saved, now or when the file is back
 *   deleted, replaced or cut     (files_save()), and nothing more is. A WAL without its main file
 *                                is not begun anew: files_orphaned().
 *   while a backup is taken      What is left of it is taken over by the next one: copy.h.
 *   or restored                  A restore is one transaction of the store's: backup.c.
 *   a reboot, or a clock that    The store's time goes on where it was noted last: store/clock.h.
 *   was set
 *   the file was copied, or its  Tokens go on from the time, and the leases of a copy end:
 *   disk was put back            anew_open(). All of that is one transaction.
 *   a guard was lost meanwhile   It is logged, and its table takes no writes: guards_check().
 *   SQLite cannot be asked to    Its connections are closed without copying the WAL
 *   close as it likes to         (close_in_doubt()): the next process has it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/open.h"
#include "store/sqlite/anew.h"
#include "store/sqlite/checkpointer.h"
#include "store/sqlite/db.h"
#include "store/sqlite/files.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/place.h"
#include "store/sqlite/reader.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/sql_memory.h"
#include "store/sqlite/writer.h"
#include "store/worker.h"

#define NO_THREADS "cannot start the store's threads"

enum { READS_QUICK, READS_SLOW, READS };

enum {
    INLINE_OPS_MAX =
        64, /* above it, the next batch gathers while another thread commits this one */
    INLINE_READS_MAX = 1024, /* over the writer's connection, which remembers more than a reader */
    READS_BATCH_MAX = 128,   /* small: replies to the first ones leave while the next are read */
};

struct reads {
    struct sqlite_store *store;
    struct worker worker;
    sqlite3 *db;
    struct reader reader; /* the worker's */
};

struct sqlite_store {
    struct store base;
    /* Set once. */
    char *path; /* owned */
    const struct log *log;
    int64_t opening;
    sqlite3 *write_db; /* the writer's, once there is one */
    /* The workers, and what is theirs. */
    struct worker writes;
    struct writer writer;
    struct reads reads[READS];
    struct checkpointer checkpointer;
    /* Shared, each with its own locking. */
    struct files files;
    struct store_clock clock; /* the note in it is the writer's */
    struct store_reasons reasons;
    struct finished finished;
};

static struct sqlite_store *of(struct store *store)
{
    return (struct sqlite_store *)store;
}

static enum stk_error sqlite_submit(struct store *base, struct store_op *op)
{
    struct sqlite_store *store = of(base);

    if (!op->writes)
        return worker_submit(&store->reads[op->slow ? READS_SLOW : READS_QUICK].worker, op);
    return atomic_load(&store->writer.lost) ? STK_BUSY : worker_submit(&store->writes, op);
}

static bool sqlite_flush(struct store *base)
{
    struct sqlite_store *store = of(base);
    bool done = worker_flush(&store->writes);

    store->reads[READS_QUICK].worker.inline_max =
        worker_rests(&store->writes) ? INLINE_READS_MAX : INLINE_OPS_MAX;
    for (size_t i = 0; i < READS; i++)
        done |= worker_flush(&store->reads[i].worker);
    return done;
}

/* A reader's work: over the writer's connection where that rests, else over the reader's own. */
static enum work_result work_reads(void *context, struct list *batch, size_t count, bool inlined)
{
    struct reads *reads = context;
    struct sqlite_store *store = reads->store;

    if (!inlined || !worker_rests(&store->writes) || !writer_read(&store->writer, batch))
        reader_run(&reads->reader, batch);
    struct store_stats *stats = finished_add(&store->finished, batch);
    stats->reads += count;
    stats->read_batches++;
    finished_close(&store->finished, inlined);
    return WORK_DONE;
}

static void sqlite_collect(struct store *base)
{
    finished_collect(&of(base)->finished);
}

static bool sqlite_step(struct store *base)
{
    struct sqlite_store *store = of(base);
    bool busy = worker_step(&store->writes);

    for (size_t i = 0; i < READS; i++)
        busy |= worker_step(&store->reads[i].worker);
    busy |= checkpointer_step(&store->checkpointer);
    return busy;
}

/* The file has one write lock, and what was submitted is run in its order. */
static bool sqlite_holds_up(const struct store *base, const struct store_op *op)
{
    (void)op;
    return atomic_load(&((const struct sqlite_store *)base)->writer.busy);
}

static bool sqlite_lost(const struct store *base)
{
    return atomic_load(&((const struct sqlite_store *)base)->writer.lost);
}

static int64_t sqlite_opening(const struct store *base)
{
    return ((const struct sqlite_store *)base)->opening;
}

static struct store_stats sqlite_stats(const struct store *base)
{
    /* The locks are no part of what the caller may not change. */
    struct sqlite_store *store = (struct sqlite_store *)(uintptr_t)base;

    pthread_mutex_lock(&store->finished.lock);
    struct store_stats stats = store->finished.stats;
    pthread_mutex_unlock(&store->finished.lock);
    if (files_why(&store->files, stats.why))
        stats.state = STORE_STOPPED;
    stats.writer_rests = worker_rests(&store->writes);
    stats.reader_rests = worker_rests(&store->reads[READS_QUICK].worker);
    stats.log_bytes = (uint64_t)checkpointer_log_bytes(&store->checkpointer);
    stats.oldest_snapshot_s = (uint64_t)(checkpointer_held_ms(&store->checkpointer) / 1000);
    stats.writes_queued = worker_queued(&store->writes);
    stats.reads_queued = 0;
    for (size_t i = 0; i < READS; i++)
        stats.reads_queued += worker_queued(&store->reads[i].worker);
    return stats;
}

/* Everything but the workers. */
static void dispose(struct sqlite_store *store)
{
    for (size_t i = 0; i < READS; i++) {
        if (store->reads[i].db != NULL)
            reader_free(&store->reads[i].reader);
        db_close(store->reads[i].db);
    }
    checkpointer_stop(&store->checkpointer);
    if (store->write_db != NULL)
        writer_free(&store->writer);
    files_close(&store->files);
    finished_destroy(&store->finished);
    reasons_destroy(&store->reasons);
    free(store->path);
    free(store);
}

/* The last connection to close copies the WAL into the file and deletes it, unless the disk has
 * shown that it cannot be trusted, or the WAL's name may lead to another file now. */
static void close_in_doubt(struct sqlite_store *store)
{
    sqlite3_db_config(store->write_db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

static void sqlite_close(struct store *base)
{
    struct sqlite_store *store = of(base);

    worker_stop(&store->writes);
    for (size_t i = 0; i < READS; i++)
        worker_stop(&store->reads[i].worker);
    sqlite_collect(base);
    bool trusted = !sqlite_lost(base) && !checkpointer_lost(&store->checkpointer) &&
                   writer_stop_clock(&store->writer);
    checkpointer_stop(&store->checkpointer);
    bool disk_lost = checkpointer_lost(&store->checkpointer);
    bool in_place = files_check(&store->files, store->write_db);
    if (!in_place && !sqlite_lost(base))
        (void)files_save(&store->files, store->write_db);
    if (!in_place || !trusted || disk_lost)
        close_in_doubt(store);
    dispose(store);
}

static const struct store_impl sqlite_impl = {
    .submit = sqlite_submit,
    .flush = sqlite_flush,
    .collect = sqlite_collect,
    .step = sqlite_step,
    .holds_up = sqlite_holds_up,
    .lost = sqlite_lost,
    .opening = sqlite_opening,
    .stats = sqlite_stats,
    .close = sqlite_close,
};

/* Opening: the writer, with the file made or brought forward; the checkpointer; the readers. Each
 * returns false with `why`. */

/* Find out whether it may know less than was told to somebody, and go on with its time. */
static bool settle(struct sqlite_store *store, char *why, size_t why_size)
{
    struct transaction *txn = &store->writer.txn;
    struct anew anew;
    bool settled = transaction_begin(txn, STATEMENT_BEGIN_WRITE, NULL) &&
                   anew_open(txn, &anew) == STK_OK && transaction_commit(txn) == STK_OK;

    transaction_ended(txn);
    if (!settled && txn->code == SQLITE_CORRUPT) {
        snprintf(why, why_size, "%s is damaged: %s", store->path, txn->reason);
        return false;
    }
    if (!settled || (anew.noted && place_copy_back(txn->db) != SQLITE_OK))
        return db_explain(txn->db, store->path, why, why_size);
    if (anew.why != NULL)
        anew_tell(&anew, store->path, store->log);
    return true;
}

static bool open_writer(struct sqlite_store *store, const struct store_options *options, char *why,
                        size_t why_size)
{
    int cache_mb = options->cache_mb != 0 ? options->cache_mb : STORE_CACHE_MB;

    if (files_orphaned(store->path, why, why_size))
        return false;
    sqlite3 *db = db_open(store->path, DB_WRITER, why, why_size);
    if (db == NULL)
        return false;
    store->write_db = db;
    store_clock_init(&store->clock, options->clock);
    if (!writer_init(&store->writer, db, cache_mb, store->path, store->log, &store->clock))
        return db_explain(db, store->path, why, why_size);
    if (!schema_prepare(db, store->path, &store->opening, why, why_size))
        return false;
    if (store->opening == STORE_OPENING_FIRST && !options->passes)
        log_warn(store->log,
                 "store %s is new: there was none, and tokens begin at 1; if there was one before, "
                 "stop now, and put its file back or restore a backup (stockade restore)",
                 store->path);
    if (!settle(store, why, why_size))
        return false;
    files_open(&store->files, db, store->path, store->log);
    return true;
}

static bool open_checkpointer(struct sqlite_store *store, const struct store_options *options,
                              char *why, size_t why_size)
{
    sqlite3 *db = db_open(store->path, DB_CHECKPOINTER, why, why_size);

    if (db == NULL)
        return false;
    if (checkpointer_start(&store->checkpointer, db, &store->files, options->checkpoint_pages,
                           options->threads, store->path, store->log))
        return true;
    snprintf(why, why_size, NO_THREADS);
    return false;
}

/* The guards as the file has them. */
static bool start_writer(struct sqlite_store *store, char *why, size_t why_size)
{
    struct transaction *txn = &store->writer.txn;

    writer_open(&store->writer, &store->checkpointer, &store->files, &store->reasons,
                &store->finished);
    if (!guards_open(txn, store->path, store->log) || guards_check(txn, GUARDS_OWN) != STK_OK)
        return db_explain(txn->db, store->path, why, why_size);
    return true;
}

static bool open_readers(struct sqlite_store *store, char *why, size_t why_size)
{
    for (size_t i = 0; i < READS; i++) {
        struct reads *reads = &store->reads[i];
        sqlite3 *db = db_open(store->path, DB_READER, why, why_size);
        if (db == NULL)
            return false;
        reads->store = store;
        reads->db = db;
        if (!reader_init(&reads->reader, db, i == READS_QUICK, &store->files, &store->reasons,
                         store->path, store->log, &store->clock) ||
            !guards_open(&reads->reader.txn, store->path, store->log))
            return db_explain(db, store->path, why, why_size);
    }
    return true;
}

static bool start_workers(struct sqlite_store *store, const struct store_options *options)
{
    struct worker *writes = &store->writes, *quick = &store->reads[READS_QUICK].worker,
                  *slow = &store->reads[READS_SLOW].worker;

    *writes = (struct worker){
        .name = "store-writer",
        .queue_max = options->queue_ops_max,
        .batch_max = options->batch_ops_max,
        .inline_max = INLINE_OPS_MAX,
        .threaded = options->threads,
        .work = writer_work,
        .between = writer_between,
        .context = &store->writer,
    };
    *quick = *slow = *writes;
    quick->work = slow->work = work_reads;
    quick->between = slow->between = NULL;
    quick->name = "store-reader";
    quick->context = &store->reads[READS_QUICK];
    if (quick->batch_max > READS_BATCH_MAX)
        quick->batch_max = READS_BATCH_MAX;
    slow->name = "store-slow";
    slow->context = &store->reads[READS_SLOW];
    slow->batch_max = 1;
    slow->inline_max = 0;
    bool started = worker_start(writes);
    started &= worker_start(quick);
    return worker_start(slow) && started;
}

struct store *store_sqlite_open(const struct store_options *options, char *why, size_t why_size)
{
    struct sqlite_store *store = mem_zalloc(sizeof *store);

    sql_memory_install();
    store->base.impl = &sqlite_impl;
    store->path = mem_strdup(options->path);
    store->log = options->log;
    finished_init(&store->finished, options->threads ? options->wake : NULL, options->context);
    reasons_init(&store->reasons);
    if (!open_writer(store, options, why, why_size) ||
        !open_checkpointer(store, options, why, why_size) || !start_writer(store, why, why_size) ||
        !open_readers(store, why, why_size)) {
        dispose(store);
        return NULL;
    }
    if (!start_workers(store, options)) {
        snprintf(why, why_size, NO_THREADS);
        sqlite_close(&store->base);
        return NULL;
    }
    return &store->base;
}

void store_sqlite_uncounted(void)
{
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}
