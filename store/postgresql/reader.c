/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/reader.h"

#include <string.h>

#include "fence/base/check.h"
#include "store/postgresql/load.h"
#include "store/postgresql/operation.h"
#include "store/postgresql/sql.h"

enum { TRIES = 3 };

/* Run the operations of the batch. Those that were answered move to `done`; the others, which miss
 * something, stay. False: the server failed. */
static bool run(struct pg_txn *txn, struct list *batch, struct list *done)
{
    struct list open;
    struct list *link;

    list_init(&open);
    while ((link = list_pop(batch)) != NULL) {
        struct store_op *op = list_entry(link, struct store_op, link);
        pg_operation_run(txn, op, 1);
        list_append(txn->stop == PG_ON ? done : &open, link);
        if (txn->stop == PG_FAILED)
            break;
    }
    list_splice(&open, batch);
    list_splice(batch, &open);
    return txn->stop != PG_FAILED;
}

/* Answer from a snapshot that ends with the trip that reads it, which is enough for most
 * operations. False: the server failed. */
static bool run_at_once(struct pg_txn *txn, struct list *batch, struct list *done)
{
    for (struct list *at = batch->next; at != batch; at = at->next)
        set_hint(&txn->set, list_entry(at, const struct store_op, link));
    txn->direct = false;
    return pg_load_all(txn) && txn->differs == PG_SAME && run(txn, batch, done);
}

/* Answer the others from a snapshot that is kept until all is read. The rows that the first
 * snapshot has shown are read again. */
static bool run_rounds(struct pg_txn *txn, struct list *batch, struct list *done)
{
    struct buf names = {0};
    bool good = true;
    size_t len;

    for (struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        buf_append(&names, &row->name.len, sizeof row->name.len);
        buf_append_bytes(&names, row->name);
    }
    set_clear(&txn->set);
    for (size_t at = 0; at < names.len; at += len) {
        memcpy(&len, names.data + at, sizeof len);
        at += sizeof len;
        set_want(&set_row(&txn->set, (struct bytes){names.data + at, len})->known);
    }
    buf_free(&names);
    for (int rounds = 0; good && !list_empty(batch); rounds++) {
        txn->direct = rounds > 0;
        good = pg_load(txn) && txn->differs == PG_SAME && run(txn, batch, done);
    }
    return good && pg_commit(txn) == PG_COMMITTED;
}

static bool attempt(struct pg_connection *connection, struct list *batch, struct list *done)
{
    struct pg_txn *txn = &connection->txn;
    struct list answered;

    if (!pg_connection_ready(connection))
        return false;
    set_clear(&txn->set);
    txn->kind = PG_READS;
    if (!run_at_once(txn, batch, done)) {
        pg_roll_back(txn);
        pg_connection_note(connection);
        return false;
    }
    list_init(&answered);
    pg_sql_make_ready(txn);
    if (!list_empty(batch) && !run_rounds(txn, batch, &answered)) {
        list_splice(&answered, batch); /* what they were told may not be replicated */
        list_splice(batch, &answered);
        pg_roll_back(txn);
        pg_connection_note(connection);
        return false;
    }
    list_splice(done, &answered);
    set_clear(&txn->set);
    pg_connection_works(connection);
    return true;
}

enum work_result pg_reader_work(void *context, struct list *batch, size_t count, bool inlined)
{
    struct pg_reader *reader = context;
    struct list done;
    int64_t start_us = clock_now_us(&clock_monotonic);
    bool good = false;

    (void)inlined;
    list_init(&done);
    reader->connection.pg.timed_out = false;
    for (int tries = 0; !good && tries < TRIES && !reader->connection.pg.timed_out; tries++)
        good = attempt(&reader->connection, batch, &done);
    if (!good)
        pg_connection_failed(&reader->connection);
    for (struct list *at = batch->next; at != batch; at = at->next)
        pg_connection_fail_op(&reader->connection, list_entry(at, struct store_op, link));
    list_splice(&done, batch);
    struct store_stats *stats = finished_add(reader->finished, &done);
    stats->reads += count;
    stats->read_batches++;
    if (good)
        durations_add(&stats->barriers, clock_now_us(&clock_monotonic) - start_us);
    finished_close(reader->finished, false);
    return WORK_DONE;
}
