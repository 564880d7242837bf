/* SPDX-License-Identifier: Apache-2.0 */
/* Reads never wait for the writer, nor it for them (WAL); a read that fails fails alone. */
#include "store/sqlite/reader.h"

void reader_init(struct reader *reader, sqlite3 *db, const char *path, const struct log *log)
{
    *reader = (struct reader){.path = path, .log = log};
    transaction_init(&reader->txn, db, NULL);
}

void reader_free(struct reader *reader)
{
    transaction_free(&reader->txn);
}

static void note(struct reader *reader)
{
    int code = reader->txn.failed ? reader->txn.code : 0;

    if (code != 0 && code != reader->outage)
        log_error(reader->log, "store %s: a read failed: %s", reader->path, reader->txn.reason);
    reader->outage = code;
}

void reader_run(struct reader *reader, struct list *batch)
{
    struct transaction *txn = &reader->txn;

    txn->floor_known = false;
    txn->failed = false;
    (void)transaction_run(txn, STATEMENT_BEGIN_READ);
    for (struct list *at = batch->next; at != batch; at = at->next) {
        struct store_op *op = list_entry(at, struct store_op, link);
        op->error = txn->failed ? STK_STORE : op->run(op, &txn->base);
        if (txn->failed)
            op->error = STK_STORE;
        note(reader);
        /* A snapshot that SQLite gave up is gone for the rest of the batch too. */
        txn->failed = sqlite3_get_autocommit(txn->db) != 0;
    }
    transaction_settle(txn);
    if (sqlite3_get_autocommit(txn->db) == 0)
        (void)transaction_run(txn, STATEMENT_COMMIT);
}
