/* SPDX-License-Identifier: Apache-2.0 */
/* Is the store the one that it was? A server that has not served it before may have forgotten
 * tokens that were given out. Then, before anything is granted or written there, the store begins
 * anew, in one replicated commit: anew.h has the rule. */
#ifndef STOCKADE_STORE_POSTGRESQL_IDENTITY_H
#define STOCKADE_STORE_POSTGRESQL_IDENTITY_H

#include "store/postgresql/transaction.h"

/* Does no move keep the store closed? False: pg->why. Before statements are prepared, which would
 * wait for the move. */
bool pg_check_open(struct pg *pg);
/* What was found on the way. */
struct pg_anew {
    const char *why; /* NULL: nothing; else why the store begins anew */
    int64_t floor;
    bool ended; /* all leases */
};
/* On a connection that was made anew. False: pg->why; close the connection. */
bool pg_check_identity(struct pg_txn *txn, struct pg_anew *anew);

#endif
