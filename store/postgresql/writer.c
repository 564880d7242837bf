/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/writer.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/postgresql/load.h"
#include "store/postgresql/operation.h"

enum {
    TRIES = 5,      /* of a batch that failed because of others, or of a broken connection */
    ROUNDS_MAX = 8, /* of loading what operations miss; after these they fetch it themselves */
};

enum entry_state {
    ENTRY_DONE,    /* it has its answer, once the batch is committed */
    ENTRY_WAITS,   /* a row of its is locked: it leaves the batch, and waits */
    ENTRY_OWN_TXN, /* it is handed over, for a transaction of its own */
};

struct pg_entry {
    struct store_op *op;
    enum entry_state state;
    struct own_txn_op *own_op; /* of ENTRY_OWN_TXN */
};

/* Set the state, and forget that of an earlier run. */
static void settle(struct pg_entry *entry, enum entry_state state)
{
    if (entry->own_op != NULL)
        own_txn_op_free(entry->own_op);
    entry->own_op = NULL;
    entry->state = state;
}

/* 1. Run the operations on the set, in order. */

/* Keep later operations away from the rows that this one has asked for. */
static void block(struct set *set, size_t number)
{
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        if (row->asked_by == number && (row->blocked_by == 0 || row->blocked_by > number))
            row->blocked_by = number;
    }
}

/* Free the rows that operations from this one on have blocked: they run again. */
static void unblock(struct set *set, size_t number)
{
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        if (row->blocked_by >= number)
            row->blocked_by = 0;
    }
}

/* Run the operations from `start` on. Return the first one that misses something, where to go on
 * once that is loaded, or `batch->count`. `*good` false: the server failed. */
static size_t run_from(struct pg_txn *txn, const struct pg_batch *batch, size_t start, bool *good)
{
    size_t missing = batch->count;
    struct set_savepoint missing_savepoint = {0};

    for (size_t i = start; i < batch->count; i++) {
        struct pg_entry *entry = &batch->entries[i];
        struct set_savepoint savepoint = set_savepoint(&txn->set);
        settle(entry, ENTRY_DONE);
        pg_operation_run(txn, entry->op, i + 1);
        if (txn->stop != PG_ON || entry->op->error != STK_OK)
            set_undo(&txn->set, savepoint);
        switch (txn->stop) {
        case PG_ON: continue;
        case PG_MISSING:
            if (missing == batch->count) {
                missing = i;
                missing_savepoint = savepoint;
            }
            continue;
        case PG_LOCKED: entry->state = ENTRY_WAITS; break;
        case PG_NEEDS_OWN:
        case PG_FLOOR:
            entry->state = ENTRY_OWN_TXN;
            entry->own_op = own_txn_op_new(txn);
            break;
        case PG_FAILED: *good = false; return missing;
        }
        block(&txn->set, i + 1);
    }
    if (missing < batch->count) { /* the operations behind it ran only to say what they need */
        set_undo(&txn->set, missing_savepoint);
        unblock(&txn->set, missing + 1);
    }
    return missing;
}

/* Lock, load and run until nothing is missing. PG_COMMITTED: the batch may be committed now. */
static enum pg_ended run(struct pg_writer *writer, struct pg_lane *lane)
{
    struct pg_txn *txn = &lane->connection.txn;
    const struct pg_batch *batch = &lane->batch;
    size_t start = 0;
    bool good = pg_connection_ready(&lane->connection);

    if (!good)
        return PG_NOT;
    set_clear(&txn->set);
    txn->kind = PG_BATCH;
    txn->wrote = false;
    own_txn_set_busy(writer->own_txns, &txn->set);
    for (size_t i = 0; i < batch->count; i++)
        set_hint(&txn->set, batch->entries[i].op);
    for (int rounds = 0; good && start < batch->count; rounds++) {
        good = pg_load(txn) && txn->differs == PG_SAME;
        txn->direct = rounds >= ROUNDS_MAX;
        if (good)
            start = run_from(txn, batch, start, &good);
    }
    if (good && txn->differs == PG_SAME)
        return PG_COMMITTED;
    bool again = txn->differs != PG_SAME || (txn->pg->conn == NULL && !txn->pg->timed_out);
    pg_roll_back(txn);
    pg_connection_note(&lane->connection);
    return again ? PG_AGAIN : PG_NOT;
}

/* 2. Operations that have to wait leave the batch before it commits, in their order: the next
 * batch, which the other lane runs meanwhile, may have more for the same resources. */

static bool has_waited_long(struct store_op *op, int64_t now_ms)
{
    if (op->waits_since_ms == 0)
        op->waits_since_ms = now_ms;
    return now_ms - op->waits_since_ms > BLOCKERS_WAIT_MS;
}

/* Others may have come to wait since the operation was taken, so its place is found by its number.
 */
static void put_in_order(struct list *waiting, struct store_op *op)
{
    struct list *at = waiting;

    while (at->prev != waiting &&
           list_entry(at->prev, const struct store_op, link)->number > op->number)
        at = at->prev;
    list_insert(at, &op->link);
}

/* Have the operation wait. False: it has waited too long, or there is no room, so it has failed. */
static bool keep(struct pg_writer *writer, struct store_op *op)
{
    bool full = writer->waiting_count >= writer->worker->queue_max;
    int64_t now_ms = clock_now_ms(&clock_monotonic);

    if (!full && !has_waited_long(op, now_ms) && !worker_stopping(writer->worker)) {
        atomic_store(&op->held_up_ms, now_ms);
        put_in_order(&writer->waiting, op);
        writer->waiting_count++;
        return true;
    }
    if (full)
        op->error = STK_BUSY;
    else
        blockers_fail(&writer->watch->blockers, writer->reasons, op);
    return false;
}

static void keep_waiting(struct pg_writer *writer, struct pg_lane *lane)
{
    struct pg_batch *batch = &lane->batch;
    size_t left = 0;
    bool blocked = false;

    for (size_t i = 0; i < batch->count; i++) {
        struct pg_entry *entry = &batch->entries[i];
        blocked |= entry->state == ENTRY_WAITS && blockers_concern(entry->op);
        if (entry->state == ENTRY_WAITS && keep(writer, entry->op))
            continue;
        if (entry->state == ENTRY_WAITS)
            entry->state = ENTRY_DONE;
        batch->entries[left++] = *entry;
    }
    batch->count = left;
    if (blocked)
        pg_watch_locked(writer->watch, &lane->connection.txn.set);
}

/* 3. Commit, hand back, hand over. */

static void hand_back(struct pg_writer *writer, struct list *done, size_t count)
{
    struct store_stats *stats = finished_add(writer->finished, done);
    size_t failing = !writer->lanes[0].connection.retry.reported;
    const struct pg_retry *retry = &writer->lanes[failing].connection.retry;

    stats->state = retry->reported ? STORE_FAILING : STORE_FINE;
    text_print(stats->why, sizeof stats->why, "%s", retry->reported ? retry->why : "");
    stats->commits = writer->commits;
    stats->failed_commits = writer->failed_commits;
    stats->lock_waits = writer->lock_waits;
    stats->batch_reruns = writer->reruns;
    stats->queued = writer->queued;
    stats->commits_took = writer->commits_took;
    stats->writes += count;
    if (count > stats->batch_writes_max)
        stats->batch_writes_max = count;
    finished_close(writer->finished, false);
}

/* End the batch: hand operations back, or over to own_txn.c. */
static void hand_on(struct pg_writer *writer, struct pg_lane *lane)
{
    struct pg_batch *batch = &lane->batch;
    struct list done;

    list_init(&done);
    for (size_t i = 0; i < batch->count; i++) {
        const struct pg_entry *entry = &batch->entries[i];
        struct store_op *op = entry->op;
        writer->lock_waits += blockers_concern(op);
        if (entry->state == ENTRY_OWN_TXN && own_txn_submit(writer->own_txns, op, entry->own_op))
            continue;
        if (entry->state == ENTRY_OWN_TXN)
            op->error = STK_BUSY;
        list_append(&done, &op->link);
    }
    hand_back(writer, &done, batch->count);
    free(batch->entries);
    *batch = (struct pg_batch){.count = 0};
}

/* Send the commit of the operations that need not wait. False: none is left. */
static bool send_commit(struct pg_writer *writer, struct pg_lane *lane)
{
    keep_waiting(writer, lane);
    if (lane->batch.count == 0) {
        pg_roll_back(&lane->connection.txn);
        return false;
    }
    lane->commit_us = clock_now_us(&clock_monotonic);
    pg_commit_send(&lane->connection.txn);
    lane->commits = true;
    return true;
}

/* Run nothing of the batch now: all of it waits. */
static void wait_all(struct pg_writer *writer, struct pg_lane *lane)
{
    for (size_t i = 0; i < lane->batch.count; i++)
        settle(&lane->batch.entries[i], ENTRY_WAITS);
    keep_waiting(writer, lane);
    hand_on(writer, lane);
}

static void fail_rest(void *context, struct pg_connection *connection)
{
    struct pg_writer *writer = context;
    struct list queued;

    (void)worker_take(writer->worker, &queued);
    list_splice(&writer->waiting, &queued);
    writer->waiting_count = 0;
    pg_fail_all(connection, &writer->waiting);
    hand_back(writer, &writer->waiting, 0);
}

/* Wait for the commit's outcome. PG_COMMITTED: the states of the entries hold. PG_NOT, PG_AGAIN:
 * nothing of the batch was done, and retry.why says why. Where it did not succeed at once, the
 * other lane may have run its batch too early: its transaction is given up, and the batch waits. */
static enum pg_ended take_commit(struct pg_writer *writer, struct pg_lane *lane)
{
    struct pg_connection *connection = &lane->connection;
    struct pg_txn *txn = &connection->txn;
    enum pg_ended ended = pg_commit_take(txn);
    struct pg_lane *other = &writer->lanes[lane == &writer->lanes[0]];
    bool unknown = ended == PG_UNKNOWN;

    lane->commits = false;
    if (ended != PG_COMMITTED) {
        pg_roll_back(&other->connection.txn);
        wait_all(writer, other);
    }
    if (unknown)
        ended = pg_find_out(connection, writer->worker, txn->mark, fail_rest, writer);
    if (ended == PG_NOT && (unknown || (txn->pg->conn == NULL && !txn->pg->timed_out)))
        ended = PG_AGAIN;
    if (ended != PG_COMMITTED) {
        pg_roll_back(txn);
        pg_connection_note(connection);
        return ended;
    }
    if (txn->mark != 0) {
        durations_add(&writer->commits_took, clock_now_us(&clock_monotonic) - lane->commit_us);
        writer->commits++;
    }
    pg_watch_notify(writer->watch, &txn->set);
    set_clear(&txn->set);
    pg_connection_works(connection);
    return ended;
}

/* End a batch whose last attempt ended so; try again where that may help. The other lane must have
 * no transaction meanwhile. */
static void end(struct pg_writer *writer, struct pg_lane *lane, enum pg_ended ended)
{
    struct pg_batch *batch = &lane->batch;

    for (int tries = 1; ended == PG_AGAIN && tries < TRIES; tries++) {
        writer->reruns++;
        ended = run(writer, lane);
        if (ended == PG_COMMITTED && send_commit(writer, lane))
            ended = take_commit(writer, lane);
    }
    if (ended != PG_COMMITTED) {
        pg_connection_failed(&lane->connection);
        writer->failed_commits++;
        for (size_t i = 0; i < batch->count; i++) {
            settle(&batch->entries[i], ENTRY_DONE);
            pg_connection_fail_op(&lane->connection, batch->entries[i].op);
        }
    }
    hand_on(writer, lane);
}

/* 4. One batch after the other. */

/* Take new operations in, behind those that wait already. */
static void take_in(struct pg_writer *writer, struct list *list, size_t count)
{
    int64_t now_us = clock_now_us(&clock_monotonic);

    for (struct list *at = list->next; at != list; at = at->next) {
        struct store_op *op = list_entry(at, struct store_op, link);
        op->waits_since_ms = 0;
        op->number = ++writer->taken;
        if (op->submitted_us != 0)
            durations_add(&writer->queued, now_us - op->submitted_us);
    }
    list_splice(&writer->waiting, list);
    writer->waiting_count += count;
}

static void gather(struct pg_writer *writer, struct pg_batch *batch)
{
    struct list *link;

    batch->entries = mem_alloc(writer->waiting_count * sizeof *batch->entries);
    batch->count = 0;
    while ((link = list_pop(&writer->waiting)) != NULL)
        batch->entries[batch->count++] =
            (struct pg_entry){list_entry(link, struct store_op, link), ENTRY_WAITS, NULL};
    writer->waiting_count = 0;
}

static bool has_own_txn(const struct pg_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->entries[i].state == ENTRY_OWN_TXN)
            return true;
    return false;
}

/* Run the lane's batch, perhaps while the other lane commits; once that commit is over, send this
 * one's. */
static void work_off(struct pg_writer *writer, struct pg_lane *lane, struct pg_lane *other)
{
    enum pg_ended ended = run(writer, lane);

    if (other->commits)
        end(writer, other, take_commit(writer, other));
    if (lane->batch.count == 0) /* all of it waits, since that commit did not succeed at once */
        return;
    if (ended != PG_COMMITTED) {
        end(writer, lane, ended);
        return;
    }
    if (!send_commit(writer, lane))
        hand_on(writer, lane);
    else if (has_own_txn(&lane->batch)) /* hand them over first: the next batch asks who is busy */
        end(writer, lane, take_commit(writer, lane));
}

/* Look whether the database is back, or has gone while there was nothing to write. (The first lane
 * should always have a connection; the second one is made when it is needed.) */
static void look(struct pg_writer *writer)
{
    struct list none;

    for (size_t i = 0; i < PG_WRITER_LANES; i++) {
        struct pg_connection *connection = &writer->lanes[i].connection;
        bool gone = connection->pg.conn != NULL ? !pg_listens(&connection->pg) : i == 0;
        if ((gone || connection->retry.reported) && pg_connection_ready(connection))
            pg_connection_works(connection);
    }
    list_init(&none);
    hand_back(writer, &none, 0);
}

enum work_result pg_writer_work(void *context, struct list *list, size_t count, bool inlined)
{
    struct pg_writer *writer = context;
    bool second = writer->lanes[0].commits;
    struct pg_lane *lane = &writer->lanes[second], *other = &writer->lanes[!second];
    bool committing = other->commits;

    (void)inlined;
    take_in(writer, list, count);
    if (committing && (count == 0 || count < other->batch.count / 2)) {
        /* Wait for that commit first: operations may wait for its locks, and the few that have come
         * make a better batch with those that come meanwhile. */
        end(writer, other, take_commit(writer, other));
    } else if (writer->waiting_count > 0) {
        gather(writer, &lane->batch);
        work_off(writer, lane, other);
    } else {
        look(writer);
    }
    if (lane->commits || (committing && writer->waiting_count > 0))
        return WORK_AGAIN;
    bool unreachable =
        writer->lanes[0].connection.retry.reported || writer->lanes[1].connection.retry.reported;
    return writer->waiting_count > 0 || (unreachable && !worker_stopping(writer->worker))
               ? WORK_PENDING
               : WORK_DONE;
}
