/* SPDX-License-Identifier: Apache-2.0 */
/* The store, as its callers see it: operations go in, run inside a transaction on the store's own
 * thread, and come back once what they did is durable.
 *
 *   store_submit ──▶ queue ──▶ [ writer: BEGIN, run, run, run, COMMIT ] ──▶ wake ──▶ store_collect
 *                              [ reader: BEGIN, run, run, run, COMMIT ]              └─▶ op->done
 *
 * - A few brief operations that find the store idle run on the caller's own thread, in store_flush:
 *   waking another one takes longer than they do.
 * - An operation's `run` sees the state as of all earlier operations, and is alone with it. It is
 *   a plain function over the primitives of txn.h; what it means (fencing, commands) is the
 *   caller's business. It starts from scratch each time and touches nothing but its operation, for
 *   it may run more than once:
 * - Where an operation that has changed something returns an error (or SQL has ended the whole
 *   transaction), everything is rolled back, and the operations before it run again without it. It
 *   is not run again itself: what it wrote down of its failure stays. The operations after it
 * follow in another transaction. Where it was the store that failed it, the operation gets a second
 *   chance, in a transaction that begins with it.
 * - `done` is called from store_collect, on the caller's thread, in the order of submission (writes
 *   among writes, reads among reads, slow reads among themselves), after the commit.
 * - A read sees every write that was collected before the read was submitted.
 * - Queues are bounded: a full one refuses with STK_BUSY.
 * - A commit that failed cleanly fails its operations with STK_STORE. One with an unknown outcome
 *   (an fsync failed, or the files went away under it) answers nothing: store_lost() turns true,
 *   and the process has to end. */
#ifndef STOCKADE_STORE_STORE_H
#define STOCKADE_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"
#include "fence/base/list.h"

struct store;
struct store_txn; /* txn.h */

#define STORE_WHY_MAX 224 /* bytes of a reason, one line, its end included */

/* Owned by the caller, untouched by it from submit to done. */
struct store_op {
    bool writes; /* else it may only read */
    bool slow;   /* a read that may take long, and must not hold up the others */
    bool brief;  /* takes microseconds: may run where it is submitted */
    /* The resource that it looks up first, borrowed, or empty: a hint, which makes a batch faster
     * and is no harm where it is wrong. */
    struct bytes about;
    /* On the store's thread. STK_OK: keep what was done (also where the command was refused without
     * touching anything). Anything else undoes it; the error reaches `done` in `error`. */
    enum stk_error (*run)(struct store_op *op, struct store_txn *txn);
    void (*done)(struct store_op *op); /* on the caller's thread */
    enum stk_error error;
    const char
        *why; /* STK_STORE: why, for people; NULL: nobody knows. Lives as long as the store */
    struct list link; /* the store's own */
};

/* Whether it takes writes. */
enum store_state {
    STORE_FINE,
    STORE_FAILING, /* the last one failed; the next may succeed */
    STORE_STOPPED, /* none succeeds until a person has done something */
};

/* How far the writer and the reader have come; counters since the start. */
struct store_stats {
    uint64_t commits, writes, reads, read_batches, failed_commits, foreign_commits;
    size_t writes_queued, reads_queued;
    size_t batch_writes_max; /* the largest batch so far */
    enum store_state state;
    char why[STORE_WHY_MAX]; /* of the state, for people; empty: STORE_FINE */
};

/* STK_OK, or STK_BUSY: the queue is full, `done` will not be called. */
enum stk_error store_submit(struct store *store, struct store_op *op);
/* Call it when no more is coming for now: what was submitted may begin. Until then the threads may
 * leave it waiting, so that what belongs together is committed together. On the thread that
 * submits. True: some of it is finished already; collect it, `wake` is not called for it. */
bool store_flush(struct store *store);
/* Calls `done` for what is finished. Call it after `wake`, on the thread that submits. */
void store_collect(struct store *store);
/* For a store without threads (a simulator, a unit test): runs at most one batch of writes and one
 * of reads. Returns whether there was anything to do; store_collect delivers it. */
bool store_step(struct store *store);
/* The outcome of a commit is unknown: end the process without answering what is open. */
bool store_lost(const struct store *store);
/* Returns the number of this opening of the store for writing; rows remember under which one they
 * were granted. The first opening makes the store. */
#define STORE_SESSION_FIRST 1
int64_t store_session(const struct store *store);
struct store_stats store_stats(const struct store *store);
/* Runs what is queued, delivers it, closes. Call it on the thread that submits. */
void store_close(struct store *store);

#endif
