/* SPDX-License-Identifier: Apache-2.0 */
/* Is the store the one that it was? A server that has not served it before may have forgotten
 * tokens that were given out. Then, before anything is granted or written there, the store begins
 * anew:
 *
 *   what is seen                        tokens go on from the time   all leases end
 *   another system, database, table     yes                          yes
 *   another timeline (a promotion)      yes                          unless nothing can be lost: it
 *                                                                    replicated synchronously, and
 *                                                                    this process misses nothing
 *   another run of the server           yes                          no
 *   this process misses a commit that   yes                          yes
 *   it has told somebody of
 *
 * What a copy says of itself (that it was replicated, say) it may have said before what was lost.
 * So it counts only beside what this process remembers.
 *
 * Nobody can know: a server that was put on older data (a base backup, a snapshot of its disk) and
 * started under the same timeline, while no daemon was at work that remembers more. Tokens rise
 * there, too; but who holds a lease in that data may write under it. store/POSTGRESQL.md says what
 * the operator has to do. */
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
