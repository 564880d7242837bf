/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction on one connection: what it knows, and how it ends.
 *
 *   pg_load ─▶ operations on the set ─▶ (pg_load ...) ─▶ pg_commit
 *     └─ one trip: begins, too              one trip: writes all that changed, too ─┘
 *
 * load.h has its first trips, operation.h what operations do in it, changes.h what is written. */
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
    PG_BATCH, /* several operations that change things; what they are about is locked */
    PG_OWN,   /* one operation that does what cannot be done in the set */
};

/* Why an operation could not go on. */
enum pg_stop {
    PG_ON,
    PG_MISSING,   /* something is not in the set: load it, run again */
    PG_LOCKED,    /* another transaction has a row: wait, run again */
    PG_NEEDS_OWN, /* it needs a transaction of its own */
    PG_FLOOR,     /* it raises the floor, so it has to begin with that: run it so */
    PG_FAILED,    /* the server or the connection failed: pg->why */
};

/* How a commit ended. */
enum pg_ended {
    PG_COMMITTED,
    PG_NOT,     /* nothing of it is there, or will be */
    PG_AGAIN,   /* nothing of it is there; a name was made by somebody else meanwhile */
    PG_UNKNOWN, /* the mark tells: pg_outcome */
};

/* A mark goes when it is so old; whoever is in doubt for half as long will never know. */
#define PG_MARK_KEPT_MS (7 * 24 * 3600 * INT64_C(1000))
/* Can users' SQL run on this connection (sql.h)? */
enum pg_sql_state {
    SQL_UNTRIED,
    SQL_WANTED, /* an operation has asked for it */
    SQL_READY,
    SQL_MISSING, /* no, and sql_why says why */
};

/* The connections of a store. The first one counts the opening; the first few may change
 * things. */
enum pg_connection_id {
    PG_CONNECTION_WRITER,
    PG_CONNECTION_WRITER_2,
    PG_CONNECTION_OWN_TXN,
    PG_CONNECTION_READER,
    PG_CONNECTION_SLOW,
    PG_CONNECTION_WATCH
};
enum { PG_WRITING_CONNECTIONS = 4 };

/* Of the store, shared by its threads. */
struct pg_shared {
    const struct log *log;
    atomic_int_least64_t opening; /* this one's number; 0: the database was not reached yet */
    atomic_int_least64_t connections_made; /* so far: a new one says that the server is back */
    pthread_mutex_t place_lock;
    int64_t system, timeline; /* the newest timeline that was seen, and of which system it is */
    atomic_int_least64_t unreplicated_ms; /* when a transaction last came back that found no
                                           * standby synchronous; 0: a later one found one */
    /* The last commit on each connection that somebody was told of: its mark, 0 for none; the
     * store's time, and which leases had ended, then. */
    struct {
        atomic_int_least64_t mark, at_ms, ended;
    } told[PG_WRITING_CONNECTIONS];
    atomic_bool harmed; /* somebody has changed our tables: pg_schema_is_ours */
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
    int64_t last_mark; /* a multiple of PG_WRITING_CONNECTIONS, to which the connection is added */
    enum pg_kind kind;
    struct set set;

    /* The transaction under way. */
    bool begun;
    enum pg_differs differs; /* from what the connection knows of the store */
    int64_t floor, ended;    /* of all resources; no token up to `ended` lives */
    /* The store's time (server_clock.h), read after the rows were locked. */
    int64_t now_ms, since_ms;
    int64_t mark, mark_ms;    /* its number, 0: it has changed nothing; its time */
    bool wrote;               /* something went past the set */
    bool has_floor;           /* alone */
    int64_t next_id, ids_end; /* ids of new resources, across transactions */
    enum pg_sql_state sql_state;
    char sql_why[SQL_WHY_MAX];
    bool must_drop;   /* a function that SQL has called may have changed the session's state:
                       * the connection has to be dropped */
    bool needs_reset; /* a user's SQL has run: advisory locks, LISTEN and sequences are reset at
                       * the end */

    /* The operation under way. */
    enum pg_stop stop;
    bool direct;       /* fetch what is missing at once */
    size_t number;     /* of the operation, from 1, in its batch */
    bool found_locked; /* another transaction has a row of its locked */
    bool in_savepoint;
    struct set_savepoint set_savepoint;
    int64_t sql_ms;             /* that its SQL has taken so far */
    bool broken;                /* its SQL has failed, so that nothing but undoing it is of use */
    const struct claim *claims; /* that it has presented; borrowed */
    size_t claims_count;
};

static inline struct pg_txn *pg_txn_of(struct store_txn *txn)
{
    return (struct pg_txn *)txn;
}

/* The operation cannot go on, for the first of its reasons. Return STK_STORE. */
static inline enum stk_error pg_stop(struct pg_txn *txn, enum pg_stop stop)
{
    if (txn->stop == PG_ON)
        txn->stop = stop;
    return STK_STORE;
}

/* A transaction that was sent and came back at these times found that a synchronous standby has all
 * there is, or that none has. Another daemon may have noted the change. One that came back before
 * the newest such finding says nothing. */
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
/* The same in two steps: send all of it, and later wait for how it ended. */
void pg_commit_send(struct pg_txn *txn);
enum pg_ended pg_commit_take(struct pg_txn *txn);
/* Give the transaction up. The set is empty after. */
void pg_roll_back(struct pg_txn *txn);
/* On a connection that was made anew: what became of the transaction of that mark? PG_COMMITTED
 * (and replicated), PG_NOT, or PG_UNKNOWN: the server could not be asked, or shared->lost. */
enum pg_ended pg_outcome(struct pg_txn *txn, int64_t mark);

#endif
