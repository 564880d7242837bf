/* SPDX-License-Identifier: Apache-2.0 */
/* Group commit, and what to believe where it fails. */
#include "store/sqlite/writer.h"

#include <stdio.h>

#include "fence/base/check.h"
#include "store/sqlite/ahead.h"
#include "store/sqlite/db.h"
#include "store/sqlite/guards.h"
#include "store/sqlite/reader.h"

/* Of each MB: 72 bytes for a name, and the rest for pages. */
enum { NAMES_PER_MB = 8192, PAGES_KB_PER_MB = 448 };

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
    return transaction_init(&writer->txn, db, cache_new(names), clock) &&
           db_exec(db, pragma) == SQLITE_OK;
}

/* Called by SQLite after each commit. */
static int note_wal(void *context, sqlite3 *db, const char *name, int pages)
{
    struct writer *writer = context;

    (void)db, (void)name;
    checkpointer_note(writer->checkpointer, pages, wal_join_repeats(writer->join));
    return SQLITE_OK;
}

void writer_open(struct writer *writer, struct checkpointer *checkpointer)
{
    writer->join = wal_join_attach(writer->txn.db);
    check(writer->join != NULL);
    writer->checkpointer = checkpointer;
    writer->waits = true; /* db_open said so */
    sqlite3_wal_hook(writer->txn.db, note_wal, writer);
}

bool writer_start_clock(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    bool started = transaction_begin(txn, STATEMENT_BEGIN_WRITE) &&
                   transaction_resume_clock(txn, true) == STK_OK &&
                   transaction_run(txn, STATEMENT_COMMIT) == STK_OK;

    transaction_ended(txn);
    return started;
}

static void set_waits(struct writer *writer, bool waits)
{
    if (writer->waits != waits)
        sqlite3_busy_timeout(writer->txn.db, waits ? DB_BUSY_TIMEOUT_MS : 0);
    writer->waits = waits;
}

void writer_free(struct writer *writer)
{
    transaction_free(&writer->txn);
    cache_free(writer->txn.cache);
    check(sqlite3_close(writer->txn.db) == SQLITE_OK); /* no statement is forgotten */
    wal_join_free(writer->join);
}

/* Once per outage, whatever the number of operations that meet it. */
static void note_failure(struct writer *writer, const char *doing)
{
    const struct transaction *txn = &writer->txn;

    if (writer->outage == txn->code)
        return;
    writer->outage = txn->code;
    log_error(writer->log, "store %s: %s failed: %s%s", writer->path, doing, txn->reason,
              txn->code == SQLITE_BUSY ? " (another program holds the write lock)" : "");
}

static void note_success(struct writer *writer)
{
    if (writer->outage != 0)
        log_info(writer->log, "store %s: writes succeed again", writer->path);
    writer->outage = 0;
}

/* False: SQLite would not even roll back. */
static bool roll_back(struct writer *writer)
{
    struct transaction *txn = &writer->txn;

    transaction_settle(txn);
    transaction_ended(txn);
    cache_undo(txn->cache, 0);
    guards_doubt(txn->guards);
    txn->floor_known = false;
    if (sqlite3_get_autocommit(txn->db) == 0)
        (void)transaction_run(txn, STATEMENT_ROLLBACK);
    if (sqlite3_get_autocommit(txn->db) == 0)
        return false;
    wal_join_forget(writer->join);
    return true;
}

/* Writing on into a file that has no name any more would lose what is acknowledged. */
static bool file_is_gone(struct transaction *txn)
{
    int moved = 0;

    if (sqlite3_file_control(txn->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK ||
        moved == 0)
        return false;
    txn->code = SQLITE_READONLY;
    snprintf(txn->reason, sizeof txn->reason, "the file was moved or deleted; restart to go on");
    return true;
}

static bool read_version(struct transaction *txn, int64_t *version)
{
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_DATA_VERSION);
    return stmt != NULL && transaction_number(txn, stmt, version) == STK_OK;
}

static bool begin(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    int64_t version = 0;
    enum guards_news news = GUARDS_NO_NEWS;

    if (file_is_gone(txn) || !transaction_begin(txn, STATEMENT_BEGIN_WRITE) ||
        !read_version(txn, &version))
        return false;
    if (version != writer->data_version) {
        writer->foreign_commits += writer->data_version != 0;
        writer->data_version = version;
        cache_clear(txn->cache);
        txn->floor_known = false;
        news = GUARDS_FOREIGN;
        if (transaction_resume_clock(txn, false) != STK_OK)
            return false;
    }
    return guards_look(txn, news) == STK_OK;
}

/* Commits. Only what SQLite reports before it has written the commit record is a clean failure;
 * after anything else, the record may or may not be on disk. */
static enum ended commit(struct writer *writer, bool changed)
{
    struct transaction *txn = &writer->txn;
    struct store_clock_note note;
    bool noted = false;

    transaction_settle(txn);
    if (changed && transaction_note_clock(txn, &note, &noted) != STK_OK) {
        writer->failed_commits++;
        note_failure(writer, "a statement");
        return roll_back(writer) ? ENDED_FAILED : ENDED_LOST;
    }
    if (transaction_run(txn, STATEMENT_COMMIT) == STK_OK) {
        if (noted)
            txn->clock->note = note;
        transaction_ended(txn);
        cache_commit(txn->cache);
        writer->latest = true;
        writer->commits++;
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

/* Runs the operation, and says whether the transaction can go on. */
static bool run_one(struct writer *writer, struct store_op *op)
{
    struct transaction *txn = &writer->txn;
    int64_t before = transaction_changes(txn);

    txn->touched = false;
    op->error = op->run(op, &txn->base);
    transaction_leave(txn);
    if (txn->failed) {
        op->error = STK_STORE;
        note_failure(writer, "a statement");
        return false;
    }
    if (transaction_is_gone(txn)) {
        if (op->error == STK_OK)
            op->error = STK_ERR;
        return false;
    }
    return op->error == STK_OK || (!txn->touched && transaction_changes(txn) == before);
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
    int64_t start = transaction_changes(txn);
    struct ahead ahead;
    ahead_start(&ahead, txn->cache, from, end);
    for (struct list *at = from; at != end; at = at->next) {
        ahead_step(&ahead);
        if (!run_one(writer, list_entry(at, struct store_op, link))) {
            *failed = at;
            return roll_back(writer) ? ENDED_OPERATION : ENDED_LOST;
        }
    }
    return commit(writer, transaction_changes(txn) != start);
}

static void fail_all(struct list *at, const struct list *end)
{
    for (; at != end; at = at->next)
        list_entry(at, struct store_op, link)->error = STK_STORE;
}

/* Works off the operations in as few transactions as it takes. Anything but ENDED_LOST: each has
 * its error. */
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
                fail_all(from, end);
            return ended;
        }
        bool by_store = writer->txn.failed, alone = failed == from;
        if (!alone)
            ended = run_all(writer, from, failed);
        if (ended == ENDED_LOST)
            return ended;
        /* It failed on top of what was not kept. */
        if (ended == ENDED_REFUSED || ended == ENDED_FAILED)
            fail_all(failed, failed->next);
        if (ended == ENDED_REFUSED) { /* no use to wait for the lock again */
            fail_all(failed, end);
            return ended;
        }
        from = by_store && !alone ? failed : failed->next;
    }
    return ended;
}

enum writer_outcome writer_run(struct writer *writer, struct list *batch, bool may_wait)
{
    check(!list_empty(batch));
    if (checkpointer_lost(writer->checkpointer))
        return WRITER_LOST;
    if (!may_wait && checkpointer_wants(writer->checkpointer))
        return WRITER_BUSY;
    set_waits(writer, may_wait);
    switch (run_all(writer, batch->next, batch)) {
    case ENDED_LOST: return WRITER_LOST;
    case ENDED_BUSY: return WRITER_BUSY;
    default: return WRITER_DONE;
    }
}

bool writer_read(struct writer *writer, struct list *batch)
{
    struct transaction *txn = &writer->txn;
    int64_t version = 0;

    if (!writer->latest)
        return false;
    set_waits(writer, false);
    bool reads = transaction_begin(txn, STATEMENT_BEGIN_READ) && read_version(txn, &version) &&
                 version == writer->data_version;
    writer->latest = reads;
    struct ahead ahead;
    ahead_start(&ahead, txn->cache, batch->next, batch);
    if (reads)
        for (struct list *at = batch->next; at != batch; at = at->next) {
            ahead_step(&ahead);
            txn->failed = false;
            reader_answer(txn, list_entry(at, struct store_op, link), &writer->read_outage,
                          writer->path, writer->log);
        }
    transaction_settle(txn);
    if (reads && transaction_run(txn, STATEMENT_COMMIT) == STK_OK) {
        transaction_ended(txn);
        cache_commit(txn->cache);
    } else {
        (void)roll_back(writer);
    }
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

void writer_tidy(struct writer *writer)
{
    checkpointer_tidy(writer->checkpointer, writer->txn.db);
}
