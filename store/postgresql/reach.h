/* SPDX-License-Identifier: Apache-2.0 */
/* Reaching the database, and reaching it again: each of a store's threads has its connection, and
 * tries anew when it is needed, but not more often than every so often. Before that the answer is
 * the last reason, at once. */
#ifndef STOCKADE_STORE_POSTGRESQL_REACH_H
#define STOCKADE_STORE_POSTGRESQL_REACH_H

#include "fence/base/clock.h"
#include "store/postgresql/transaction.h"
#include "store/reasons.h"

struct reach {
    struct pg_txn txn;
    const struct log *log;
    struct store_reasons *reasons;
    int64_t again_ms;           /* not before, by clock_monotonic, */
    int64_t reached;            /* unless another thread has reached it since */
    bool reported;              /* the outage was logged, */
    int64_t logged_ms;          /* last then, by clock_monotonic, */
    char logged[STORE_WHY_MAX]; /* with this reason */
    char why[STORE_WHY_MAX];    /* of the outage */
};

/* `uri` and the others are borrowed. */
void reach_init(struct reach *reach, const char *uri, enum pg_connection connection,
                struct pg_shared *shared, struct store_reasons *reasons, const struct log *log);
void reach_free(struct reach *reach);
/* Is there a connection, or can one be made now? It has the schema, the statements, and knows that
 * the store is the one that it was. False: reach->why. */
bool reach_ready(struct reach *reach);
/* An attempt has failed, and there may be another: remembers why. */
void reach_note(struct reach *reach);
/* The server or the connection has failed, and there is no other attempt: remembers and logs why,
 * once for an outage, and now and then where its reason has become another one. */
void reach_failed(struct reach *reach);
/* Something has succeeded. */
void reach_good(struct reach *reach);
/* Fail an operation with the reason of the outage. */
void reach_fail(struct reach *reach, struct store_op *op);

#endif
