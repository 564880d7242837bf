/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of the store's, with the transaction on it and the policy by which it is tried
 * again. Each of a store's threads has one of its own (the writer has two).
 *
 * A connection that is gone is made anew when it is needed, but at most every 250 ms, unless
 * another thread has come through meanwhile. Until then operations fail at once, with the reason
 * of the last attempt. */
#ifndef STOCKADE_STORE_POSTGRESQL_CONNECTION_H
#define STOCKADE_STORE_POSTGRESQL_CONNECTION_H

#include "fence/base/clock.h"
#include "store/postgresql/transaction.h"
#include "store/reasons.h"

/* When the next attempt is due, and what was told of the outage. Times are clock_monotonic's. */
struct pg_retry {
    int64_t again_ms;           /* there is no other attempt before, */
    int64_t made;               /* unless more connections were made than these */
    bool reported;              /* the outage was logged: */
    int64_t logged_ms;          /* last at this time, */
    char logged[STORE_WHY_MAX]; /* with this reason */
    char why[STORE_WHY_MAX];    /* why the last attempt failed */
};

struct pg_connection {
    struct pg pg;
    struct pg_txn txn; /* the one under way; txn.pg is the connection above */
    struct pg_retry retry;
    const struct log *log;         /* borrowed, may be NULL */
    struct store_reasons *reasons; /* borrowed */
};

/* All pointers are borrowed. The connection must not be moved after. */
void pg_connection_init(struct pg_connection *connection, const char *uri, enum pg_connection_id id,
                        struct pg_shared *shared, struct store_reasons *reasons,
                        const struct log *log);
void pg_connection_free(struct pg_connection *connection);
/* The first attempt, which makes the store where there is none. False: it has failed, and waiting
 * does not mend that; `why` says why, and what to do. Where waiting may mend it, that is logged,
 * and pg_connection_ready() tries again. */
bool pg_connection_open(struct pg_connection *connection, char *why, size_t why_size);
/* Return whether the connection can be used; make it anew where it has to be. It has the schema
 * and the statements then, and knows that the store is the one that it was. False: retry.why says
 * why not. */
bool pg_connection_ready(struct pg_connection *connection);
/* An attempt has failed, and another one may follow: remember why in retry.why. */
void pg_connection_note(struct pg_connection *connection);
/* The last attempt has failed: remember why, and log it, once for an outage and again, at most
 * every 10 s, when its reason has become another one. */
void pg_connection_failed(struct pg_connection *connection);
/* The server has answered: the outage, if there was one, is over. */
void pg_connection_works(struct pg_connection *connection);
/* Fail an operation with retry.why. */
void pg_connection_fail_op(struct pg_connection *connection, struct store_op *op);

#endif
