/* SPDX-License-Identifier: Apache-2.0 */
/* Leases, inside the engine. The commands stand on four jobs (acquire, renew, release, and a check
 * of what is held), and those on the line of waiters and the table of what was granted here:
 *
 *   ACQUIREALL, a permit (permits.c), a place of ACQUIRE ... QUEUE (queue.c)
 *     ├────▶ ACQUIRE: floor ─▶ ask ─▶ record ─▶ reply
 *     ├────▶ RENEW       │               (the commands: acquire_command.c, their options:
 *     │        │         │                options.c; the store's part of it: record.c;
 *     │        │         │                what waits: wait.c; what goes back: give_back.c)
 *     │        │         │
 *     └────────┼─────────┴──▶ RELEASE, REVOKE
 *              ▼                    │
 *            held.c  ◀──────────────┤     leases confirmed here: events, EPHEMERAL, expiry
 *              │                    │     (earlier.c: those from before the start;
 *              │                    │     elsewhere.c: those that other daemons hold)
 *              ▼                    │
 *            line.c  ◀──────────────┘     who waits for a resource, in order
 *              ▼
 *            lease.c                      what the store has recorded
 *
 * Calls go down in this picture; the way up is a callback that is named for its event. A job is a
 * struct that its caller fills in, keeps still and owns until `on_end`, which is the last thing
 * that happens to it and may come before the function that starts the job returns. */
#ifndef STOCKADE_ENGINE_LEASE_H
#define STOCKADE_ENGINE_LEASE_H

#include "fence/base/state.h"
#include "proxy/engine/internal.h"
#include "proxy/engine/lease/options.h"
#include "proxy/engine/session/facts.h"
#include "proxy/engine/session/session.h"

#define LEASE_TTL_MIN_MS  10
#define LEASE_TTL_MAX_MS  (24 * 3600 * 1000)
#define LEASE_WAIT_MAX_MS LEASE_TTL_MAX_MS
/* Of one ACQUIREALL, and behind the lock keys of one command or script. */
#define LEASES_AT_ONCE_MAX 256
#define LINE_POLL_MS       1000 /* a waiter that missed its wake-up asks again within this */
/* Permit 3 of `pool` is the lease on `pool#3`. */
#define PERMIT_MARK         '#'
#define PERMITS_MAX         10000
#define PERMIT_RESOURCE_MAX (RESOURCE_NAME_MAX - 6) /* bytes: room for the mark and five digits */
/* How often at most a renewal goes without a date in the store. */
#define RENEWAL_WRITTEN_MS (60 * 60 * 1000)

/* For the table of commands. */
command_start lease_acquire, lease_dequeue, lease_acquire_all, lease_renew, lease_release,
    lease_revoke, lease_show, lease_list;
command_start acquire_prepare; /* the order: does it wait? */
command_act acquire_act;       /* one of several permits? */
command_start acquire_abandon, acquire_all_abandon;

/* lease.c: what the commands share. */

/* The name under which a lease service knows an owner: for one that the client named, 128 bits of
 * XXH3 of it; a generated owner is already such a nonce. Two named owners with one nonce would take
 * each other's lock, never each other's token: the store compares the names. */
void lease_nonce(struct bytes owner, bool anonymous, char nonce[LEASE_NONCE_LEN + 1]);
/* Return the connection that took the lease last, where it is one of this daemon's and still open;
 * else NULL. */
struct session *lease_connection(struct engine *engine, const struct lease_record *record);
/* Return the account of the user whose name is in the owner's, kept for the caller. */
struct account *lease_account(struct engine *engine, struct bytes owner);
/* What a receipt remembers of a lease command besides its resource. */
uint64_t lease_fingerprint(const char *command, struct bytes owner);
/* Read a resource's row, and of its newest grant what a lease service may have to know. On the
 * store's thread. `opening` is store_opening(); `owner` takes the owner's name, or is NULL. */
enum stk_error lease_read(struct store_txn *txn, struct bytes resource, int64_t opening,
                          struct resource *row, struct lease_record *record, struct buf *owner);
/* Write a row of which only the lease's numbers have changed: the owner stays who it is. */
enum stk_error lease_rewrite(struct store_txn *txn, const struct resource *row,
                             struct lease *lease);
/* What the id of a request that asks for a lease was used for. */
enum id_use {
    ID_UNUSED,
    ID_REPEATS, /* this very request was granted a lease before, and its token still is good */
    ID_OVER,    /* that lease is over */
    ID_MISUSED, /* another command */
};
/* Ask the receipts. On the store's thread. */
enum stk_error lease_find_repeat(struct store_txn *txn, const struct resource *row, struct bytes id,
                                 uint64_t fingerprint, enum id_use *use);
/* Write the receipt of a command that was answered with `token` and `ttl_ms`. */
enum stk_error lease_remember_grant(struct store_txn *txn, const struct resource *row,
                                    struct bytes id, uint64_t fingerprint, int64_t token,
                                    int64_t ttl_ms);
/* Hand a job's operation to the store. STK_BUSY: its queue is full, `done` will not be called. */
enum stk_error lease_submit(struct engine *engine, struct store_op *op, bool writes,
                            struct bytes resource, store_run *run, store_done *done);

/* Is it the name of a permit? Of which resource, and which one? */
bool lease_is_permit(struct bytes name, struct bytes *resource, int64_t *permit);

/* line.c: those who want one resource at this daemon, in order of arrival. Only the head may take
 * the lease; the others ask once whether they hold it already, and wait. */

struct waiter {
    struct list in_line;
    struct list in_engine;   /* engine->arrivals: those of all lines, in order of arrival */
    struct account *account; /* kept: among whose waiters it is counted; NULL: not by itself */
    struct line *line;
    int64_t joined_ms;
    bool waits;       /* else it is asking, and learns at its next denial what has happened */
    bool passed_over; /* keeps its place, and does not count as long as this is set */
    bool shares;      /* wants a permit, and has not been denied: those behind it may ask, too */
    const struct waiter_events *events;
};

/* One in the line, as it is shown. It borrows the names. */
struct waiter_about {
    const struct session *session; /* NULL: gone */
    struct bytes resource, owner;
    const char *way; /* "wait" on its connection, or a place in the "queue"; NULL: it only asks */
};

/* What may happen to one that waits. It does not wait any more when this is called. */
struct waiter_events {
    struct waiter_about (*on_shown)(const struct waiter *waiter); /* at any time */
    void (*on_turn)(struct waiter *waiter);  /* it is the head, and the lease may be free */
    void (*on_drain)(struct waiter *waiter); /* the daemon stops */
    /* Inheritance, where the store is the only memory of leases: the head gets the lease in the
     * transaction that ends the one before. NULL, all three: not this one. */
    void (*on_heir)(struct waiter *waiter); /* the transaction is about to begin */
    /* Record the token, in that transaction, on the store's thread. */
    enum stk_error (*on_inherit)(struct waiter *waiter, struct store_txn *txn);
    void (*on_inherited)(struct waiter *waiter, bool committed); /* it is over */
};

/* Its account, which has counted it, is the line's until it leaves. */
void line_join(struct engine *engine, struct bytes resource, struct waiter *waiter);
/* `granted_ms`: how long the leaver now holds the lease; 0: it does not. */
void line_leave(struct waiter *waiter, int64_t granted_ms);
/* The holder's time has run out unheard: who is like it, and as silent, goes behind the last one
 * that is not, in its own order. */
void line_put_behind(struct engine *engine, struct bytes resource, const struct silence *silence);
/* Others get its turns until `passed_over` is cleared again, which must come with asking. */
void line_pass_over(struct waiter *waiter);
/* 1 is next. */
int64_t line_place(const struct waiter *waiter);
bool line_is_head(const struct waiter *waiter);
/* May it take what it asks for? It is the head, or all who are before it share. */
bool line_may_take(const struct waiter *waiter);
/* Which permit has been given back since the head asked for this last? 0: none is known. */
int64_t line_take_freed(struct waiter *head);
/* The head of its line; NULL: all are passed over. */
const struct waiter *line_head(const struct waiter *waiter);
/* Was the line woken while its head asked? Says so once. */
bool line_was_woken(struct waiter *head);
/* The head was denied: its turn comes again when the lease may be over, in `held_ms`. */
void line_poll_in(struct waiter *head, int64_t held_ms);
/* The lease may be free: the head's turn; of a permit, that of the line for all of them, too. */
void line_wake(struct engine *engine, struct bytes resource);
/* The head, if it waits, as heir: no wake-up reaches it before on_inherited. Or NULL. */
struct waiter *line_take_heir(struct engine *engine, struct bytes resource);
/* Does anybody stand in it who is not passed over? */
bool line_is_wanted(struct engine *engine, struct bytes resource);
/* How many wait. */
int64_t line_waiters(struct engine *engine, struct bytes resource);
/* Call `each` for those in the resource's line, in order, until it returns false. Return how many
 * there are: those who ask at this moment, or are passed over, count here. */
int64_t line_each(struct engine *engine, struct bytes resource,
                  bool (*each)(void *context, const struct waiter *waiter), void *context);
/* The daemon stops: on_drain for everybody who waits. */
void line_drain(struct engine *engine);

/* elsewhere.c: what another daemon on the same store holds, where the store can tell of its end. */

/* The head of the line was denied by this call: it has its turn again when the lease may be free.
 * `awaited`: of which token it has asked another daemon to tell the end; 0: of none yet. */
void elsewhere_await_turn(struct engine *engine, struct bytes resource, struct waiter *head,
                          const struct lease_call *call, const struct lease_record *record,
                          int64_t *awaited);
/* The store's news that a resource is free, see store_listen. `context` is the engine. */
void elsewhere_on_freed(void *context, struct bytes resource);

/* A holder's part in a lease: what a release ends, a renewal keeps and held.c watches. What tells
 * one holder from another belongs here, so that none of them acts on the wrong one. */
struct hold {
    struct bytes resource;
    int64_t token;
};

/* held.c: the leases that this daemon was the last to confirm, as far as it knows, and has not seen
 * end. */

/* How a lease was confirmed. */
enum grant_by {
    GRANT_NEW,     /* its token is new */
    GRANT_ENTRY,   /* its owner had this very lease already: entered again, or a repeat */
    GRANT_RENEWAL, /* its holder lives */
    GRANT_FOUND,   /* it is from before the daemon's start, and lives still */
};

/* A lease as the store and the lease service have confirmed it just now. */
struct grant {
    enum grant_by by;
    struct bytes resource, owner;    /* a renewal, of a lease that is known: no owner */
    int64_t token, left_ms, ttl_ms;  /* ttl_ms: as it was asked for */
    int64_t until_ms;                /* by the clock; left_ms is what a client is told */
    int64_t age_ms;                  /* so long ago it was granted, or a little longer */
    struct account *account;         /* whose it is; borrowed */
    struct session *session;         /* that asked; NULL: gone */
    struct session *holder;          /* whose connection holds it from now on; NULL: none, or a
                                        renewal that changes nothing about that */
    bool ephemeral;                  /* it ends with that connection */
    bool this_opening;               /* the store says that it was confirmed here before */
    bool counter_ahead;              /* the row is new, and the token not the first one */
    struct lock_client *lock_client; /* took it by a lock key; NULL: nobody did */
};

/* A lease, to be shown. Borrowed for the call. */
struct held_shown {
    struct bytes resource, owner;
    const struct session *holder; /* NULL: its connection is gone */
    int64_t token, ttl_ms;
    int64_t granted_ms; /* since 1970 */
    int64_t until_ms;   /* on the engine's clock */
    uint32_t writes;    /* under its token here; */
    bool counted;       /* are they? (Not of a lease that the history has no entry of.) */
};

/* Where a walk through all leases is. All zero: at the beginning. */
struct held_walk {
    size_t chain, chains;
};

/* Call `each` for the leases of the next part of the table, at least `max` of them if there are so
 * many. False: that was the end. The table may change between two calls: `restarted` tells that it
 * was rebuilt, and the walk begins anew. */
bool held_walk(struct engine *engine, struct held_walk *walk, size_t max, bool *restarted,
               void (*each)(void *context, const struct held_shown *shown), void *context);
/* Return the lease on a resource. False: none that this daemon knows of. */
bool held_find(struct engine *engine, struct bytes resource, struct held_shown *shown);

void held_init(struct engine *engine);
void held_free(struct engine *engine);
/* From now on this daemon watches the lease, whatever it knew of it: every way in which a lease is
 * confirmed ends here. False: it does not know the lease, and the grant does not say whose it is.
 */
bool held_confirmed(struct engine *engine, const struct grant *grant);
struct release;
/* The token was retired here. */
void held_released(const struct release *release);
/* An engine's is_over_unheard: of a holder that has not said a word for half of its time, neither
 * gave the lease back nor renewed it. */
bool held_is_over_unheard(const struct engine *engine, struct bytes resource,
                          struct silence *silence);
/* The token was presented, or is nobody's: who took it by a lock key does not write without it. */
void held_presented(struct engine *engine, struct bytes resource, int64_t token);
/* A connection has gone: calls `each` for its ephemeral leases. */
void held_forget_session(struct session *session,
                         void (*each)(struct session *session, struct hold hold));
/* News from other daemons, see lease_provider_watch. `context` is the engine. */
void held_on_news(void *context, const struct lease_news *news);

/* earlier.c: leases from before the daemon's start. */

/* Find them, a few at a time, where the daemon has the store to itself; else NULL. */
struct earlier *earlier_new(struct engine *engine);
void earlier_free(struct earlier *earlier);

/* release.c: a token ends. The store retires it (or counts one hold less), then the lease service
 * lets go, then who waits is woken. */

enum release_kind {
    RELEASE_HOLD,   /* one hold of the token's owner; the lease ends with the last one */
    RELEASE_ALL,    /* all its holds at once */
    RELEASE_REVOKE, /* whoever holds it, by force */
};

struct release {
    struct engine *engine;
    enum release_kind kind;
    struct hold hold;            /* borrowed until on_end. RELEASE_REVOKE: its token is the only
                                    one; 0: whichever is the newest */
    struct bytes id;             /* RELEASE_HOLD: the request's; empty: none */
    bool own_only;               /* nothing, where another connection has entered since: */
    int64_t opening, connection; /* this one's, as in the row */
    struct doer by;              /* who asks for it; borrowed, as is */
    struct bytes reason;         /* RELEASE_REVOKE: for people; empty: none was given */
    bool unannounced;            /* nobody was told of the grant: no event tells of its end */
    /* Of a grant that nobody was told of: its ID, and its lock's value, are as before; or empty. */
    struct bytes grant_id, value;
    void (*on_end)(struct release *release);

    /* The result. */
    enum stk_error error;   /* BUSY, STORE: nothing happened */
    enum stk_error verdict; /* the token rule's word */
    bool misused;           /* the id is another command's */
    bool ended;             /* the lease ended by this */
    int64_t holds;          /* left */
    int64_t retired_token;  /* RELEASE_REVOKE: the newest; 0 where none was ever granted */

    /* Its own. */
    struct waiter *heir; /* gets the lease in the same transaction; NULL: nobody */
    char nonce[LEASE_NONCE_LEN + 1];
    int64_t ttl_ms;
    struct store_op op;
    struct lease_call call;
};

void release_start(struct release *release);
/* A connection is gone: its ephemeral leases end. */
void release_session_closed(struct session *session);

/* Nobody is left who could repeat this release, and it has to be done: try until it is, or the
 * lease's time is over, at `until_ms` or as it is known here. Its bytes are copied. */
void release_owe(const struct release *release, int64_t until_ms);
/* The same for a lease that ends with this connection, which has closed. */
void release_ephemeral(struct engine *engine, struct hold hold, uint64_t connection);
void release_init(struct engine *engine);
void release_free(struct engine *engine);

/* renew.c: the holder's lease lives on. */

struct renewal {
    struct engine *engine;
    struct session *const *session; /* the request's; turns NULL when the client goes */
    struct hold hold;               /* its own copy */
    _Atomic int64_t ttl_ms;         /* of one ahead: as it was asked for last */
    bool notify;                    /* the session is to be told when the lease is lost */
    void (*on_end)(struct renewal *renewal);
    void *context; /* the asker's */

    /* The result. */
    enum stk_error error; /* STALE and UNKNOWN: the token rule's word */
    const char *reason;   /* for people; NULL: the code's usual text */
    bool lost;            /* the lease is over */
    int64_t left_ms;

    /* Its own. */
    unsigned rounds;
    bool taken;                    /* another has the lock */
    struct unknown_lease *unknown; /* NULL: the daemon knows the lease */
    int64_t opening;               /* store_opening() */
    int64_t dated_ms; /* the row is written where it was written longer ago than this */
    enum stk_error verdict;
    struct resource row;
    struct lease_record record;
    struct store_op op;
    struct lease_call call;
    struct list waiting; /* in engine->confirming, while the store confirms */
    int64_t confirm_ms;  /* since when it does */
    int64_t due_ms;      /* when it will have waited for long */
    bool ahead;          /* answered already, and in engine->renewals */
    struct table_node node;
    int64_t good_ms;          /* of one ahead: until then, as its askers were told */
    int64_t confirmed_ttl_ms; /* as the row has it now */
    char name[];
};

/* Have a lease live for ttl_ms from now on. `on_end` is called once, and may free what `session`
 * points to; the renewal frees itself. */
struct renewal *renewal_new(struct engine *engine, struct hold hold, int64_t ttl_ms);
void renewal_start(struct renewal *renewal);
void renewals_init(struct engine *engine);
void renewals_free(struct engine *engine);

/* show.c: what a lease is like right now, for LEASE and for lock keys. */

struct lease_view {
    struct engine *engine;
    struct bytes resource; /* borrowed until on_end */
    bool asks_anyway;      /* the lease service, though the store says that nothing was granted */
    void (*on_end)(struct lease_view *view);

    /* The result. */
    enum stk_error error;
    const char *reason; /* of LEASEDOWN, for people */
    struct resource row;
    struct lease_record record;
    struct buf owner; /* of the newest grant; freed by the caller */
    bool locked;      /* by the lease service somebody holds it: nobody else is granted it */
    bool held;        /* under the newest token that the store knows, which lives */
    int64_t left_ms;

    /* Its own. */
    unsigned rounds;
    int64_t opening;
    struct store_op op;
    struct lease_call call;
};

void lease_view_start(struct lease_view *view);

/* deadlock.c: who waits on a connection, and whose lease would be ended by what stands behind. */

struct deadlock {
    void (*on_found)(struct deadlock *deadlock); /* once */

    /* The result. */
    bool found; /* the wait ends for nothing but its time */

    /* Its own. */
    struct bytes resource; /* borrowed */
    int64_t token;         /* RELEASE of this one ends the lease, or of a later one */
    struct behind behind;
};

/* It waits for the resource, for which the call was denied: look behind it from now on. It may be
 * found at once. */
void deadlock_watch(struct deadlock *deadlock, struct session *session, struct bytes resource,
                    const struct lease_call *call, const struct lease_record *record);

/* wait.c: the time for which somebody waits in line. */

struct lease_wait {
    /* It is in vain: its time is up (STK_OK), or nothing can end it before that (STK_DEADLOCK). */
    void (*on_vain)(struct lease_wait *wait, enum stk_error why);

    /* Its own. */
    int64_t since_us;         /* 0: it has not begun */
    int64_t awaited;          /* the token of which another daemon is to tell the end */
    struct deadlock deadlock; /* its watcher says what for */
    struct timer deadline;
};

/* Begin, where it has not. */
void lease_wait_begin(struct lease_wait *wait, struct engine *engine, int64_t until_ms);
/* It is over, one way or the other, if it had begun. `session`: of who waits; NULL: gone. */
void lease_wait_end(struct lease_wait *wait, struct engine *engine, struct session *session);

/* acquire.c: a lease is granted. */

#define ID_OF_ANOTHER "this ID was used for another command"

/* Where an acquire stands. In all states but IDLE it is in line, its client may be gone, and is
 * told nothing yet. */
enum acquire_state {
    ACQUIRE_IDLE,        /* not begun, or over; or keeps its place in the line, until asked again */
    ACQUIRE_FLOOR,       /* the store reads which tokens were used up, and who has the lease */
    ACQUIRE_LOOKING,     /* the lease service is asked whether its owner has the lease still */
    ACQUIRE_ASKING,      /* the lease service is asked for the lease */
    ACQUIRE_WAITING,     /* another has it, and it waits for its turn */
    ACQUIRE_INHERITING,  /* the transaction that ends that lease may record its own */
    ACQUIRE_CLAIMING,    /* has inherited: the lease service is told */
    ACQUIRE_RECORDING,   /* granted: the store records the token */
    ACQUIRE_YIELDING,    /* not recorded, for its holder may renew first: the lock is let go */
    ACQUIRE_UNLOCKING,   /* not recorded, and it gives up: the lock is let go */
    ACQUIRE_GIVING_BACK, /* recorded, but nobody can be told, or its time is over: it is released */
};

/* For whom, and so what is done where another has the lease. */
enum acquire_way {
    WAY_ONCE,       /* ACQUIRE: it is denied */
    WAY_WAITS,      /* ACQUIRE ... WAIT: it stands in line until options.wait_until_ms */
    WAY_PLACE,      /* ACQUIRE ... QUEUE: it is denied, and keeps its place: a `waiter` whose events
                       are its caller's */
    WAY_PROBE,      /* for such a place, finds out whether the lease is free, and takes nothing */
    WAY_BASKET,     /* one of ACQUIREALL, or a permit: it is denied. Who asks has a `place`, and
                       remembers its id */
    WAY_LOCK,       /* a lock key: it is denied, also where its owner is who has the lease. The
                       owner is the lock's value, and stands for the token */
    WAY_LOCK_AGAIN, /* the same, but its owner may enter again */
};

/* Has one of its account's leases been set aside for it? */
enum acquire_allowance {
    ALLOWANCE_UNASKED,
    ALLOWANCE_TAKEN,
    ALLOWANCE_REFUSED, /* its user may have no more, says `why` */
};

/* What the store has made of a grant. From RECORDED_NEW on the lease is the asker's. */
enum acquire_recorded {
    RECORDED_NOT,    /* not admitted, or not asked yet */
    RECORDED_TWIN,   /* WAY_LOCK: one with the same value was quicker, and has the lease */
    RECORDED_YIELDS, /* not yet: the holder was at work when its time was over, and may renew */
    RECORDED_NEW,    /* under a new token */
    RECORDED_ENTRY,  /* its owner's lease has one hold more */
    RECORDED_REPEAT, /* its id was granted this lease before: no hold more */
};

struct acquire {
    struct engine *engine;
    struct session *session; /* NULL: gone */
    struct account *account; /* whose it is, from its beginning to its end */
    struct bytes resource;   /* borrowed until on_end, as are the options */
    int64_t ttl_ms;
    struct lease_options options;
    uint64_t fingerprint; /* with an id */
    enum acquire_way way;
    struct waiter *place; /* WAY_BASKET: the asker's, in the line */
    void (*on_end)(struct acquire *acquire);

    /* The result. */
    enum stk_error error;
    const char *reason;             /* for people; NULL: the code's usual text */
    struct grant grant;             /* its token is 0: denied, or nobody wants it any more */
    enum acquire_recorded recorded; /* granted: in which way */
    bool is_free;                   /* a probe's: the lease may be had, or is its owner's already */

    /* Its own. */
    enum acquire_state state;
    struct waiter waiter;
    char generated[LEASE_NONCE_LEN + 1 + ACL_USER_MAX]; /* an owner, with its user */
    bool anonymous;
    struct buf owner;            /* of a repeat: as whom it was granted */
    int64_t opening, connection; /* for the row: the store's opening, this client's id */
    struct resource row;
    struct lease_record record;
    enum id_use id_use;
    bool looked;   /* WAY_LOCK: its owner does not have the lease */
    bool is_ahead; /* of this round: grant.counter_ahead */
    enum acquire_allowance allowance;
    char why[ACCOUNT_WHY_SIZE];
    struct lease_wait wait; /* from its first denial on */
    int64_t asked_us;
    unsigned rounds; /* grants minted again */
    struct store_op op;
    struct lease_call call;
};

static inline bool acquire_keeps_place(const struct acquire *acquire)
{
    return acquire->way == WAY_PLACE || acquire->way == WAY_PROBE;
}

static inline bool acquire_is_by_value(const struct acquire *acquire)
{
    return acquire->way == WAY_LOCK || acquire->way == WAY_LOCK_AGAIN;
}

void acquire_start(struct acquire *acquire);
/* Asks again, for one that has kept its place. */
void acquire_again(struct acquire *acquire);
/* Nobody wants it any more: what waits ends now, what is on its way is given back. */
void acquire_cancel(struct acquire *acquire);

/* give_back.c: what was granted and cannot be told. Each ends with its callback. */

/* Of a grant that the store has recorded: its token ends, unless the lease goes on without it. */
void acquire_give_back(struct acquire *acquire, void (*on_end)(struct acquire *acquire));
/* Of one that the store never took: only the lease service's lock has to go. */
void acquire_let_go(struct acquire *acquire, void (*done)(struct lease_call *call));

/* wait.c: as the events of an acquire's waiter tell it. */
struct waiter_about acquire_shown(const struct waiter *waiter);

/* record.c: the store's part, on its thread. */

store_run acquire_read_floor, acquire_record;
/* A waiter's on_inherit. */
enum stk_error acquire_inherit(struct waiter *waiter, struct store_txn *txn);
/* The connection, as the row has it. */
int64_t acquire_row_connection(const struct acquire *acquire);

/* queue.c: ACQUIRE ... QUEUE, a place in the line that outlives the reply. */

struct queue_ask {
    struct engine *engine;
    struct session *session; /* NULL: gone */
    struct bytes resource;   /* borrowed until on_end, as are the options */
    int64_t ttl_ms;
    struct lease_options options;
    void (*on_end)(struct queue_ask *ask);

    /* The result: a lease, a place, or, where it has left the line or is gone, neither. */
    enum stk_error error;
    const char *reason; /* for people; NULL: the code's usual text */
    const char *why;    /* STK_STORE: as store_op's */
    int64_t token, left_ms;
    int64_t place; /* 1: next */

    /* Its own. */
    struct list link;
    struct place *of;
};

void queue_ask(struct queue_ask *ask);
/* The client is gone: what is on its way is given back. */
void queue_ask_cancel(struct queue_ask *ask);
/* Leave the line. False: there was no such place. */
bool queue_leave(struct engine *engine, struct bytes resource, struct bytes id);
/* A connection has gone: pass its places over, and drop those of EPHEMERAL. */
void queue_session_closed(struct session *session);
void queue_init(struct engine *engine);
void queue_free(struct engine *engine);

#endif
