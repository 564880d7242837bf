/* SPDX-License-Identifier: Apache-2.0 */
/* Is the store the one that it was? Another system, database, table or timeline may have forgotten
 * tokens that were given out: a promoted standby, a restored backup, a copy. Then, in one
 * replicated commit, the floor rises above all of them, and live fences are revoked, unless
 * replication is known to have been synchronous. */
#ifndef STOCKADE_STORE_POSTGRESQL_IDENTITY_H
#define STOCKADE_STORE_POSTGRESQL_IDENTITY_H

#include "store/postgresql/transaction.h"

/* Does no move keep the store closed? False: pg->why. Before statements are prepared, which would
 * wait for the move. */
bool pg_check_open(struct pg *pg);
/* On a connection that was made anew. False: pg->why; close the connection. */
bool pg_check_identity(struct pg_txn *txn);

#endif
