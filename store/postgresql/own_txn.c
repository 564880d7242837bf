/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/own_txn.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/postgresql/load.h"
#include "store/postgresql/operation.h"

enum {
    TRIES = 5,
    POLL_MS = 5,
    PATIENCE_DIVISOR = 5, /* a server that is back this soon has cost nobody an operation: this part
                             of what an answer may take */
};

/* An operation under way, and the resources that it is about. */
struct own_txn_op {
    struct list link;
    const struct store_op *op;
    struct buf names; /* each with its length before */
};

struct own_txn_op *own_txn_op_new(struct pg_txn *txn)
{
    struct own_txn_op *own_op = mem_zalloc(sizeof *own_op);

    for (const struct list *at = txn->set.rows.next; at != &txn->set.rows; at = at->next) {
        const struct row *row = list_entry(at, const struct row, link);
        if (row->asked_by != txn->number)
            continue;
        buf_append(&own_op->names, &row->name.len, sizeof row->name.len);
        buf_append_bytes(&own_op->names, row->name);
    }
    return own_op;
}

void own_txn_op_free(struct own_txn_op *own_op)
{
    buf_free(&own_op->names);
    free(own_op);
}

bool own_txn_submit(struct own_txns *own_txns, struct store_op *op, struct own_txn_op *own_op)
{
    own_op->op = op;
    pthread_mutex_lock(&own_txns->lock);
    list_append(&own_txns->under_way, &own_op->link);
    pthread_mutex_unlock(&own_txns->lock);
    if (worker_submit(&own_txns->worker, op) == STK_OK) {
        (void)worker_flush(&own_txns->worker);
        return true;
    }
    pthread_mutex_lock(&own_txns->lock);
    list_remove(&own_op->link);
    pthread_mutex_unlock(&own_txns->lock);
    own_txn_op_free(own_op);
    return false;
}

void own_txn_set_busy(struct own_txns *own_txns, struct set *set)
{
    pthread_mutex_lock(&own_txns->lock);
    for (struct list *at = own_txns->under_way.next; at != &own_txns->under_way; at = at->next) {
        const struct own_txn_op *own_op = list_entry(at, const struct own_txn_op, link);
        const struct buf *names = &own_op->names;
        for (size_t name = 0, len; name < names->len; name += len) {
            memcpy(&len, names->data + name, sizeof len);
            name += sizeof len;
            set_row(set, (struct bytes){names->data + name, len})->busy = true;
        }
    }
    pthread_mutex_unlock(&own_txns->lock);
}

static void is_back(struct own_txns *own_txns, const struct store_op *op)
{
    pthread_mutex_lock(&own_txns->lock);
    for (struct list *at = own_txns->under_way.next; at != &own_txns->under_way; at = at->next) {
        struct own_txn_op *own_op = list_entry(at, struct own_txn_op, link);
        if (own_op->op != op)
            continue;
        list_remove(at);
        own_txn_op_free(own_op);
        break;
    }
    pthread_mutex_unlock(&own_txns->lock);
}

/* Wait a moment before the next look at something that others have to end. */
static void pause_for(int ms)
{
    const struct timespec time = {.tv_nsec = ms * 1000000L};
    (void)nanosleep(&time, NULL);
}

void pg_fail_all(struct pg_connection *connection, struct list *ops)
{
    for (struct list *at = ops->next; at != ops; at = at->next)
        pg_connection_fail_op(connection, list_entry(at, struct store_op, link));
}

static void hand_back(struct own_txns *own_txns, struct list *ops)
{
    for (const struct list *at = ops->next; at != ops; at = at->next)
        is_back(own_txns, list_entry(at, const struct store_op, link));
    (void)finished_add(own_txns->finished, ops);
    finished_close(own_txns->finished, false);
}

static void fail_rest(void *context, struct pg_connection *connection)
{
    struct own_txns *own_txns = context;
    struct list queued;

    (void)worker_take(&own_txns->worker, &queued);
    pg_fail_all(connection, &queued);
    hand_back(own_txns, &queued);
}

enum pg_ended pg_find_out(struct pg_connection *connection, struct worker *worker, int64_t mark,
                          void (*fail)(void *context, struct pg_connection *connection),
                          void *context)
{
    enum pg_ended ended = PG_UNKNOWN;
    struct pg *pg = &connection->pg;
    int64_t patient_until_ms = clock_now_ms(&clock_monotonic) + pg->timeout_ms / PATIENCE_DIVISOR;
    bool lost = false;
    char why[STORE_WHY_MAX];

    text_print(why, sizeof why, "%s", pg->why);
    log_warn(connection->log, "store %s: the outcome of a commit is unknown (%s); finding it out",
             pg->name, why);
    while (!worker_stopping(worker)) {
        if (!lost && pg_connection_ready(connection))
            ended = pg_outcome(&connection->txn, mark);
        if (ended != PG_UNKNOWN)
            break;
        if (!lost && atomic_load(&connection->txn.shared->lost)) {
            /* The owner, once woken, sees it by store_lost(), and ends the process. */
            lost = true;
            log_error(connection->log,
                      "store %s: the outcome of a commit will never be known: it was in doubt "
                      "for too long",
                      pg->name);
        }
        pg_connection_failed(connection);
        if (lost || clock_now_ms(&clock_monotonic) >= patient_until_ms)
            fail(context, connection);
        pause_for(POLL_MS);
    }
    if (ended != PG_UNKNOWN) {
        log_info(connection->log, "store %s: that commit is %s", pg->name,
                 ended == PG_COMMITTED ? "there" : "not there, and is done again");
        text_print(pg->why, sizeof pg->why, "%s", why); /* why the commit may not be there */
    }
    return ended;
}

/* Run the operation in a transaction, and leave that open. `floor`: begin with the lock that the
 * floor needs. */
static void run_once(struct own_txns *own_txns, struct store_op *op, bool floor)
{
    struct pg_txn *txn = &own_txns->connection.txn;

    set_clear(&txn->set);
    txn->kind = op->writes ? PG_OWN : PG_READS;
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

/* Make one attempt, from the connection to the commit. True: op->error is the answer. That is so
 * after a server that stays silent, too: nobody waits for more than one trip's limit. */
static bool attempt(struct own_txns *own_txns, struct store_op *op, bool *floor)
{
    struct pg_connection *connection = &own_txns->connection;
    struct pg_txn *txn = &connection->txn;

    if (!pg_connection_ready(connection)) {
        pg_connection_fail_op(connection, op);
        return true;
    }
    run_once(own_txns, op, *floor);
    if (txn->differs != PG_SAME)
        txn->stop = PG_FAILED;
    if (txn->stop == PG_ON && op->error == STK_OK && txn->begun && !txn->broken) {
        enum pg_ended ended = pg_commit(txn);
        if (ended == PG_UNKNOWN)
            ended = pg_find_out(connection, &own_txns->worker, txn->mark, fail_rest, own_txns);
        if (ended == PG_COMMITTED) {
            pg_watch_notify(own_txns->watch, &txn->set);
            pg_connection_works(connection);
            return true;
        }
        if (ended == PG_UNKNOWN) { /* it may have been done, so it must not be done again */
            pg_roll_back(txn);
            pg_connection_note(connection);
            pg_connection_fail_op(connection, op);
            return true;
        }
        txn->stop = PG_FAILED;
    }
    enum pg_stop stop = txn->stop;
    if (stop == PG_LOCKED && blockers_concern(op))
        pg_watch_locked(own_txns->watch, &txn->set);
    pg_roll_back(txn);
    if (stop == PG_ON)
        return true;
    *floor |= stop == PG_FLOOR;
    if (stop == PG_FAILED) {
        pg_connection_note(connection);
        pg_connection_fail_op(connection, op);
    }
    if (stop == PG_LOCKED)
        blockers_fail(&own_txns->watch->blockers, connection->reasons, op);
    return stop == PG_FAILED && txn->pg->conn == NULL && txn->pg->timed_out;
}

static void run(struct own_txns *own_txns, struct store_op *op)
{
    int64_t now_ms = clock_now_ms(&clock_monotonic), until_ms = now_ms + BLOCKERS_WAIT_MS;
    bool floor = false;

    op->waits_since_ms = now_ms;
    for (int tries = 0; tries < TRIES && !attempt(own_txns, op, &floor); tries++) {
        if (own_txns->connection.txn.stop != PG_LOCKED)
            continue;
        if (clock_now_ms(&clock_monotonic) >= until_ms || worker_stopping(&own_txns->worker))
            break;
        tries--;
        pause_for(POLL_MS);
    }
    if (own_txns->connection.txn.stop == PG_FAILED)
        pg_connection_failed(&own_txns->connection);
}

enum work_result own_txn_work(void *context, struct list *batch, size_t count, bool inlined)
{
    struct own_txns *own_txns = context;

    (void)inlined;
    for (struct list *at = batch->next; at != batch; at = at->next)
        run(own_txns, list_entry(at, struct store_op, link));
    (void)count; /* the writer has counted these operations already */
    hand_back(own_txns, batch);
    return WORK_DONE;
}
