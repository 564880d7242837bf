/* SPDX-License-Identifier: Apache-2.0 */
#include "store/postgresql/transaction.h"

#include <string.h>

#include "fence/base/check.h"
#include "store/postgresql/changes.h"
#include "store/postgresql/schema.h"
#include "store/postgresql/statements.h"

/* invalid_text_representation: how PG_CHANGES says that not all rows were changed. */
#define NOT_ALL "22P02"

enum { MARKS_KEPT = 256 }; /* of each connection, at most */

static void send_mark(struct pg_txn *txn, enum pg_statement statement, int64_t number)
{
    struct pg_params params = {.count = 0};

    pg_param_int64(&params, atomic_load(&txn->shared->opening));
    pg_param_int64(&params, number);
    if (statement != PG_MARKS_PRUNE)
        pg_param_int64(&params, txn->now_ms);
    pg_send(txn->pg, statement, &params);
}

/* Leave a mark, and prune older ones. A connection begins a transaction only when it knows what
 * became of the one before, so it never needs its own older marks; it leaves those of other
 * connections alone. */
static void send_marks(struct pg_txn *txn)
{
    txn->last_mark += PG_WRITING_CONNECTIONS;
    txn->mark = txn->last_mark + txn->connection;
    txn->mark_ms = txn->now_ms;
    if (txn->mark % MARKS_KEPT < PG_WRITING_CONNECTIONS)
        send_mark(txn, PG_MARKS_PRUNE, txn->mark);
    send_mark(txn, PG_MARK, txn->mark);
}

/* Note that somebody is about to be told of the commit that this mark stands for. */
static void note_told(struct pg_txn *txn, int64_t mark)
{
    if (mark == 0)
        return;
    atomic_store(&txn->shared->told[txn->connection].at_ms, txn->mark_ms);
    atomic_store(&txn->shared->told[txn->connection].ended, txn->ended);
    atomic_store(&txn->shared->told[txn->connection].mark, mark);
}

/* May another attempt succeed at once (unique violation, serialization failure, deadlock)? */
static bool is_passing(const struct pg *pg)
{
    static const char *const states[] = {"23505", "40001", "40P01"};

    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(pg->sqlstate, states[i]) == 0)
            return true;
    return false;
}

/* Take back what a user's SQL may have left in the session, beyond its transaction. */
static void send_reset(struct pg_txn *txn)
{
    if (txn->needs_reset) {
        pg_send(txn->pg, PG_SQL_UNLOCK, NULL);
        pg_send(txn->pg, PG_SQL_UNLISTEN, NULL);
        pg_send(txn->pg, PG_SQL_FORGET, NULL);
    }
    txn->needs_reset = false;
}

void pg_roll_back(struct pg_txn *txn)
{
    struct pg *pg = txn->pg;
    char why[STORE_WHY_MAX];
    bool kept_out = kept_out_is_why(pg);

    set_clear(&txn->set);
    txn->wrote = txn->in_savepoint = false;
    if (txn->must_drop)
        pg_drop(pg);
    if (pg->conn != NULL && txn->begun) {
        memcpy(why, pg->why, sizeof why);
        pg_send(pg, PG_ROLLBACK, NULL);
        send_reset(txn);
        pg_sync(pg);
        if (!pg_end(pg)) /* else the next transaction would be a part of this one */
            pg_drop(pg);
        memcpy(pg->why, why, sizeof why);
        if (kept_out)
            kept_out_explain(&txn->shared->kept_out, pg, txn->shared->log);
    }
    txn->begun = false;
}

void pg_commit_send(struct pg_txn *txn)
{
    bool changed = set_changed(&txn->set) || txn->wrote;

    check(txn->begun);
    txn->mark = 0;
    if (changed) {
        pg_send_changes(txn);
        send_marks(txn);
        pg_send_deciding(txn->pg, PG_COMMIT, NULL);
        send_reset(txn);
        pg_sync(txn->pg);
    } else {
        pg_send(txn->pg, PG_COMMIT, NULL);
        pg_send(txn->pg, PG_BARRIER, NULL);
        send_reset(txn);
        pg_sync_deciding(txn->pg);
    }
}

enum pg_ended pg_commit_take(struct pg_txn *txn)
{
    struct pg *pg = txn->pg;
    bool good = pg_end(pg);

    if (pg->decision == PG_DECIDED) {
        txn->begun = false;
        note_told(txn, txn->mark);
        if (!good) /* the reset behind COMMIT may not have been done */
            pg_drop(pg);
        return PG_COMMITTED;
    }
    if (pg->conn != NULL && pg->decision == PG_DENIED) {
        bool passing = is_passing(pg);
        if (strcmp(pg->sqlstate, NOT_ALL) == 0) /* a new connection looks for the reason */
            pg_drop(pg);
        return passing ? PG_AGAIN : PG_NOT;
    }
    pg_drop(pg);
    txn->begun = false;
    return txn->mark != 0 ? PG_UNKNOWN : PG_NOT;
}

enum pg_ended pg_commit(struct pg_txn *txn)
{
    if (txn->must_drop) { /* the SQL was refused; a read has nothing else to tell */
        pg_roll_back(txn);
        return txn->kind == PG_READS ? PG_COMMITTED : PG_NOT;
    }
    /* Statements past the set do not count the rows that they change, so look for triggers. Nobody
     * can make one between this look and the commit: that waits for those who have written to the
     * table. */
    if (txn->kind == PG_OWN && txn->wrote && !pg_schema_is_ours(txn->pg))
        return PG_NOT;
    pg_commit_send(txn);
    return pg_commit_take(txn);
}

/* Insert the same mark, as void. If the transaction in doubt is still under way, the insert waits,
 * at the index entry, until it has ended and its standby has it. Our own commit comes behind that
 * one in the log, so where ours is replicated, it is. */
enum pg_ended pg_outcome(struct pg_txn *txn, int64_t mark)
{
    struct pg *pg = txn->pg;
    bool is_void = false;

    pg_send(pg, PG_BEGIN, NULL);
    send_mark(txn, PG_MARK_VOID, mark);
    pg_send_deciding(pg, PG_COMMIT, NULL);
    pg_sync(pg);
    pg_skip(pg, 1);
    PGresult *result = pg_take(pg);
    bool known = pg->pq.PQntuples(result) == 1;
    if (known)
        is_void = pg_value_bool(pg, result, 0, 0);
    txn->pg->pq.PQclear(result);
    bool good = pg_end(pg) && known && pg->decision == PG_DECIDED;
    if (!good && pg->conn != NULL)
        pg_drop(pg);
    if (!good)
        return PG_UNKNOWN;
    if (is_void && txn->now_ms - txn->mark_ms > PG_MARK_KEPT_MS / 2) {
        atomic_store(&txn->shared->lost, true);
        return PG_UNKNOWN;
    }
    if (!is_void)
        note_told(txn, mark);
    return is_void ? PG_NOT : PG_COMMITTED;
}
