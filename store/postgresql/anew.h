/* SPDX-License-Identifier: Apache-2.0 */
/* The rule by which a store that may have forgotten something is recognised, and what follows. It
 * does no I/O: identity.c finds out what it asks.
 *
 *   what is seen                          tokens go on from the time   all leases end
 *   another system, database, table       yes                          yes
 *   another timeline (a promotion)        yes                          unless nothing can be lost:
 * it replicated synchronously, and this process misses nothing another run of the server yes no
 *   this process misses a commit that     yes                          yes
 *   it has told somebody of
 *
 * What a copy says of itself (that it was replicated, say) it may have said before what was lost.
 * So that counts only beside what this process remembers.
 *
 * Nobody can know: a server that was put on older data (a base backup, a snapshot of its disk) and
 * started under the same timeline, while no daemon was at work that remembers more. Tokens rise
 * there, too; but who holds a lease in that data may write under it. store/POSTGRESQL.md says what
 * the operator has to do. */
#ifndef STOCKADE_STORE_POSTGRESQL_ANEW_H
#define STOCKADE_STORE_POSTGRESQL_ANEW_H

#include <stdbool.h>

/* What the server and the data in it show. */
struct pg_signs {
    bool fresh;      /* nobody has served this store yet */
    bool other;      /* the data were last served at another system, database or table, */
    bool promoted;   /* on another timeline, */
    bool restarted;  /* or by another run of the server */
    bool replicated; /* the data say that a synchronous standby had all of them */
    bool lost;       /* a commit that this process has told somebody of is not there */
    /* What this process remembers. */
    bool witness;      /* anything: it has had the store open before */
    bool unreplicated; /* its last transaction found no standby synchronous */
};

/* Why tokens go on from the time. NULL: they go on as they are. Static storage. */
const char *pg_anew_why(const struct pg_signs *signs);
/* May leases have ended that the data know nothing of? */
bool pg_anew_ends_all(const struct pg_signs *signs);

#endif
