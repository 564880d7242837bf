/* SPDX-License-Identifier: Apache-2.0 */
/* The SQLite store: a writer and a reader, a connection and a worker each, and the list of what is
 * done, which the caller collects.
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
#include "store/sqlite/db.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/reader.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/sql_memory.h"
#include "store/sqlite/worker.h"
#include "store/sqlite/writer.h"
#include "store/store_impl.h"

struct sqlite_store {
    struct store base;
    /* Set once. */
    char *path; /* owned */
    bool threads;
    void (*wake)(void *context);
    void *context;
    const struct log *log;
    int64_t session;
    sqlite3 *write_db, *read_db;
    /* Each its thread's. */
    struct writer writer;
    struct reader reader;
    /* Shared. */
    struct worker writes, reads;
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

static bool work_writes(void *context, struct list *batch, size_t count)
{
    struct sqlite_store *store = context;
    const struct writer *writer = &store->writer;

    if (writer_run(&store->writer, batch) == WRITER_LOST) {
        log_error(store->log, "store %s: it is unknown whether the last writes are on disk",
                  store->path);
        atomic_store(&store->lost, true);
        wake(store);
        return false;
    }
    pthread_mutex_lock(&store->lock);
    list_splice(&store->done, batch);
    store->stats.commits = writer->commits;
    store->stats.failed_commits = writer->failed_commits;
    store->stats.foreign_commits = writer->foreign_commits;
    store->stats.writes += count;
    if (count > store->stats.batch_writes_max)
        store->stats.batch_writes_max = count;
    pthread_mutex_unlock(&store->lock);
    wake(store);
    return true;
}

static bool work_reads(void *context, struct list *batch, size_t count)
{
    struct sqlite_store *store = context;

    reader_run(&store->reader, batch);
    pthread_mutex_lock(&store->lock);
    list_splice(&store->done, batch);
    store->stats.reads += count;
    store->stats.read_batches++;
    pthread_mutex_unlock(&store->lock);
    wake(store);
    return true;
}

static bool sqlite_lost(const struct store *base)
{
    return atomic_load(&((const struct sqlite_store *)base)->lost);
}

static enum stk_error sqlite_submit(struct store *base, struct store_op *op)
{
    struct sqlite_store *store = of(base);

    if (!op->writes)
        return worker_submit(&store->reads, op);
    return sqlite_lost(base) ? STK_BUSY : worker_submit(&store->writes, op);
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
    bool wrote = worker_step(&store->writes);
    return worker_step(&store->reads) || wrote;
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
    stats.writes_queued = worker_queued(&store->writes);
    stats.reads_queued = worker_queued(&store->reads);
    return stats;
}

/* Everything but the workers. */
static void dispose(struct sqlite_store *store)
{
    if (store->read_db != NULL)
        reader_free(&store->reader);
    sqlite3_close(store->read_db);
    if (store->write_db != NULL)
        writer_free(&store->writer);
    check(sqlite3_close(store->write_db) == SQLITE_OK); /* no statement is forgotten */
    pthread_mutex_destroy(&store->lock);
    free(store->path);
    free(store);
}

static void sqlite_close(struct store *base)
{
    struct sqlite_store *store = of(base);

    worker_stop(&store->writes);
    worker_stop(&store->reads);
    sqlite_collect(base);
    /* The last connection to close copies the WAL into the file and deletes it, unless the disk
     * has shown that it cannot be trusted. */
    if (sqlite_lost(base))
        sqlite3_db_config(store->write_db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    dispose(store);
}

static const struct store_impl sqlite_impl = {
    .submit = sqlite_submit,
    .collect = sqlite_collect,
    .step = sqlite_step,
    .lost = sqlite_lost,
    .session = sqlite_session,
    .stats = sqlite_stats,
    .close = sqlite_close,
};

static bool open_file(struct sqlite_store *store, const struct clock *clock, char *why,
                      size_t why_size)
{
    sqlite3 *db = db_open(store->path, DB_WRITER, why, why_size);

    if (db == NULL)
        return false;
    store->write_db = db;
    writer_init(&store->writer, db, store->path, store->log, clock);
    if (!schema_prepare(db, store->path, &store->session, why, why_size))
        return false;
    struct transaction *txn = &store->writer.txn;
    if (!guards_open(txn, store->path, store->log) || guards_look(txn, GUARDS_OWN) != STK_OK)
        return db_explain(db, store->path, why, why_size);
    db = db_open(store->path, DB_READER, why, why_size);
    if (db == NULL)
        return false;
    store->read_db = db;
    reader_init(&store->reader, db, store->path, store->log, clock);
    if (!guards_open(&store->reader.txn, store->path, store->log))
        return db_explain(db, store->path, why, why_size);
    return true;
}

static struct worker worker_of(struct sqlite_store *store, const struct store_options *options,
                               const char *name,
                               bool (*work)(void *context, struct list *batch, size_t count))
{
    return (struct worker){
        .name = name,
        .queue_max = options->queue_ops_max,
        .batch_max = options->batch_ops_max,
        .threaded = options->threads,
        .work = work,
        .context = store,
    };
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
    if (!open_file(store, options->clock, why, why_size)) {
        dispose(store);
        return NULL;
    }
    store->writes = worker_of(store, options, "store-writer", work_writes);
    store->reads = worker_of(store, options, "store-reader", work_reads);
    bool started = worker_start(&store->writes);
    if (!worker_start(&store->reads) || !started) {
        snprintf(why, why_size, "cannot start the store's threads");
        sqlite_close(&store->base);
        return NULL;
    }
    return &store->base;
}
