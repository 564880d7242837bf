/* SPDX-License-Identifier: Apache-2.0 */
/* The PostgreSQL store: opening it, putting its parts together, closing it.
 *
 *   thread          what it runs                                     its connection
 *   the caller's    this file; the owner's side of worker.c          none
 *   store-writer    writer.c: batches of changes                     stockade writer, writer 2
 *   store-own-txn   own_txn.c: changes that go past the working set  stockade apart
 *   store-reader    reader.c: reads                                  stockade reader
 *   store-slow      reader.c: reads that may take long               stockade slow
 *   store-watch     watch.c: news of leases, blockers, the time      stockade watch
 *
 * Others use the database, too: daemons, programs with the library, users' own programs. So nothing
 * is remembered from one transaction to the next, but for ids that nobody else has.
 *
 * It fails in three ways:
 * - Cleanly: operations get STK_STORE, and the next ones may succeed.
 * - The database cannot be reached: operations get STK_STORE at once, and we try again every 250
 * ms.
 * - The outcome of a commit is unknown: nobody is answered until it is found out (pg_find_out).
 *   Where that takes days, the mark that would tell is gone, and the process has to end
 *   (store_lost).
 *
 * Recovery: a daemon that dies leaves nothing to be healed. Its transaction ends with its
 * connection; where the server does not notice that, its locks end after 3 s. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/file.h"
#include "fence/base/mem.h"
#include "fence/base/nearest.h"
#include "store/open.h"
#include "store/postgresql/own_txn.h"
#include "store/postgresql/reader.h"
#include "store/postgresql/uri.h"
#include "store/postgresql/writer.h"

enum { READS_QUICK, READS_SLOW, READS };

enum { BATCH_MAX = 1024, READS_BATCH_MAX = 256, OWN_TXN_MAX = 1024 };

enum { HELD_UP_KNOWN_MS = 500 }; /* how long a row counts as locked after it was found so */

struct pg_store {
    struct store base;
    char *uri; /* owned; has a password */
    struct pg_shared shared;
    struct worker writes;
    struct pg_writer writer;
    struct own_txns own_txns;
    struct pg_reader readers[READS];
    struct pg_watch watch;
    struct store_reasons reasons;
    struct finished finished;
    /* The owner's. */
    struct store_news news; /* empty: nobody listens */
};

static struct pg_store *of(struct store *store)
{
    return (struct pg_store *)store;
}

static enum stk_error submit(struct store *base, struct store_op *op)
{
    struct pg_store *store = of(base);

    if (op->writes)
        return worker_submit(&store->writes, op);
    return worker_submit(&store->readers[op->slow ? READS_SLOW : READS_QUICK].worker, op);
}

static bool flush(struct store *base)
{
    struct pg_store *store = of(base);
    bool done = worker_flush(&store->writes);

    for (size_t i = 0; i < READS; i++)
        done |= worker_flush(&store->readers[i].worker);
    return done;
}

static void collect(struct store *base)
{
    struct pg_store *store = of(base);

    finished_collect(&store->finished);
    if (store->news.on_freed != NULL)
        pg_watch_collect(&store->watch, &store->news);
}

static void listen_to(struct store *base, const struct store_news *news)
{
    of(base)->news = *news;
}

/* The writer tries the row every few milliseconds, as long as the server answers, and notes each
 * time that it finds it locked. */
static bool holds_up(const struct store *base, const struct store_op *op)
{
    int64_t seen_ms = atomic_load(&op->held_up_ms);

    (void)base;
    return seen_ms != 0 && clock_now_ms(&clock_monotonic) - seen_ms < HELD_UP_KNOWN_MS;
}

static bool lost(const struct store *base)
{
    return atomic_load(&((const struct pg_store *)base)->shared.lost);
}

static int64_t opening(const struct store *base)
{
    return atomic_load(&((const struct pg_store *)base)->shared.opening);
}

static struct store_stats stats(const struct store *base)
{
    /* `const` keeps the caller from changing the store; taking its locks does not. */
    struct pg_store *store = (struct pg_store *)(uintptr_t)base;

    pthread_mutex_lock(&store->finished.lock);
    struct store_stats stats = store->finished.stats;
    pthread_mutex_unlock(&store->finished.lock);
    stats.writer_rests = worker_rests(&store->writes);
    stats.reader_rests = worker_rests(&store->readers[READS_QUICK].worker);
    stats.writes_queued = worker_queued(&store->writes) + worker_queued(&store->own_txns.worker);
    stats.reads_queued = 0;
    for (size_t i = 0; i < READS; i++)
        stats.reads_queued += worker_queued(&store->readers[i].worker);
    return stats;
}

static void dispose(struct pg_store *store)
{
    for (size_t i = 0; i < PG_WRITER_LANES; i++)
        pg_connection_free(&store->writer.lanes[i].connection);
    pg_connection_free(&store->own_txns.connection);
    for (size_t i = 0; i < READS; i++)
        pg_connection_free(&store->readers[i].connection);
    pthread_mutex_destroy(&store->own_txns.lock);
    finished_destroy(&store->finished);
    reasons_destroy(&store->reasons);
    kept_out_destroy(&store->shared.kept_out);
    server_clock_destroy(&store->shared.clock);
    pthread_mutex_destroy(&store->shared.place_lock);
    mem_free_secret(store->uri);
    free(store);
}

/* The writer ends first, since it hands operations to the worker of own_txn.c. */
static void close_store(struct store *base)
{
    struct pg_store *store = of(base);

    pg_watch_alone(&store->watch);
    worker_stop(&store->writes);
    worker_stop(&store->own_txns.worker);
    for (size_t i = 0; i < READS; i++)
        worker_stop(&store->readers[i].worker);
    pg_watch_stop(&store->watch);
    store->news = (struct store_news){0}; /* its owner may be gone */
    collect(base);
    dispose(store);
}

static const struct store_impl impl = {
    .submit = submit,
    .flush = flush,
    .collect = collect,
    .listen = listen_to,
    .holds_up = holds_up,
    .lost = lost,
    .opening = opening,
    .stats = stats,
    .close = close_store,
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool start_workers(struct pg_store *store, const struct store_options *options)
{
    struct worker *quick = &store->readers[READS_QUICK].worker,
                  *slow = &store->readers[READS_SLOW].worker;

    store->writes = (struct worker){
        .name = "store-writer",
        .queue_max = options->queue_ops_max,
        .batch_max = smaller(options->batch_ops_max, BATCH_MAX),
        .threaded = true,
        .work = pg_writer_work,
        .context = &store->writer,
        /* Where the database is away, the writer looks for it by itself. */
        .pending = store->writer.lanes[0].connection.retry.reported,
    };
    store->own_txns.worker = *quick = *slow = store->writes;
    store->own_txns.worker.pending = quick->pending = slow->pending = false;
    store->own_txns.worker.name = "store-own-txn";
    store->own_txns.worker.queue_max = OWN_TXN_MAX;
    store->own_txns.worker.batch_max = 1;
    store->own_txns.worker.work = own_txn_work;
    store->own_txns.worker.context = &store->own_txns;
    quick->name = "store-reader";
    quick->batch_max = smaller(options->batch_ops_max, READS_BATCH_MAX);
    slow->name = "store-slow";
    slow->batch_max = 1;
    quick->work = slow->work = pg_reader_work;
    quick->context = &store->readers[READS_QUICK];
    slow->context = &store->readers[READS_SLOW];
    bool started = worker_start(&store->writes);
    started &= worker_start(&store->own_txns.worker);
    started &= pg_watch_start(&store->watch);
    started &= worker_start(quick);
    return worker_start(slow) && started;
}

/* " (did you mean NAME?)", for the name that libpq's complaint has between quotes. */
static const char *hint_at_name(const struct libpq *pq, const char *error,
                                char hint[NEAREST_HINT_MAX])
{
    const char *name = error + strcspn(error, "\"");
    size_t len = *name != '\0' ? strcspn(name + 1, "\"") : 0;
    struct nearest nearest = nearest_to((struct bytes){name + 1, len});
    PQconninfoOption *all = pq->PQconninfoParse("", NULL);

    for (const PQconninfoOption *at = all; at != NULL && at->keyword != NULL; at++)
        nearest_offer(&nearest, at->keyword);
    pg_uri_offer(&nearest);
    nearest_hint(&nearest, hint);
    pq->PQconninfoFree(all);
    return hint;
}

/* Say what is wrong with a URI. libpq's complaints may repeat a password; only those about names of
 * options are passed on. */
static void complain(const struct libpq *pq, const char *error, char *why, size_t why_size)
{
    static const char named[] = "invalid URI query parameter";
    size_t len = error != NULL ? strcspn(error, "\n") : 0;
    char hint[NEAREST_HINT_MAX];

    if (error != NULL && strncmp(error, named, sizeof named - 1) == 0)
        text_print(why, why_size, "%.*s%s", (int)len, error, hint_at_name(pq, error, hint));
    else
        text_print(why, why_size,
                   "expected postgresql://[user[:password]@][host][:port][,...][/database]"
                   "[?name=value&...], as libpq reads it");
}

/* libpq opens the files that a URI names, and would wait for a pipe. (A file that is missing is
 * left to libpq: it complains, or does without.) */
static bool files_are_ordinary(const PQconninfoOption *options, char *why, size_t why_size)
{
    static const char *const named[] = {"sslcert", "sslkey", "sslrootcert", "sslcrl", "passfile"};
    char reason[FILE_WHY_SIZE];

    for (const PQconninfoOption *option = options; option->keyword != NULL; option++)
        for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
            if (option->val == NULL || strcmp(option->keyword, named[i]) != 0 ||
                access(option->val, F_OK) != 0)
                continue;
            int fd = file_open(option->val, NULL, reason);
            if (fd < 0) {
                text_print(why, why_size, "%s %s: %s", named[i], option->val, reason);
                return false;
            }
            close(fd);
        }
    return true;
}

bool store_postgresql_uri_is_valid(const char *uri, char *why, size_t why_size)
{
    struct libpq pq;
    char *error = NULL;

    if (!libpq_load(&pq, why, why_size) || !pg_uri_is_valid(uri, why, why_size))
        return false;
    char *of_libpq = pg_uri_of_libpq(uri);
    PQconninfoOption *options = pq.PQconninfoParse(of_libpq, &error);
    mem_free_secret(of_libpq);
    if (options == NULL)
        complain(&pq, error, why, why_size);
    bool valid = options != NULL && files_are_ordinary(options, why, why_size);
    pq.PQconninfoFree(options);
    pq.PQfreemem(error);
    return valid;
}

static void init_connection(struct pg_store *store, struct pg_connection *connection,
                            enum pg_connection_id id, const struct log *log)
{
    pg_connection_init(connection, store->uri, id, &store->shared, &store->reasons, log);
}

struct store *store_postgresql_open(const struct store_options *options, char *why, size_t why_size)
{
    check(options->threads);
    struct pg_store *store = mem_zalloc(sizeof *store);
    store->base.impl = &impl;
    store->uri = mem_strdup(options->path);
    finished_init(&store->finished, options->wake, options->context);
    reasons_init(&store->reasons);
    store->shared.log = options->log;
    server_clock_init(&store->shared.clock);
    kept_out_init(&store->shared.kept_out);
    pthread_mutex_init(&store->shared.place_lock, NULL);
    init_connection(store, &store->writer.lanes[0].connection, PG_CONNECTION_WRITER, options->log);
    init_connection(store, &store->writer.lanes[1].connection, PG_CONNECTION_WRITER_2,
                    options->log);
    init_connection(store, &store->own_txns.connection, PG_CONNECTION_OWN_TXN, options->log);
    init_connection(store, &store->readers[READS_QUICK].connection, PG_CONNECTION_READER,
                    options->log);
    init_connection(store, &store->readers[READS_SLOW].connection, PG_CONNECTION_SLOW,
                    options->log);
    /* It logs no outage: the others do. */
    init_connection(store, &store->watch.connection, PG_CONNECTION_WATCH, NULL);
    store->watch.log = options->log;
    store->watch.finished = &store->finished;
    store->watch.writes = &store->writes;
    store->writer.watch = store->own_txns.watch = &store->watch;
    store->writer.reasons = &store->reasons;
    store->writer.worker = &store->writes;
    store->writer.own_txns = &store->own_txns;
    list_init(&store->writer.waiting);
    pthread_mutex_init(&store->own_txns.lock, NULL);
    list_init(&store->own_txns.under_way);
    store->writer.finished = store->own_txns.finished = &store->finished;
    for (size_t i = 0; i < READS; i++)
        store->readers[i].finished = &store->finished;
    struct pg_connection *first = &store->writer.lanes[0].connection;
    if (!pg_connection_open(first, why, why_size)) {
        dispose(store);
        return NULL;
    }
    /* A database that cannot be reached now is tried again; operations get STORE until then. */
    if (first->retry.reported) {
        store->finished.stats.state = STORE_FAILING;
        text_print(store->finished.stats.why, STORE_WHY_MAX, "%s", first->retry.why);
    }
    if (!start_workers(store, options)) {
        text_print(why, why_size, "cannot start the store's threads");
        close_store(&store->base);
        return NULL;
    }
    return &store->base;
}
