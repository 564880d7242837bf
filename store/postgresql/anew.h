/* SPDX-License-Identifier: Apache-2.0 */
/* The rule by which we recognise a store that may have forgotten something, and what we do then. It
 * does no I/O: identity.c finds the signs.
 *
 *   sign                                   tokens go on from the time   all leases end
 *   another system, database or table      yes                          yes
 *   another timeline (a promotion)         yes                          yes, but see below
 *   another run of the server              yes                          no
 *   a commit is missing that this          yes                          yes
 *   process has told somebody of
 *
 * After a promotion leases go on if nothing can be lost: the old server replicated synchronously,
 * and this process misses no commit. The data alone would not do as a witness: that they were
 * replicated they may say from before the loss. So this process must have had the store open, too.
 *
 * One case nobody can recognise: a server is put on older data (a base backup, a snapshot of its
 * disk) and started under the same timeline, while no daemon is at work that remembers more. Tokens
 * rise there, too, but a holder of a lease in those data may write under it. store/POSTGRESQL.md
 * says what the operator has to do. */
#ifndef STOCKADE_STORE_POSTGRESQL_ANEW_H
#define STOCKADE_STORE_POSTGRESQL_ANEW_H

#include <stdbool.h>

struct pg_signs {
    /* What the server and the data show. */
    bool fresh;      /* no daemon has served this store yet */
    bool other;      /* the data were last served in another system, database or table */
    bool promoted;   /* they were last served on another timeline */
    bool restarted;  /* they were last served by another run of the server */
    bool replicated; /* the data say that a synchronous standby had all of them */
    bool lost;       /* a commit is missing that this process has told somebody of */
    /* What this process remembers. */
    bool witness;      /* it has had the store open before */
    bool unreplicated; /* its last transaction found no synchronous standby */
};

/* Return why tokens have to go on from the time; NULL: they go on as they are. Static storage. */
const char *pg_anew_why(const struct pg_signs *signs);
/* May leases have ended without a trace in the data, so that all have to end? */
bool pg_anew_ends_all(const struct pg_signs *signs);

#endif
