/* SPDX-License-Identifier: Apache-2.0 */
/* The store, as its callers see it: operations go in, run inside a transaction on the store's own
 * thread, and come back once what they did is durable.
 *
 *   store_submit ──▶ queue ──▶ [ writer: BEGIN, run, run, run, COMMIT ] ──▶ wake ──▶ store_collect
 *                              [ reader: BEGIN, run, run, run, COMMIT ]              └─▶ op->done
 *
 * - A few brief operations that find the store idle run on the caller's own thread, in store_flush:
 *   waking another thread takes longer than they do.
 * - An operation's `run` is a plain function over the primitives of txn.h; what it means (fencing,
 *   commands) is the caller's business. It sees the state as of all earlier operations, and no
 *   other operation or process changes anything while it runs.
 * - `run` may be called more than once: from scratch each time, with nothing kept of the earlier
 *   call. So it touches nothing but its operation and the transaction.
 * - An operation that returns an error leaves no trace. If it has changed something by then (or SQL
 *   has ended the transaction), everything is rolled back; the operations before it run again
 *   without it, those after it follow in another transaction. It does not run again itself, unless
 *   it was the store that failed it: then it gets one more chance, first in a transaction.
 * - `done` is called from store_collect, on the caller's thread, after the commit, in the order of
 *   submission (writes among writes, reads among reads, slow reads among themselves). Where the
 *   database is shared, writes keep it only where they are about the same resource.
 * - A read sees every write that was collected before the read was submitted.
 * - The tokens of a resource never fall, whatever `run` puts: to put a smaller one is a bug, and
 *   ends the process. A row that is removed leaves its token to the store-wide floor.
 * - Queues are bounded: a full one refuses with STK_BUSY.
 * - A commit that failed cleanly fails its operations with STK_STORE. If its outcome is unknown (an
 *   fsync failed, or the files went away), nothing is answered: store_lost() turns true, and the
 *   process has to end.
 *
 * There are two stores for users (sqlite/, postgresql/), and others in the tests, so a store is a
 * table of functions. To write one, embed `struct store` and `struct store_txn` (txn.h) first in
 * your own structs and point them at your tables; tests/unit/store/twins_test.c runs two stores
 * side by side. Ages go by the store's time (clock.h), not by any wall clock. */
#ifndef STOCKADE_STORE_STORE_H
#define STOCKADE_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/durations.h"
#include "fence/base/err.h"
#include "fence/base/list.h"

struct store_txn; /* txn.h */

#define STORE_WHY_MAX 224 /* bytes of a reason, one line, its end included */
/* The same of why a store cannot be opened: room for two paths, of which SQLite's have 512 bytes at
 * most, and for what is wrong with them. */
#define STORE_OPEN_WHY_MAX 1200

/* A resource that an operation is likely to ask for, and there a field, or the receipt of an ID;
 * both may be empty. Borrowed. */
struct store_hint {
    struct bytes resource, field, receipt;
};
typedef void store_each_hint(void *context, const struct store_hint *hint);

struct store_op;
/* On the store's thread. STK_OK: keep what was done (also where the command was refused without
 * touching anything). Anything else undoes it; the error reaches `done` in `error`. */
typedef enum stk_error store_run(struct store_op *op, struct store_txn *txn);
/* On the caller's thread. */
typedef void store_done(struct store_op *op);

/* Owned by the caller, who leaves it alone from submit to done. */
struct store_op {
    bool writes; /* else it may only read */
    bool slow;   /* a read that may take long, and must not hold up the others */
    bool brief;  /* takes microseconds: may run where it is submitted */
    /* The resource that it looks up first, borrowed, or empty: a hint that makes a batch faster. A
     * wrong one does no harm. */
    struct bytes about;
    /* Call `each` for all that it is likely to ask for, on the store's thread: for a store that
     * loads rows before it runs operations. These are hints, too. May be NULL. */
    void (*hints)(const struct store_op *op, store_each_hint *each, void *context);
    store_run *run;
    store_done *done;
    int64_t submitted_us; /* on the store's clock, to measure its queue */
    enum stk_error error;
    const char *why;  /* of STK_STORE, for people; good within `done`; NULL: unknown */
    struct list link; /* the store's own; so the next */
    int64_t waits_since_ms;
    uint64_t number; /* in the order in which they came */
    /* It had to wait for another program's transaction. Good within `run`, and in `done`. */
    bool found_locked;
    _Atomic int64_t held_up_ms; /* the store's: for store_holds_up */
};

/* Does it take writes? */
enum store_state {
    STORE_FINE,
    STORE_FAILING, /* the last one failed; the next may succeed */
    STORE_STOPPED, /* none succeeds until a person has done something */
};

/* How far the writer and the reader have come; counters since the start. */
struct store_stats {
    uint64_t commits, writes, reads, read_batches, failed_commits, foreign_commits;
    size_t writes_queued, reads_queued;
    size_t batch_writes_max;       /* the largest batch so far */
    struct durations queued;       /* writes, until their batch began */
    struct durations commits_took; /* those that changed something */
    /* Of a database that others use, too; else 0. */
    uint64_t lock_waits;        /* operations that waited long because a row was locked */
    uint64_t batch_reruns;      /* batches that ran again: others were quicker, or it was cut off */
    uint64_t guard_refusals;    /* statements and present() of other programs that were refused */
    uint64_t backends_ended;    /* of daemons that stood still with rows locked */
    uint64_t oldest_snapshot_s; /* age of the oldest one, for which dead rows are kept; in SQLite
                                 * of one that holds the log, at least so much */
    uint64_t log_bytes;         /* SQLite's write-ahead log, on the disk; else 0 */
    struct durations barriers;  /* reads, until what they tell is replicated */
    bool writer_rests, reader_rests; /* the thread has nothing to do */
    enum store_state state;
    char why[STORE_WHY_MAX]; /* of the state, for people; empty: STORE_FINE */
    /* Which guard is broken, and how, for people; empty: none is known to be. */
    char guard[STORE_WHY_MAX];
};

/* A statement, or present(), of a program that writes by itself was refused. */
struct store_refusal {
    enum stk_error code;   /* STK_STALE, STK_UNKNOWN, STK_GUARDED, STK_NOTOKEN */
    struct bytes resource; /* good within the call */
    int64_t token, newest; /* 0: none was presented */
};

/* What the store's owner may be told besides. Either may be missed now and then. */
struct store_news {
    /* A lease was ended at another daemon, where txn_await has asked for that. */
    void (*on_freed)(void *context, struct bytes resource);
    void (*on_refused)(void *context, const struct store_refusal *refusal);
    void *context;
};

/* What a store does; call it by the names below. */
struct store {
    const struct store_impl *impl;
};

struct store_impl {
    /* STK_OK, or STK_BUSY: the queue is full, and `done` will not be called. */
    enum stk_error (*submit)(struct store *store, struct store_op *op);
    /* Begin what was submitted, since no more is coming for now. Until then the threads may leave
     * it waiting, so that what belongs together is committed together. On the thread that
     * submits. True: some of it is finished already; collect it, `wake` is not called for it.
     * NULL in a store without threads. */
    bool (*flush)(struct store *store);
    /* Call `done` for what is finished. To be called after `wake`, on the thread that submits. */
    void (*collect)(struct store *store);
    /* Have store_collect tell the news. NULL in a store that is told nothing by others. */
    void (*listen)(struct store *store, const struct store_news *news);
    /* Run at most one batch of writes and one of reads, in a store without threads (a simulator, a
     * unit test). Return whether there was anything to do; store_collect delivers it. */
    bool (*step)(struct store *store);
    /* Is this write, which was submitted, held up by a transaction that has what it is about locked
     * right now, another program's or one of this store's own? Until that ends nobody else changes
     * it, and of what was submitted for it later nothing comes first. NULL: none ever is. */
    bool (*holds_up)(const struct store *store, const struct store_op *op);
    /* Is the outcome of a commit unknown? Then end the process without answering what is open. */
    bool (*lost)(const struct store *store);
    /* Return the number of this opening of the store for writing; rows remember under which
     * one they were granted. STORE_OPENING_FIRST is the opening that makes the store. */
    int64_t (*opening)(const struct store *store);
    struct store_stats (*stats)(const struct store *store);
    /* Run what is queued, deliver it, close. To be called on the thread that submits. */
    void (*close)(struct store *store);
};

#define STORE_OPENING_FIRST 1

#define store_submit(store, op) ((store)->impl->submit((store), (op)))
#define store_flush(store)      ((store)->impl->flush != NULL ? (store)->impl->flush(store) : false)
#define store_collect(store)    ((store)->impl->collect(store))
#define store_hears(store)      ((store)->impl->listen != NULL)
#define store_listen(store, news)                                                                  \
    (store_hears(store) ? (store)->impl->listen((store), (news)) : (void)0)
#define store_step(store) ((store)->impl->step(store))
#define store_holds_up(store, op)                                                                  \
    ((store)->impl->holds_up != NULL && (store)->impl->holds_up((store), (op)))
#define store_lost(store)    ((store)->impl->lost(store))
#define store_opening(store) ((store)->impl->opening(store))
#define store_stats(store)   ((store)->impl->stats(store))
#define store_close(store)   ((store)->impl->close(store))

#endif
