/* SPDX-License-Identifier: Apache-2.0 */
/* How a file is recognised that may not know of all tokens that were given out, and what follows.
 *
 *   what is seen at the opening            tokens go on from the time   all leases end
 *   it is another file than it says        yes                          yes
 *   a version that noted nothing of that   yes                          no
 *     has served it last
 *   the machine was started anew, or it    yes                          no
 *     is another machine
 *   another program has put older          yes                          yes
 *     contents into it, beneath a daemon
 *     that remembers a later fence
 *   a backup is restored                   yes                          yes
 *   nothing of that                        no                           no
 *
 * Another file is a copy, and the one that it was copied from may have been served since, or is
 * served now. After a reboot the file may be as old as a disk that was put back; that looks like
 * any reboot, so leases go on. Where no boot is known, each opening counts as one.
 *
 * Nobody can know, and OPERATIONS.md says what the operator has to do: older contents in the same
 * file under the same boot (`cp` onto it, a file system that was rolled back), unless a daemon sees
 * them come, and a machine whose memory was put back. After a disk was put back, who holds a lease
 * in it may write under it. */
#ifndef STOCKADE_STORE_SQLITE_ANEW_H
#define STOCKADE_STORE_SQLITE_ANEW_H

#include "fence/base/log.h"
#include "store/sqlite/transaction.h"

/* What the file and the machine show. */
struct anew_signs {
    bool fresh; /* nobody has served this store yet, and no token was given out */
    bool other; /* the file says that it is another one */
    bool unnoted;
    bool rebooted;
};

/* Why tokens go on from the time. NULL: they go on as they are. Static storage. */
const char *anew_why(const struct anew_signs *signs);
/* May leases have ended that the file knows nothing of? */
bool anew_ends_all(const struct anew_signs *signs);

struct anew {
    const char *why; /* NULL: it did not begin anew */
    int64_t floor;   /* tokens go on above it */
    int64_t ended;   /* so many leases have ended; -1: none had to */
    bool noted;      /* which file it is was noted anew */
};

/* Begin anew: tokens go on above anew->floor, and unless anew->ended is -1, all leases end, and
 * nothing that was presented for this file counts any more. Within a transaction that writes. */
enum stk_error anew_begin(struct transaction *txn, struct anew *anew);
/* The floor for that. `known` is the largest token that anybody knows of. 0: no token is left. */
int64_t anew_floor(const struct store_clock *clock, int64_t known);
/* When the file is opened: look whether it has to begin anew, do that, and go on with the store's
 * time. Within a transaction that writes. STK_STORE: as transaction_fail, or no token is left. */
enum stk_error anew_open(struct transaction *txn, struct anew *anew);

/* When another program has committed: look whether the file lacks a fence that this process has
 * told somebody of, and then begin anew. Within a transaction that writes. */
enum stk_error anew_follow(struct transaction *txn, struct anew *anew);

/* Say that it has begun anew, and what to do. */
void anew_tell(const struct anew *anew, const char *path, const struct log *log);

#endif
