/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/writer.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/check.h"
#include "store/sqlite/anew.h"
#include "store/sqlite/db.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/operation.h"
#include "store/sqlite/reader.h"
#include "store/sqlite/schema.h"

/* Of each MB: 72 bytes for a name, and the rest for pages. */
enum { NAMES_PER_MB = 8192, PAGES_KB_PER_MB = 448 };

/* Readers that are not done keep the log from being saved. What is not acknowledged can wait. */
enum { SAVE_TRIES = 3, SAVE_TRIES_LOST = 300, SAVE_AGAIN_MS = 10 };

/* Less than a second: an idle daemon reads once a second, and each time looks what others wrote. */
enum { CATCH_UP_MS = 500 };

/* How a transaction over some operations ended. */
enum ended {
    ENDED_COMMITTED,
    ENDED_BUSY,      /* it would have had to wait; nothing was run */
    ENDED_REFUSED,   /* it could not begin; nothing was run */
    ENDED_FAILED,    /* the commit failed, and nothing is kept */
    ENDED_OPERATION, /* an operation failed, and nothing is kept */
    ENDED_LOST,
};

bool writer_init(struct writer *writer, sqlite3 *db, int cache_mb, const char *path,
                 const struct log *log, struct store_clock *clock)
{
    size_t names = NAMES_PER_MB;
    char pragma[64];

    while (names * 2 <= (size_t)cache_mb * NAMES_PER_MB)
        names *= 2;
    *writer = (struct writer){.path = path, .log = log};
    snprintf(pragma, sizeof pragma, "PRAGMA cache_size = -%d", cache_mb * PAGES_KB_PER_MB);
    return operations_init(&writer->txn, db, cache_new(names), clock) &&
           db_exec(db, pragma) == SQLITE_OK;
}

/* Called by SQLite after each commit. */
static int on_commit(void *context, sqlite3 *db, const char *name, int pages)
{
    struct writer *writer = context;

    (void)db, (void)name;
    checkpointer_on_commit(writer->checkpointer, pages, wal_vfs_repeats(writer->vfs));
    return SQLITE_OK;
}

void writer_open(struct writer *writer, struct checkpointer *checkpointer, struct files *files,
                 struct store_reasons *reasons, struct finished *finished)
{
    writer->vfs = wal_vfs_of(writer->txn.db);
    check(writer->vfs != NULL);
    writer->checkpointer = checkpointer;
    writer->files = files;
    writer->finished = finished;
    writer->txn.reasons = reasons;
    writer->waits = true; /* db_open said so */
    sqlite3_wal_hook(writer->txn.db, on_commit, writer);
}

static void set_waits(struct writer *writer, bool waits)
{
    if (writer->waits != waits)
        sqlite3_busy_timeout(writer->txn.db, waits ? DB_BUSY_TIMEOUT_MS : 0);
    writer->waits = waits;
}

/* Log a failure, once per outage, whatever the number of operations that meet it. Where the files
 * are not in place, that is why; it has been logged. */
static void note_failure(struct writer *writer, const char *doing)
{
    struct transaction *txn = &writer->txn;
    size_t len = strlen(txn->reason);

    if (!files_check(writer->files, txn->db) && files_why(writer->files, txn->reason)) {
        writer->outage = txn->code = SQLITE_READONLY;
        return;
    }
    if (txn->code == SQLITE_BUSY)
        snprintf(txn->reason + len, sizeof txn->reason - len,
                 " (another program holds the write lock)");
    if (writer->outage == txn->code)
        return;
    writer->outage = txn->code;
    log_error(writer->log, "store %s: %s failed: %s", writer->path, doing, txn->reason);
}

static void note_success(struct writer *writer)
{
    if (writer->outage != 0)
        log_info(writer->log, "store %s: writes succeed again", writer->path);
    writer->outage = 0;
}

/* Undo the transaction, and what is cached of it. False: SQLite would not even roll back. */
static bool roll_back(struct writer *writer)
{
    struct transaction *txn = &writer->txn;

    transaction_settle(txn);
    transaction_ended(txn);
    cache_undo(txn->cache, 0);
    guards_invalidate(txn->guards);
    txn->floor_known = false;
    if (sqlite3_get_autocommit(txn->db) == 0)
        (void)transaction_run(txn, STATEMENT_ROLLBACK);
    if (sqlite3_get_autocommit(txn->db) == 0)
        return false;
    wal_vfs_forget(writer->vfs);
    return true;
}

/* 1. Begin, and see what other programs have committed. */

/* Has another program moved what is in the file to another store? Then it is noted. */
static bool has_gone(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    int64_t closed = 0;

    if (transaction_number(txn, transaction_statement(txn, STATEMENT_CLOSED), &closed) != STK_OK)
        return true;
    if (closed == 0 || !schema_is_closed(txn->db, writer->path, txn->reason, sizeof txn->reason))
        return false;
    txn->code = SQLITE_READONLY;
    files_gone(writer->files, txn->reason);
    return true;
}

/* Learn the size of the file, which others have changed. False: SQLite failed. */
static bool measure(struct writer *writer)
{
    sqlite3 *db = writer->txn.db;
    int64_t pages = 0;

    if (db_int64(db, "PRAGMA page_size", &writer->page_size) != SQLITE_OK ||
        db_int64(db, "PRAGMA page_count", &pages) != SQLITE_OK) {
        (void)transaction_fail(&writer->txn);
        return false;
    }
    files_resized(writer->files, pages * writer->page_size);
    return true;
}

/* Has another program changed Stockade's own tables? Then it is noted. */
static bool is_harmed(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    const char *harm = guards_harm(txn->guards);

    if (harm == NULL)
        return false;
    txn->code = SQLITE_READONLY;
    snprintf(txn->reason, sizeof txn->reason, "%s", harm);
    return true;
}

static bool begin(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    int64_t version = 0;
    enum guards_news news = GUARDS_NO_NEWS;

    if ((files_stopped(writer->files) && !files_check(writer->files, txn->db)) ||
        !transaction_begin(txn, STATEMENT_BEGIN_WRITE, &version))
        return false;
    if (version != writer->data_version)
        news = GUARDS_FOREIGN;
    if (guards_check(txn, news) != STK_OK || is_harmed(writer))
        return false;
    if (news == GUARDS_NO_NEWS)
        return true;
    if (has_gone(writer) || !measure(writer))
        return false;
    writer->foreign_commits += writer->data_version != 0;
    cache_clear(txn->cache);
    txn->floor_known = false;
    if (transaction_follow_clock(txn) != STK_OK || anew_follow(txn, &writer->anew) != STK_OK)
        return false;
    /* In case it is rolled back it is looked at again. */
    writer->data_version = writer->anew.why == NULL ? version : 0;
    return true;
}

/* 2. Run one operation, and count its `changes`. False: the transaction cannot go on. */
static bool run_one(struct writer *writer, struct store_op *op, int64_t *changes)
{
    struct transaction *txn = &writer->txn;
    int64_t before = *changes;

    txn->touched = false;
    operation_run(txn, op);
    if (txn->failed) {
        note_failure(writer, "a statement");
        reasons_fail(txn->reasons, op, txn->reason);
        return false;
    }
    if (transaction_is_gone(txn)) {
        if (op->error == STK_OK)
            op->error = STK_ERR;
        return false;
    }
    *changes = transaction_changes(txn);
    return op->error == STK_OK || (!txn->touched && *changes == before);
}

/* 3. Check the files, commit, check the files again. Only what SQLite reports before it has written
 * the commit record is a clean failure; after anything else, the record may or may not be on disk.
 */
static enum ended commit(struct writer *writer, bool changed)
{
    struct transaction *txn = &writer->txn;
    struct store_clock_note note;
    bool noted = false;

    if (!files_check_writer(writer->files, txn->db)) {
        note_failure(writer, "a commit");
        return roll_back(writer) ? ENDED_REFUSED : ENDED_LOST;
    }
    if (changed && transaction_note_clock(txn, &note, &noted) != STK_OK) {
        writer->failed_commits++;
        note_failure(writer, "a statement");
        return roll_back(writer) ? ENDED_FAILED : ENDED_LOST;
    }
    int64_t began_us = store_clock_machine_us(txn->clock);
    bool committed = transaction_commit(txn) == STK_OK;
    if (changed)
        durations_add(&writer->commits_took, store_clock_machine_us(txn->clock) - began_us);
    if (committed) {
        if (noted)
            txn->clock->note = note;
        if (changed)
            files_resize(writer->files, wal_vfs_pages(writer->vfs) * writer->page_size);
        if (!files_check_writer(writer->files, txn->db) && !files_in_place(writer->files))
            return ENDED_LOST;
        writer->latest = true;
        writer->commits++;
        if (writer->anew.why != NULL)
            anew_tell(&writer->anew, writer->path, writer->log);
        if (changed)
            note_success(writer);
        return ENDED_COMMITTED;
    }
    writer->failed_commits++;
    note_failure(writer, "a commit");
    if (txn->code != SQLITE_FULL && txn->code != SQLITE_BUSY)
        return ENDED_LOST;
    return roll_back(writer) ? ENDED_FAILED : ENDED_LOST;
}

/* One transaction over the operations from `from` up to `end`, which is not run. `failed` is the
 * one with which it ended in ENDED_OPERATION. */
static enum ended run(struct writer *writer, struct list *from, struct list *end,
                      struct list **failed)
{
    struct transaction *txn = &writer->txn;

    if (!begin(writer)) {
        if (!writer->waits && writer->txn.code == SQLITE_BUSY)
            return roll_back(writer) ? ENDED_BUSY : ENDED_LOST;
        note_failure(writer, "the start of a transaction");
        return roll_back(writer) ? ENDED_REFUSED : ENDED_LOST;
    }
    set_waits(writer, true); /* what has begun is brought to its end */
    int64_t start = transaction_changes(txn), changes = start;
    struct cache_ahead ahead;
    cache_ahead_start(&ahead, txn->cache, from, end);
    for (struct list *at = from; at != end; at = at->next) {
        cache_ahead_step(&ahead);
        if (!run_one(writer, list_entry(at, struct store_op, link), &changes)) {
            *failed = at;
            return roll_back(writer) ? ENDED_OPERATION : ENDED_LOST;
        }
    }
    return commit(writer, changes != start);
}

static void fail_all(struct writer *writer, struct list *at, const struct list *end)
{
    for (; at != end; at = at->next)
        reasons_fail(writer->txn.reasons, list_entry(at, struct store_op, link),
                     writer->txn.reason);
}

/* Work off the operations in as few transactions as it takes. Unless it ends in ENDED_LOST or
 * ENDED_BUSY, each has its error then. */
static enum ended run_all(struct writer *writer, struct list *from, struct list *end)
{
    enum ended ended = ENDED_COMMITTED;

    while (from != end) {
        struct list *failed = NULL;
        ended = run(writer, from, end, &failed);
        if (ended == ENDED_LOST || ended == ENDED_BUSY)
            return ended;
        if (ended != ENDED_OPERATION) {
            if (ended != ENDED_COMMITTED)
                fail_all(writer, from, end);
            return ended;
        }
        bool by_store = writer->txn.failed, alone = failed == from;
        if (!alone)
            ended = run_all(writer, from, failed);
        if (ended == ENDED_LOST)
            return ended;
        /* It failed on top of what was not kept. */
        if (ended == ENDED_REFUSED || ended == ENDED_FAILED)
            fail_all(writer, failed, failed->next);
        if (ended == ENDED_REFUSED) { /* no use to wait for the lock again */
            fail_all(writer, failed, end);
            return ended;
        }
        from = by_store && !alone ? failed : failed->next;
    }
    return ended;
}

/* The files are not in place: saves what was acknowledged, before anybody is answered and before
 * the process ends. The answers say how that went. */
static void save(struct writer *writer, struct list *batch, bool lost)
{
    struct transaction *txn = &writer->txn;

    for (int i = 0; i < (lost ? SAVE_TRIES_LOST : SAVE_TRIES); i++)
        if (checkpointer_save(writer->checkpointer, txn->db))
            break;
        else
            sqlite3_sleep(SAVE_AGAIN_MS);
    (void)files_why(writer->files, txn->reason);
    for (struct list *at = batch->next; at != batch; at = at->next) {
        struct store_op *op = list_entry(at, struct store_op, link);
        if (op->error == STK_STORE)
            reasons_fail(txn->reasons, op, txn->reason);
    }
}

static void tell_guards(const struct guards *guards, struct store_stats *stats)
{
    const char *table, *flaw = guards_first_flaw(guards, &table);

    if (flaw != NULL)
        text_print(stats->guard, sizeof stats->guard, "the guard of table %s is broken: %s", table,
                   flaw);
    else
        stats->guard[0] = '\0';
}

/* 4. Hand the batch back. */
static void hand_back(struct writer *writer, struct list *batch, size_t count, bool inlined)
{
    struct store_stats *stats = finished_add(writer->finished, batch);
    bool fails = writer->outage != 0;

    if (fails || stats->state != STORE_FINE) {
        stats->state = fails ? STORE_FAILING : STORE_FINE;
        snprintf(stats->why, sizeof stats->why, "%s", fails ? writer->txn.reason : "");
    }
    tell_guards(writer->txn.guards, stats);
    stats->commits = writer->commits;
    stats->failed_commits = writer->failed_commits;
    stats->foreign_commits = writer->foreign_commits;
    stats->queued = writer->queued;
    stats->commits_took = writer->commits_took;
    stats->writes += count;
    if (count > stats->batch_writes_max)
        stats->batch_writes_max = count;
    finished_close(writer->finished, inlined);
}

/* Nobody is answered; the owner is woken to find out (store_lost). */
static enum work_result give_up(struct writer *writer)
{
    log_error(writer->log, "store %s: it is unknown whether the last writes are on disk",
              writer->path);
    atomic_store(&writer->lost, true);
    if (writer->finished->wake != NULL)
        writer->finished->wake(writer->finished->context);
    return WORK_OVER;
}

/* How long each has waited; those that came in together are counted together. */
static void count_queued(struct writer *writer, const struct list *batch)
{
    int64_t now_us = store_clock_machine_us(writer->txn.clock), submitted_us = now_us;
    uint64_t count = 0;

    for (struct list *at = batch->next; at != batch; at = at->next, count++) {
        const struct store_op *op = list_entry(at, struct store_op, link);
        if (op->submitted_us == submitted_us)
            continue;
        durations_add_many(&writer->queued, now_us - submitted_us, count);
        submitted_us = op->submitted_us;
        count = 0;
    }
    durations_add_many(&writer->queued, now_us - submitted_us, count);
}

/* Another program has the write lock. */
static void note_locked(struct list *batch)
{
    for (struct list *at = batch->next; at != batch; at = at->next)
        list_entry(at, struct store_op, link)->found_locked = true;
}

enum work_result writer_work(void *context, struct list *batch, size_t count, bool inlined)
{
    struct writer *writer = context;

    check(!list_empty(batch));
    if (checkpointer_lost(writer->checkpointer))
        return give_up(writer);
    if (inlined && checkpointer_has_rest(writer->checkpointer))
        return WORK_LATER;
    count_queued(writer, batch);
    atomic_store(&writer->busy, true);
    set_waits(writer, false);
    enum ended ended = run_all(writer, batch->next, batch);
    if (ended == ENDED_BUSY)
        note_locked(batch);
    if (ended == ENDED_BUSY && !inlined) {
        set_waits(writer, true);
        ended = run_all(writer, batch->next, batch);
    }
    atomic_store(&writer->busy, false);
    if (files_stopped(writer->files))
        save(writer, batch, ended == ENDED_LOST);
    if (ended == ENDED_LOST)
        return give_up(writer);
    if (ended == ENDED_BUSY)
        return WORK_LATER;
    hand_back(writer, batch, count, inlined);
    return WORK_DONE;
}

void writer_between(void *context)
{
    struct writer *writer = context;
    checkpointer_copy_rest(writer->checkpointer, writer->txn.db);
}

/* Reads, between two batches of writes. */

/* Look for what others have committed since the last write, so that a guard that they broke is
 * logged now. All the rest is left to the next write; nothing is changed. */
static void catch_up(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    int64_t now_ms = store_clock_now_ms(txn->clock), version = 0;

    if (now_ms - writer->caught_up_ms < CATCH_UP_MS)
        return;
    writer->caught_up_ms = now_ms;
    set_waits(writer, false);
    if (transaction_begin(txn, STATEMENT_BEGIN_READ, &version) && version != writer->data_version &&
        !has_gone(writer))
        (void)guards_check(txn, GUARDS_FOREIGN);
    (void)roll_back(writer);
}

/* Begin to read. False: the file is not as the writer knows it, or SQLite failed. */
static bool begin_read(struct writer *writer)
{
    int64_t version = 0;

    writer->latest = transaction_begin(&writer->txn, STATEMENT_BEGIN_READ, &version) &&
                     version == writer->data_version;
    return writer->latest;
}

/* SQLite ends the transaction where the disk fails. What is read after that begins another one, or
 * fails for the same reason. */
static void begin_read_again(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    char why[sizeof txn->reason];
    int code = txn->code;

    memcpy(why, txn->reason, sizeof why);
    transaction_ended(txn);
    if (begin_read(writer))
        return;
    (void)roll_back(writer);
    txn->failed = true;
    txn->code = code;
    memcpy(txn->reason, why, sizeof why);
}

bool writer_read(struct writer *writer, struct list *batch)
{
    struct transaction *txn = &writer->txn;

    if (files_broken(writer->files))
        return false;
    if (!writer->latest) {
        catch_up(writer);
        return false;
    }
    set_waits(writer, false);
    bool reads = begin_read(writer);
    struct cache_ahead ahead;
    cache_ahead_start(&ahead, txn->cache, batch->next, batch);
    if (reads)
        for (struct list *at = batch->next; at != batch; at = at->next) {
            cache_ahead_step(&ahead);
            txn->failed = false;
            if (sqlite3_get_autocommit(txn->db) != 0)
                begin_read_again(writer);
            reader_answer(txn, list_entry(at, struct store_op, link), &writer->read_outage,
                          writer->path, writer->log);
        }
    if (!reads || transaction_commit(txn) != STK_OK)
        (void)roll_back(writer);
    return reads;
}

bool writer_stop_clock(struct writer *writer)
{
    struct store_clock_note note;

    set_waits(writer, false);
    if (!store_clock_due(writer->txn.clock, &note))
        return true;
    return begin(writer) ? commit(writer, true) != ENDED_LOST : roll_back(writer);
}

void writer_free(struct writer *writer)
{
    operations_free(&writer->txn);
    cache_free(writer->txn.cache);
    check(db_close(writer->txn.db) == SQLITE_OK); /* no statement is forgotten */
}
