/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction on one connection: its state, and how it ends.
 *
 *   pg_load ─▶ operations on the set ─▶ (pg_load ...) ─▶ pg_commit
 *     └─ one trip, which also begins it      one trip, which also writes all changes ─┘
 *
 * load.h has the first trips, operation.h the operations, changes.h the writing. */
#ifndef STOCKADE_STORE_POSTGRESQL_TRANSACTION_H
#define STOCKADE_STORE_POSTGRESQL_TRANSACTION_H

#include <pthread.h>
#include <stdatomic.h>

#include "store/postgresql/differs.h"
#include "store/postgresql/kept_out.h"
#include "store/postgresql/pg.h"
#include "store/server_clock.h"
#include "store/txn.h"
#include "store/working_set.h"

enum pg_kind {
    PG_READS, /* a snapshot; nothing is locked or changed */
    PG_BATCH, /* several operations that change things, in the set; their rows are locked */
    PG_OWN,   /* one operation that needs a transaction of its own: it goes past the set */
};

/* Why an operation could not go on. */
enum pg_stop {
    PG_ON,        /* it can */
    PG_MISSING,   /* something is not in the set: load it, run again */
    PG_LOCKED,    /* another transaction has a row: wait, run again */
    PG_NEEDS_OWN, /* it needs a transaction of its own */
    PG_FLOOR,     /* it raises the floor, so it has to begin with that: run it so */
    PG_FAILED,    /* the server or the connection failed: pg->why */
};

/* How a commit ended. */
enum pg_ended {
    PG_COMMITTED,
    PG_NOT,     /* nothing of it is there, nor will be */
    PG_AGAIN,   /* nothing of it is there, but another attempt may succeed at once: somebody else
                 * made the same name meanwhile, or the server chose it to give way */
    PG_UNKNOWN, /* ask the server for its mark: pg_outcome */
};

/* Marks are removed at this age. An outcome that was in doubt for half as long counts as lost. */
#define PG_MARK_KEPT_MS (7 * 24 * 3600 * INT64_C(1000))
/* Can users' SQL run on this connection (sql.h)? */
enum pg_sql_state {
    SQL_UNTRIED,
    SQL_WANTED, /* an operation has asked for it */
    SQL_READY,
    SQL_MISSING, /* it cannot, and sql_why says why */
};

/* The connections of a store. The first one counts the opening; those up to PG_CONNECTION_OWN_TXN
 * change things. */
enum pg_connection_id {
    PG_CONNECTION_WRITER,
    PG_CONNECTION_WRITER_2,
    PG_CONNECTION_OWN_TXN,
    PG_CONNECTION_READER,
    PG_CONNECTION_SLOW,
    PG_CONNECTION_WATCH
};
enum { PG_WRITING_CONNECTIONS = 4 }; /* room for those that change things */

/* A store's state that its threads share. */
struct pg_shared {
    const struct log *log;
    atomic_int_least64_t opening; /* this one's number; 0: the database was not reached yet */
    atomic_int_least64_t connections_made; /* so far: a new one says that the server is back */
    pthread_mutex_t place_lock;
    int64_t system, timeline; /* under place_lock: the newest timeline seen, and its system */
    atomic_int_least64_t unreplicated_ms; /* when a transaction last came back that found no
                                           * synchronous standby; 0: a later one found one */
    /* On each connection, the last commit that somebody was told of: its mark (0: none), the
     * store's time then, and up to which token leases had ended then. */
    struct {
        atomic_int_least64_t mark, at_ms, ended;
    } told[PG_WRITING_CONNECTIONS];
    atomic_bool harmed; /* somebody has changed our tables: see pg_schema_is_ours */
    atomic_bool unsafe; /* the server has fsync = off */
    atomic_bool lost;   /* the outcome of a commit will never be known */
    struct server_clock clock;
    struct kept_out kept_out;
};

struct pg_txn {
    struct store_txn base;
    struct pg *pg; /* the connection that it is on; borrowed */
    struct pg_shared *shared;
    enum pg_connection_id connection;
    int64_t last_mark; /* the last mark less `connection`: a multiple of PG_WRITING_CONNECTIONS */
    enum pg_kind kind;
    struct set set;

    /* The transaction under way. */
    bool begun;
    enum pg_differs differs; /* what is no longer as the connection knows it */
    int64_t floor, ended;    /* of all resources; no token up to `ended` lives */
    /* The store's time (server_clock.h), read after the rows were locked. */
    int64_t now_ms, since_ms;
    int64_t mark, mark_ms;    /* its mark's number and date; 0: it changes nothing */
    bool wrote;               /* something was written past the set */
    bool has_floor;           /* it has the floor locked for itself */
    int64_t next_id, ids_end; /* ids of new resources, across transactions */
    enum pg_sql_state sql_state;
    char sql_why[SQL_WHY_MAX];
    bool must_drop;   /* a function that SQL has called may have changed the session's state:
                       * the connection has to be dropped */
    bool needs_reset; /* a user's SQL has run: advisory locks, LISTEN and sequences are reset at
                       * the end */

    /* The operation under way. */
    enum pg_stop stop;
    bool direct;       /* do not stop for what is missing: fetch it at once */
    size_t number;     /* of the operation in its batch, from 1 */
    bool found_locked; /* it asked for a row that another transaction has locked */
    bool implausible;  /* it asked for a row that says what cannot be */
    bool in_savepoint;
    struct set_savepoint set_savepoint;
    int64_t sql_ms;             /* how long its SQL has taken so far */
    bool broken;                /* its SQL has failed: it can only be undone */
    const struct claim *claims; /* those that it has presented; borrowed */
    size_t claims_count;
};

static inline struct pg_txn *pg_txn_of(struct store_txn *txn)
{
    return (struct pg_txn *)txn;
}

/* Note why the operation cannot go on; the first reason stays. Return STK_STORE. */
static inline enum stk_error pg_stop(struct pg_txn *txn, enum pg_stop stop)
{
    if (txn->stop == PG_ON)
        txn->stop = stop;
    return STK_STORE;
}

/* Note that a transaction, which was sent and came back at these times, found a synchronous standby
 * (`replicated`), or none. One that found a standby, but was sent before the newest finding of none
 * had come back, says nothing. */
static inline void pg_replication_found(struct pg_shared *shared, bool replicated, int64_t sent_ms,
                                        int64_t got_ms)
{
    int_least64_t seen_ms = atomic_load(&shared->unreplicated_ms);

    if (!replicated)
        atomic_store(&shared->unreplicated_ms, got_ms);
    else if (seen_ms < sent_ms)
        atomic_compare_exchange_strong(&shared->unreplicated_ms, &seen_ms, 0);
}

/* Write what has changed, and commit. */
enum pg_ended pg_commit(struct pg_txn *txn);
/* Do so in two steps: send all of it, and wait for the outcome later. */
void pg_commit_send(struct pg_txn *txn);
enum pg_ended pg_commit_take(struct pg_txn *txn);
/* Give the transaction up, and empty the set. */
void pg_roll_back(struct pg_txn *txn);
/* Ask, on a connection that was made anew, what became of the transaction that left this mark.
 * PG_COMMITTED: it is there, and replicated. PG_NOT: it is not there. PG_UNKNOWN: the server could
 * not be asked, or nobody will ever know (shared->lost). */
enum pg_ended pg_outcome(struct pg_txn *txn, int64_t mark);

#endif
