/* SPDX-License-Identifier: Apache-2.0 */
#include "store/sqlite/reader.h"

#include "store/sqlite/operation.h"

enum { NAMES_REMEMBERED = 1 << 19 }; /* at most 36 MB, and long names */

bool reader_init(struct reader *reader, sqlite3 *db, bool remembers, struct files *files,
                 struct store_reasons *reasons, const char *path, const struct log *log,
                 struct store_clock *clock)
{
    *reader = (struct reader){.files = files, .path = path, .log = log};
    if (!operations_init(&reader->txn, db, NULL, clock))
        return false;
    reader->txn.reasons = reasons;
    reader->txn.names = remembers ? cache_new(NAMES_REMEMBERED) : NULL;
    return true;
}

void reader_free(struct reader *reader)
{
    operations_free(&reader->txn);
    cache_free(reader->txn.names);
}

void reader_answer(struct transaction *txn, struct store_op *op, int *outage, const char *path,
                   const struct log *log)
{
    if (!txn->failed)
        operation_run(txn, op);
    if (txn->failed)
        reasons_fail(txn->reasons, op, txn->reason);
    int code = txn->failed ? txn->code : 0;
    if (code != 0 && code != *outage)
        log_error(log, "store %s: a read failed: %s", path, txn->reason);
    *outage = code;
}

static void run_one(struct reader *reader, struct store_op *op)
{
    struct transaction *txn = &reader->txn;

    txn->failed = false;
    if (sqlite3_get_autocommit(txn->db) != 0) {
        transaction_ended(txn);
        txn->floor_known = false;
        (void)transaction_begin(txn, STATEMENT_BEGIN_READ, NULL);
    }
    reader_answer(txn, op, &reader->outage, reader->path, reader->log);
}

/* Where SQLite does not end a read transaction by a COMMIT, it has to be rolled back: what comes
 * next would see the past. False: not even that. */
static bool end(struct transaction *txn)
{
    transaction_settle(txn);
    if (sqlite3_get_autocommit(txn->db) == 0)
        (void)transaction_commit(txn);
    if (sqlite3_get_autocommit(txn->db) == 0)
        (void)transaction_run(txn, STATEMENT_ROLLBACK);
    transaction_ended(txn);
    return sqlite3_get_autocommit(txn->db) != 0;
}

static void fail_all(struct reader *reader, struct list *batch, const char *why)
{
    for (struct list *at = batch->next; at != batch; at = at->next)
        reasons_fail(reader->txn.reasons, list_entry(at, struct store_op, link), why);
}

void reader_run(struct reader *reader, struct list *batch)
{
    struct transaction *txn = &reader->txn;
    struct cache_ahead ahead;
    char why[STORE_WHY_MAX];

    if (files_broken(reader->files) && files_why(reader->files, why)) {
        fail_all(reader, batch, why);
        return;
    }
    if (!end(txn)) { /* the last time, it did not succeed */
        fail_all(reader, batch, txn->reason);
        return;
    }
    cache_ahead_start(&ahead, txn->names, batch->next, batch);
    for (struct list *at = batch->next; at != batch; at = at->next) {
        cache_ahead_step(&ahead);
        run_one(reader, list_entry(at, struct store_op, link));
    }
    (void)end(txn);
}
