/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out whether the store is the one that it was. A server that has not served it before may
 * have forgotten tokens that were given out. Then the store begins anew, in one replicated commit,
 * before anything is granted or written there: anew.h has the rule. */
#ifndef STOCKADE_STORE_POSTGRESQL_IDENTITY_H
#define STOCKADE_STORE_POSTGRESQL_IDENTITY_H

#include "store/postgresql/transaction.h"

/* Return whether the store is open, so that no move keeps it closed; otherwise pg->why says so. To
 * be asked before statements are prepared, since that would wait for the move. */
bool pg_check_open(struct pg *pg);
/* Whether the store began anew, and how. */
struct pg_anew {
    const char *why; /* NULL: it did not */
    int64_t floor;   /* tokens go on above this one */
    bool ended;      /* all leases have ended */
};
/* Check a connection that has just been made. False: pg->why says what is wrong; close the
 * connection. */
bool pg_check_identity(struct pg_txn *txn, struct pg_anew *anew);

#endif
