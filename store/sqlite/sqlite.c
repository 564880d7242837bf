/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite store: a writer and two readers, a connection and a worker each, a checkpointer, and
 * the list of what is done, which the caller collects. The second reader takes what may take long,
 * one at a time: the others do not wait for it, and no snapshot keeps the WAL from being emptied
 * for longer than that. Where the writer sleeps, brief reads that are done on the owner's thread go
 * over its connection, which has the latest pages in memory.
 *
 * The file fails in two ways. Cleanly: the operations say STK_STORE, and the next may succeed. Or a
 * commit's outcome is unknown: then the writer stops, nothing of it is answered, store_lost() is
 * true, and the file is left to the recovery of the next process. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/open.h"
#include "store/sqlite/checkpointer.h"
#include "store/sqlite/db.h"
#include "store/sqlite/files.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/reader.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/sql_memory.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/writer.h"
#include "store/store_impl.h"

#define NO_THREADS "cannot start the store's threads"

enum { READS_QUICK, READS_SLOW, READS };

enum {
    HERE_OPS_MAX = 64, /* above it, the next batch gathers while another thread commits this one */
    HERE_READS_MAX = 1024, /* of the writer's connection, which remembers more than a reader */
    READS_BATCH_MAX = 128, /* small: replies to the first ones leave while the next are read */
};

struct reads {
    struct sqlite_store *store;
    sqlite3 *db;
    struct reader reader; /* its thread's */
    struct worker worker;
};

struct sqlite_store {
    struct store base;
    /* Set once. */
    char *path; /* owned */
    bool threads;
    void (*wake)(void *context);
    void *context;
    const struct log *log;
    int64_t session;
    struct store_clock clock; /* the note in it is the writer's */
    sqlite3 *write_db;
    struct writer writer; /* its thread's */
    struct checkpointer checkpointer;
    struct files files;
    struct store_reasons reasons;
    /* Shared. */
    struct worker writes;
    struct reads reads[READS];
    atomic_bool lost;
    pthread_mutex_t lock;
    struct list done;         /* under the lock */
    struct store_stats stats; /* under the lock, but for the queues' lengths */
};

static struct sqlite_store *of(struct store *store)
{
    return (struct sqlite_store *)store;
}

static void wake(const struct sqlite_store *store)
{
    if (store->threads && store->wake != NULL)
        store->wake(store->context);
}

/* The lock is held. */
static void note_outage(struct sqlite_store *store)
{
    const struct writer *writer = &store->writer;
    bool fails = writer->outage != 0;

    store->stats.state = fails ? STORE_FAILING : STORE_FINE;
    snprintf(store->stats.why, sizeof store->stats.why, "%s", fails ? writer->txn.reason : "");
}

static enum work_result work_writes(void *context, struct list *batch, size_t count, bool here)
{
    struct sqlite_store *store = context;
    const struct writer *writer = &store->writer;
    enum writer_outcome outcome = writer_run(&store->writer, batch, !here);

    if (outcome == WRITER_BUSY)
        return WORK_LATER;
    if (outcome == WRITER_LOST) {
        log_error(store->log, "store %s: it is unknown whether the last writes are on disk",
                  store->path);
        atomic_store(&store->lost, true);
        wake(store);
        return WORK_OVER;
    }
    pthread_mutex_lock(&store->lock);
    list_splice(&store->done, batch);
    if (writer->outage != 0 || store->stats.state != STORE_FINE)
        note_outage(store);
    store->stats.commits = writer->commits;
    store->stats.failed_commits = writer->failed_commits;
    store->stats.foreign_commits = writer->foreign_commits;
    store->stats.writes += count;
    if (count > store->stats.batch_writes_max)
        store->stats.batch_writes_max = count;
    pthread_mutex_unlock(&store->lock);
    if (!here)
        wake(store);
    return WORK_DONE;
}

static void tidy_writes(void *context)
{
    struct sqlite_store *store = context;
    writer_tidy(&store->writer);
}

static enum work_result work_reads(void *context, struct list *batch, size_t count, bool here)
{
    struct reads *reads = context;
    struct sqlite_store *store = reads->store;
    bool done = here && worker_rests(&store->writes) && writer_read(&store->writer, batch);

    if (!done)
        reader_run(&reads->reader, batch);
    pthread_mutex_lock(&store->lock);
    list_splice(&store->done, batch);
    store->stats.reads += count;
    store->stats.read_batches++;
    pthread_mutex_unlock(&store->lock);
    if (!here)
        wake(store);
    return WORK_DONE;
}

static bool sqlite_lost(const struct store *base)
{
    return atomic_load(&((const struct sqlite_store *)base)->lost);
}

static enum stk_error sqlite_submit(struct store *base, struct store_op *op)
{
    struct sqlite_store *store = of(base);

    if (!op->writes)
        return worker_submit(&store->reads[op->slow ? READS_SLOW : READS_QUICK].worker, op);
    return sqlite_lost(base) ? STK_BUSY : worker_submit(&store->writes, op);
}

static bool sqlite_flush(struct store *base)
{
    struct sqlite_store *store = of(base);
    bool done = worker_flush(&store->writes);

    store->reads[READS_QUICK].worker.here_max =
        worker_rests(&store->writes) ? HERE_READS_MAX : HERE_OPS_MAX;
    for (size_t i = 0; i < READS; i++)
        done |= worker_flush(&store->reads[i].worker);
    return done;
}

static void sqlite_collect(struct store *base)
{
    struct sqlite_store *store = of(base);
    struct list done, *link;

    list_init(&done);
    pthread_mutex_lock(&store->lock);
    list_splice(&done, &store->done);
    pthread_mutex_unlock(&store->lock);
    while ((link = list_pop(&done)) != NULL) {
        struct store_op *op = list_entry(link, struct store_op, link);
        op->done(op);
    }
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

static int64_t sqlite_session(const struct store *base)
{
    return ((const struct sqlite_store *)base)->session;
}

static struct store_stats sqlite_stats(const struct store *base)
{
    /* The locks are no part of what the caller may not change. */
    struct sqlite_store *store = (struct sqlite_store *)(uintptr_t)base;

    pthread_mutex_lock(&store->lock);
    struct store_stats stats = store->stats;
    pthread_mutex_unlock(&store->lock);
    if (files_why(&store->files, stats.why))
        stats.state = STORE_STOPPED;
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
        sqlite3_close(store->reads[i].db);
    }
    checkpointer_stop(&store->checkpointer);
    if (store->write_db != NULL)
        writer_free(&store->writer);
    files_close(&store->files);
    pthread_mutex_destroy(&store->lock);
    pthread_mutex_destroy(&store->reasons.lock);
    free(store->path);
    free(store);
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
    /* The last connection to close copies the WAL into the file and deletes it, unless the disk
     * has shown that it cannot be trusted, or that name may lead to another file now. */
    bool in_place = files_check(&store->files, store->write_db);
    if (!in_place && !sqlite_lost(base))
        (void)files_save(&store->files, store->write_db);
    if (!in_place || !trusted || disk_lost)
        sqlite3_db_config(store->write_db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    dispose(store);
}

static const struct store_impl sqlite_impl = {
    .submit = sqlite_submit,
    .flush = sqlite_flush,
    .collect = sqlite_collect,
    .step = sqlite_step,
    .lost = sqlite_lost,
    .session = sqlite_session,
    .stats = sqlite_stats,
    .close = sqlite_close,
};

static bool open_file(struct sqlite_store *store, const struct store_options *options, char *why,
                      size_t why_size)
{
    struct store_clock *clock = &store->clock;
    int cache_mb = options->cache_mb != 0 ? options->cache_mb : STORE_CACHE_MB;
    if (files_bereft(store->path, why, why_size))
        return false;
    sqlite3 *db = db_open(store->path, DB_WRITER, why, why_size);
    if (db == NULL)
        return false;
    store->write_db = db;
    store_clock_init(clock, options->clock);
    if (!writer_init(&store->writer, db, cache_mb, store->path, store->log, clock))
        return db_explain(db, store->path, why, why_size);
    if (!schema_prepare(db, store->path, &store->session, why, why_size))
        return false;
    if (store->session == STORE_SESSION_FIRST)
        log_warn(store->log,
                 "store %s is new: there was none, and tokens begin at 1; if there was one before, "
                 "stop now, and put its file back or restore a backup (stockade restore)",
                 store->path);
    files_open(&store->files, db, store->path, store->log);
    if ((db = db_open(store->path, DB_WRITER, why, why_size)) == NULL)
        return false;
    if (!checkpointer_start(&store->checkpointer, db, &store->files, options->checkpoint_pages,
                            store->threads, store->path, store->log)) {
        snprintf(why, why_size, NO_THREADS);
        return false;
    }
    writer_open(&store->writer, &store->checkpointer, &store->files, &store->reasons);
    struct transaction *txn = &store->writer.txn;
    if (!writer_start_clock(&store->writer)) {
        if (txn->code != SQLITE_CORRUPT)
            return db_explain(db, store->path, why, why_size);
        snprintf(why, why_size, "%s is damaged: %s", store->path, txn->reason);
        return false;
    }
    if (!guards_open(txn, store->path, store->log) || guards_check(txn, GUARDS_OWN) != STK_OK)
        return db_explain(db, store->path, why, why_size);
    for (size_t i = 0; i < READS; i++) {
        struct reads *reads = &store->reads[i];
        db = db_open(store->path, DB_READER, why, why_size);
        if (db == NULL)
            return false;
        reads->store = store;
        reads->db = db;
        if (!reader_init(&reads->reader, db, i == READS_QUICK, &store->files, &store->reasons,
                         store->path, store->log, clock) ||
            !guards_open(&reads->reader.txn, store->path, store->log))
            return db_explain(db, store->path, why, why_size);
    }
    return true;
}

static struct worker worker_of(const struct store_options *options, const char *name,
                               enum work_result (*work)(void *, struct list *, size_t, bool),
                               void *context)
{
    return (struct worker){
        .name = name,
        .queue_max = options->queue_ops_max,
        .batch_max = options->batch_ops_max,
        .here_max = HERE_OPS_MAX,
        .threaded = options->threads,
        .work = work,
        .context = context,
    };
}

void store_sqlite_uncounted(void)
{
    (void)sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

struct store *store_sqlite_open(const struct store_options *options, char *why, size_t why_size)
{
    struct sqlite_store *store = mem_zalloc(sizeof *store);

    sql_memory_install();
    store->base.impl = &sqlite_impl;
    store->path = mem_strdup(options->path);
    store->threads = options->threads;
    store->wake = options->wake;
    store->context = options->context;
    store->log = options->log;
    list_init(&store->done);
    pthread_mutex_init(&store->lock, NULL);
    pthread_mutex_init(&store->reasons.lock, NULL);
    if (!open_file(store, options, why, why_size)) {
        dispose(store);
        return NULL;
    }
    struct reads *quick = &store->reads[READS_QUICK], *slow = &store->reads[READS_SLOW];
    store->writes = worker_of(options, "store-writer", work_writes, store);
    store->writes.tidy = tidy_writes;
    quick->worker = worker_of(options, "store-reader", work_reads, quick);
    if (quick->worker.batch_max > READS_BATCH_MAX)
        quick->worker.batch_max = READS_BATCH_MAX;
    slow->worker = worker_of(options, "store-slow", work_reads, slow);
    slow->worker.batch_max = 1;
    slow->worker.here_max = 0;
    bool started = worker_start(&store->writes);
    started &= worker_start(&quick->worker);
    if (!worker_start(&slow->worker) || !started) {
        snprintf(why, why_size, NO_THREADS);
        sqlite_close(&store->base);
        return NULL;
    }
    return &store->base;
}
