/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/writer.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "store/postgresql/operation.h"

enum {
    TRIES = 5,        /* of a batch that others, or a broken connection, have made fail */
    ROUNDS_MAX = 8,   /* of loading what is missing; then it is fetched at once */
    LOCKED_MS = 10000 /* that an operation waits for a lock */
};

enum fate { DONE, WAITS, APART };

struct entry {
    struct store_op *op;
    enum fate fate;
    struct away *away; /* of APART */
};

/* A batch, as an array: the waiting ones first, since they came first. */
struct batch {
    struct entry *entries;
    size_t count;
};

/* The fate of an earlier run is over. */
static void settle(struct entry *entry, enum fate fate)
{
    if (entry->away != NULL)
        apart_drop(entry->away);
    entry->away = NULL;
    entry->fate = fate;
}

/* 1. Run: each operation on the set, in order. */

/* What it is about is not for later operations. */
static void block(struct set *set, size_t number)
{
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        if (row->asked_by == number && (row->blocked_by == 0 || row->blocked_by > number))
            row->blocked_by = number;
    }
}

/* Operations from this one on run again. */
static void unblock(struct set *set, size_t number)
{
    for (struct list *at = set->rows.next; at != &set->rows; at = at->next) {
        struct row *row = list_entry(at, struct row, link);
        if (row->blocked_by >= number)
            row->blocked_by = 0;
    }
}

/* Runs the operations from `start` on. Returns where to go on once what is missing was loaded:
 * `batch->count` where nothing is. False in `*good`: the server failed. */
static size_t run_from(struct pg_txn *txn, struct batch *batch, size_t start, bool *good)
{
    size_t missing = batch->count;
    struct set_mark missing_mark = {0};

    for (size_t i = start; i < batch->count; i++) {
        struct entry *entry = &batch->entries[i];
        struct set_mark mark = set_mark(&txn->set);
        settle(entry, DONE);
        pg_operation_run(txn, entry->op, i + 1);
        if (txn->stop != PG_ON || entry->op->error != STK_OK)
            set_undo(&txn->set, mark);
        switch (txn->stop) {
        case PG_ON: continue;
        case PG_MISSING:
            if (missing == batch->count) {
                missing = i;
                missing_mark = mark;
            }
            continue;
        case PG_LOCKED: entry->fate = WAITS; break;
        case PG_APART:
        case PG_FLOOR:
            entry->fate = APART;
            entry->away = apart_note(txn);
            break;
        case PG_FAILED: *good = false; return missing;
        }
        block(&txn->set, i + 1);
    }
    if (missing < batch->count) { /* the later ones have only said what they need */
        set_undo(&txn->set, missing_mark);
        unblock(&txn->set, missing + 1);
    }
    return missing;
}

/* Locks, loads and runs until nothing is missing. */
static bool run(struct pg_writer *writer, struct batch *batch)
{
    struct pg_txn *txn = &writer->reach.txn;
    size_t start = 0;
    bool good = true;

    set_clear(&txn->set);
    txn->kind = PG_BATCH;
    txn->wrote = false;
    apart_mark(writer->apart, &txn->set);
    for (size_t i = 0; i < batch->count; i++) {
        struct bytes about = batch->entries[i].op->about;
        if (about.len > 0 && about.len <= RESOURCE_NAME_MAX)
            set_want(&set_row(&txn->set, about)->known);
    }
    for (int rounds = 0; good && start < batch->count; rounds++) {
        if (!pg_load(txn) || txn->renamed)
            return false;
        txn->direct = rounds >= ROUNDS_MAX;
        start = run_from(txn, batch, start, &good);
    }
    pg_watch_locked(writer->watch, &txn->set);
    return good && !txn->renamed;
}

/* 2. Commit. PG_COMMITTED: each has its fate. PG_NOT: none has, and reach.why says why. */
static enum pg_ended attempt(struct pg_writer *writer, struct batch *batch)
{
    struct reach *reach = &writer->reach;
    struct pg_txn *txn = &reach->txn;
    enum pg_ended ended = PG_NOT;

    if (!reach_ready(reach))
        return PG_NOT;
    bool ran = run(writer, batch);
    if (ran) {
        int64_t start_us = clock_now_us(&clock_monotonic);
        ended = pg_commit(txn);
        bool unknown = ended == PG_UNKNOWN;
        if (unknown)
            ended = pg_find_out(reach, writer->worker, writer->finished, txn->mark);
        if (ended == PG_NOT && (unknown || (txn->pg.conn == NULL && !txn->pg.timed_out)))
            ended = PG_AGAIN;
        if (ended == PG_COMMITTED && txn->mark != 0)
            durations_add(&writer->commits_took, clock_now_us(&clock_monotonic) - start_us);
        writer->commits += ended == PG_COMMITTED && txn->mark != 0;
    } else if (txn->renamed || (txn->pg.conn == NULL && !txn->pg.timed_out)) {
        ended = PG_AGAIN;
    }
    if (ended == PG_COMMITTED) {
        pg_watch_tell(writer->watch, &txn->set);
        set_clear(&txn->set);
        reach_good(reach);
        return ended;
    }
    pg_roll_back(txn);
    reach_note(reach);
    return ended;
}

static void fail_all(struct pg_writer *writer, struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        settle(&batch->entries[i], DONE);
        reach_fail(&writer->reach, batch->entries[i].op);
    }
}

/* Nothing of it ran: an operation that is about all resources is under way. */
static void wait_all(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        settle(&batch->entries[i], WAITS);
}

static void work_off(struct pg_writer *writer, struct batch *batch)
{
    enum pg_ended ended = PG_AGAIN;

    if (apart_has_all(writer->apart)) {
        wait_all(batch);
        return;
    }
    for (int tries = 0; ended == PG_AGAIN && tries < TRIES; tries++) {
        writer->reruns += tries > 0;
        ended = attempt(writer, batch);
    }
    if (ended != PG_COMMITTED) {
        reach_failed(&writer->reach);
        writer->failed_commits++;
        fail_all(writer, batch);
    }
}

/* 3. Hand back, keep, hand over. */

static bool has_waited_long(struct store_op *op, int64_t now_ms)
{
    if (op->waits_since_ms == 0)
        op->waits_since_ms = now_ms;
    return now_ms - op->waits_since_ms > LOCKED_MS;
}

static void keep(struct pg_writer *writer, struct store_op *op, struct list *done)
{
    bool full = writer->waiting_count >= writer->worker->queue_max;
    char why[STORE_WHY_MAX];

    writer->lock_waits += op->waits_since_ms == 0;
    if (!full && !has_waited_long(op, clock_now_ms(&clock_monotonic)) &&
        !worker_stopping(writer->worker)) {
        list_append(&writer->waiting, &op->link);
        writer->waiting_count++;
        return;
    }
    if (full) {
        op->error = STK_BUSY;
    } else {
        blockers_why(&writer->watch->blockers, op->about, why);
        reasons_fail(writer->reach.reasons, op, why);
    }
    list_append(done, &op->link);
}

static void hand_on(struct pg_writer *writer, const struct batch *batch, struct list *done)
{
    for (size_t i = 0; i < batch->count; i++) {
        const struct entry *entry = &batch->entries[i];
        struct store_op *op = entry->op;
        if (entry->fate == WAITS) {
            keep(writer, op, done);
        } else if (entry->fate == DONE) {
            list_append(done, &op->link);
        } else if (!apart_submit(writer->apart, op, entry->away)) {
            op->error = STK_BUSY;
            list_append(done, &op->link);
        }
    }
}

static void hand_back(struct pg_writer *writer, struct list *done, size_t count)
{
    struct store_stats *stats = finished_add(writer->finished, done);
    bool fails = writer->reach.reported;

    stats->state = fails ? STORE_FAILING : STORE_FINE;
    text_print(stats->why, sizeof stats->why, "%s", fails ? writer->reach.why : "");
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

enum work_result pg_writer_work(void *context, struct list *list, size_t count, bool inlined)
{
    struct pg_writer *writer = context;
    struct batch batch = {.count = writer->waiting_count + count};
    struct list all, done, *link;
    int64_t now_us = clock_now_us(&clock_monotonic);
    size_t at = 0;

    (void)inlined;
    if (batch.count == 0) { /* only to look whether the database is back */
        if (reach_ready(&writer->reach)) {
            reach_good(&writer->reach);
            list_init(&done);
            hand_back(writer, &done, 0);
        }
        return writer->reach.reported && !worker_stopping(writer->worker) ? WORK_PENDING
                                                                          : WORK_DONE;
    }
    list_init(&all);
    list_init(&done);
    list_splice(&all, &writer->waiting);
    writer->waiting_count = 0;
    for (link = list->next; link != list; link = link->next) {
        struct store_op *op = list_entry(link, struct store_op, link);
        op->waits_since_ms = 0;
        if (op->submitted_us != 0)
            durations_add(&writer->queued, now_us - op->submitted_us);
    }
    list_splice(&all, list);
    batch.entries = mem_alloc(batch.count * sizeof *batch.entries);
    while ((link = list_pop(&all)) != NULL)
        batch.entries[at++] = (struct entry){list_entry(link, struct store_op, link), WAITS, NULL};
    work_off(writer, &batch);
    hand_on(writer, &batch, &done);
    free(batch.entries);
    hand_back(writer, &done, count);
    return writer->waiting_count > 0 || writer->reach.reported ? WORK_PENDING : WORK_DONE;
}
