/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/apart.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/postgresql/load.h"
#include "store/postgresql/operation.h"

enum { TRIES = 5, POLL_MS = 5 };

/* An operation under way, and the resources that it is about. */
struct apart_op {
    struct list link;
    const struct store_op *op;
    struct buf names; /* each with its length before */
};

struct apart_op *apart_op_new(struct pg_txn *txn)
{
    struct apart_op *apart_op = mem_zalloc(sizeof *apart_op);

    for (const struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (row->asked_by != txn->number)
            continue;
        buf_append(&apart_op->names, &row->name.len, sizeof row->name.len);
        buf_append_bytes(&apart_op->names, row->name);
    }
    return apart_op;
}

void apart_op_free(struct apart_op *apart_op)
{
    buf_free(&apart_op->names);
    free(apart_op);
}

bool apart_submit(struct apart *apart, struct store_op *op, struct apart_op *apart_op)
{
    apart_op->op = op;
    pthread_mutex_lock(&apart->lock);
    list_append(&apart->under_way, &apart_op->link);
    pthread_mutex_unlock(&apart->lock);
    if (worker_submit(&apart->worker, op) == STK_OK) {
        (void)worker_flush(&apart->worker);
        return true;
    }
    pthread_mutex_lock(&apart->lock);
    list_remove(&apart_op->link);
    pthread_mutex_unlock(&apart->lock);
    apart_op_free(apart_op);
    return false;
}

void apart_set_busy(struct apart *apart, struct set *set)
{
    pthread_mutex_lock(&apart->lock);
    for (struct list *at = apart->under_way.next; at != &apart->under_way; at = at->next) {
        const struct apart_op *apart_op = list_entry(at, const struct apart_op, link);
        const struct buf *names = &apart_op->names;
        for (size_t name = 0, len; name < names->len; name += len) {
            memcpy(&len, names->data + name, sizeof len);
            name += sizeof len;
            set_row(set, (struct bytes){names->data + name, len})->busy = true;
        }
    }
    pthread_mutex_unlock(&apart->lock);
}

static void is_back(struct apart *apart, const struct store_op *op)
{
    pthread_mutex_lock(&apart->lock);
    for (struct list *at = apart->under_way.next; at != &apart->under_way; at = at->next) {
        struct apart_op *apart_op = list_entry(at, struct apart_op, link);
        if (apart_op->op != op)
            continue;
        list_remove(at);
        apart_op_free(apart_op);
        break;
    }
    pthread_mutex_unlock(&apart->lock);
}

/* Between two looks at something that others have to end. */
static void pause_for(int ms)
{
    const struct timespec time = {.tv_nsec = ms * 1000000L};
    (void)nanosleep(&time, NULL);
}

static void fail_queued(struct pg_connection *connection, struct worker *worker,
                        struct finished *finished)
{
    struct list batch;

    if (worker_take(worker, &batch) == 0)
        return;
    for (struct list *at = batch.next; at != &batch; at = at->next)
        pg_connection_fail_op(connection, list_entry(at, struct store_op, link));
    (void)finished_add(finished, &batch);
    finished_close(finished, false);
}

/* Nobody is answered: the owner ends the process. */
static void lose(const struct pg_connection *connection, struct worker *worker,
                 struct finished *finished)
{
    log_error(connection->log,
              "store %s: the outcome of a commit will never be known: it was in doubt "
              "for too long",
              connection->pg.name);
    if (finished->wake != NULL)
        finished->wake(finished->context);
    while (!worker_stopping(worker))
        pause_for(POLL_MS);
}

enum pg_ended pg_find_out(struct pg_connection *connection, struct worker *worker,
                          struct finished *finished, int64_t mark)
{
    enum pg_ended ended = PG_UNKNOWN;
    struct pg *pg = &connection->pg;
    char why[STORE_WHY_MAX];

    text_print(why, sizeof why, "%s", pg->why);
    log_warn(connection->log, "store %s: the outcome of a commit is unknown (%s); finding it out",
             pg->name, why);
    while (!worker_stopping(worker)) {
        if (pg_connection_ready(connection))
            ended = pg_outcome(&connection->txn, mark);
        if (ended != PG_UNKNOWN)
            break;
        if (atomic_load(&connection->txn.shared->lost)) {
            lose(connection, worker, finished);
            break;
        }
        pg_connection_failed(connection);
        fail_queued(connection, worker, finished);
        pause_for(POLL_MS);
    }
    if (ended != PG_UNKNOWN) {
        log_info(connection->log, "store %s: that commit is %s", pg->name,
                 ended == PG_COMMITTED ? "there" : "not there, and is done again");
        text_print(pg->why, sizeof pg->why, "%s", why); /* of what is not there */
    }
    return ended;
}

/* Run it in a transaction, which is left open where it went well. */
static void run_once(struct apart *apart, struct store_op *op, bool floor)
{
    struct pg_txn *txn = &apart->connection.txn;

    set_clear(&txn->set);
    txn->kind = op->writes ? PG_ALONE : PG_READS;
    txn->direct = true;
    txn->has_floor = floor;
    txn->wrote = false;
    txn->stop = PG_ON;
    if (floor && !pg_begin_floor(txn)) {
        txn->stop = PG_FAILED;
        return;
    }
    pg_operation_run(txn, op, 1);
}

/* One attempt, from the connection to the commit. True: op->error is the answer, which costs nobody
 * more than one trip's limit. */
static bool attempt(struct apart *apart, struct store_op *op, bool *floor)
{
    struct pg_connection *connection = &apart->connection;
    struct pg_txn *txn = &connection->txn;

    if (!pg_connection_ready(connection)) {
        pg_connection_fail_op(connection, op);
        return true;
    }
    run_once(apart, op, *floor);
    if (txn->differs != PG_SAME)
        txn->stop = PG_FAILED;
    if (txn->stop == PG_ON && op->error == STK_OK && txn->begun && !txn->broken) {
        enum pg_ended ended = pg_commit(txn);
        if (ended == PG_UNKNOWN)
            ended = pg_find_out(connection, &apart->worker, apart->finished, txn->mark);
        if (ended == PG_COMMITTED) {
            pg_watch_notify(apart->watch, &txn->set);
            pg_connection_works(connection);
            return true;
        }
        if (ended == PG_UNKNOWN) { /* and nobody will know any more: it is not done again */
            pg_roll_back(txn);
            pg_connection_note(connection);
            pg_connection_fail_op(connection, op);
            return true;
        }
        txn->stop = PG_FAILED;
    }
    enum pg_stop stop = txn->stop;
    if (stop == PG_LOCKED && blockers_concern(op))
        pg_watch_locked(apart->watch, &txn->set);
    pg_roll_back(txn);
    if (stop == PG_ON)
        return true;
    *floor |= stop == PG_FLOOR;
    if (stop == PG_FAILED) {
        pg_connection_note(connection);
        pg_connection_fail_op(connection, op);
    }
    if (stop == PG_LOCKED)
        blockers_fail(&apart->watch->blockers, connection->reasons, op);
    return stop == PG_FAILED && txn->pg->conn == NULL && txn->pg->timed_out;
}

static void run(struct apart *apart, struct store_op *op)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic), until_ms = now_ms + BLOCKERS_WAIT_MS;
    bool floor = false;

    op->waits_since_ms = now_ms;
    for (int tries = 0; tries < TRIES && !attempt(apart, op, &floor); tries++) {
        if (apart->connection.txn.stop != PG_LOCKED)
            continue;
        if (clock_now_ms(&clock_monotonic) >= until_ms || worker_stopping(&apart->worker))
            break;
        tries--;
        pause_for(POLL_MS);
    }
    if (apart->connection.txn.stop == PG_FAILED)
        pg_connection_failed(&apart->connection);
}

enum work_result apart_work(void *context, struct list *batch, size_t count, bool inlined)
{
    struct apart *apart = context;

    (void)inlined;
    for (struct list *at = batch->next; at != batch; at = at->next) {
        struct store_op *op = list_entry(at, struct store_op, link);
        run(apart, op);
        is_back(apart, op);
    }
    (void)count; /* the writer has counted them */
    (void)finished_add(apart->finished, batch);
    finished_close(apart->finished, false);
    return WORK_DONE;
}
