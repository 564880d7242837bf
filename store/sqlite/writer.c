/* SPDX-License-Identifier: Apache-2.0 */
/* Group commit, and what to believe where it fails. */
#include "store/sqlite/writer.h"

#include <stdio.h>

#include "fence/base/check.h"

/* How a transaction over some operations ended. */
enum ended {
    ENDED_COMMITTED,
    ENDED_REFUSED,   /* it could not begin; nothing was run */
    ENDED_FAILED,    /* the commit failed, and nothing is kept */
    ENDED_OPERATION, /* an operation failed, and nothing is kept; its `error` says why */
    ENDED_LOST,
};

void writer_init(struct writer *writer, sqlite3 *db, const char *path, const struct log *log)
{
    *writer = (struct writer){.path = path, .log = log};
    transaction_init(&writer->txn, db, cache_new());
}

void writer_free(struct writer *writer)
{
    transaction_free(&writer->txn);
    cache_free(writer->txn.cache);
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

static void forget(struct writer *writer)
{
    cache_clear(writer->txn.cache);
    writer->txn.floor_known = false;
}

/* False: SQLite would not even roll back. */
static bool roll_back(struct writer *writer)
{
    struct transaction *txn = &writer->txn;

    transaction_settle(txn);
    forget(writer);
    if (sqlite3_get_autocommit(txn->db) == 0)
        (void)transaction_run(txn, STATEMENT_ROLLBACK);
    return sqlite3_get_autocommit(txn->db) != 0;
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

static bool begin(struct writer *writer)
{
    struct transaction *txn = &writer->txn;
    int64_t version = 0;

    txn->failed = false;
    if (file_is_gone(txn) || transaction_run(txn, STATEMENT_BEGIN_WRITE) != STK_OK)
        return false;
    sqlite3_stmt *stmt = transaction_statement(txn, STATEMENT_DATA_VERSION);
    if (stmt == NULL || transaction_number(txn, stmt, &version) != STK_OK)
        return false;
    if (version != writer->data_version) {
        writer->foreign_commits += writer->data_version != 0;
        writer->data_version = version;
        forget(writer);
    }
    return true;
}

/* Commits. Only what SQLite reports before it has written the commit record is a clean failure;
 * after anything else, the record may or may not be on disk. */
static enum ended commit(struct writer *writer, bool changed)
{
    struct transaction *txn = &writer->txn;

    transaction_settle(txn);
    if (transaction_run(txn, STATEMENT_COMMIT) == STK_OK) {
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

/* One transaction over the operations from `at` up to `end`, which is not run. */
static enum ended run(struct writer *writer, struct list *at, const struct list *end)
{
    struct transaction *txn = &writer->txn;

    if (!begin(writer)) {
        note_failure(writer, "the start of a transaction");
        return roll_back(writer) ? ENDED_REFUSED : ENDED_LOST;
    }
    int64_t start = sqlite3_total_changes64(txn->db);
    for (; at != end; at = at->next) {
        struct store_op *op = list_entry(at, struct store_op, link);
        int64_t before = sqlite3_total_changes64(txn->db);
        op->error = op->run(op, &txn->base);
        if (txn->failed)
            op->error = STK_STORE;
        if (op->error == STK_OK || (!txn->failed && sqlite3_total_changes64(txn->db) == before))
            continue;
        if (txn->failed)
            note_failure(writer, "a statement");
        return roll_back(writer) ? ENDED_OPERATION : ENDED_LOST;
    }
    return commit(writer, sqlite3_total_changes64(txn->db) != start);
}

static void fail_all(struct list *at, const struct list *end)
{
    for (; at != end; at = at->next)
        list_entry(at, struct store_op, link)->error = STK_STORE;
}

static enum writer_outcome run_one_by_one(struct writer *writer, struct list *batch)
{
    for (struct list *at = batch->next; at != batch; at = at->next) {
        enum ended ended = run(writer, at, at->next);
        if (ended == ENDED_LOST)
            return WRITER_LOST;
        if (ended == ENDED_FAILED)
            fail_all(at, at->next);
        if (ended == ENDED_REFUSED) { /* no use to wait for the lock once for each */
            fail_all(at, batch);
            break;
        }
    }
    return WRITER_DONE;
}

enum writer_outcome writer_run(struct writer *writer, struct list *batch)
{
    check(!list_empty(batch));
    switch (run(writer, batch->next, batch)) {
    case ENDED_COMMITTED: return WRITER_DONE;
    case ENDED_LOST: return WRITER_LOST;
    case ENDED_OPERATION:
        return batch->next->next == batch ? WRITER_DONE : run_one_by_one(writer, batch);
    case ENDED_REFUSED:
    case ENDED_FAILED: break;
    }
    fail_all(batch->next, batch);
    return WRITER_DONE;
}
