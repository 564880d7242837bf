/* SPDX-License-Identifier: Apache-2.0 */
/* What the lease commands share: the owner's nonce, what the store remembers, the line of those who
 * ask for one resource, and a token's way back. */
#ifndef STOCKADE_ENGINE_LEASE_H
#define STOCKADE_ENGINE_LEASE_H

#include "proxy/engine/internal.h"

#define LEASE_TTL_MIN_MS  10
#define LEASE_TTL_MAX_MS  (24 * 3600 * 1000)
#define LEASE_WAIT_MAX_MS LEASE_TTL_MAX_MS
#define LEASE_LOOK_MS     1000 /* a waiter that missed its wake-up looks again within this */

/* The name under which a lease service knows an owner: for one that the client named, 128 bits of
 * XXH3 of it; a generated owner is already such a nonce. Two named owners with one nonce would take
 * each other's lock, never each other's token: the store compares the names. */
void lease_nonce(struct bytes owner, bool anonymous, char nonce[LEASE_NONCE_LEN + 1]);

/* What the store knows about a resource's newest grant, copied out of a transaction. */
struct lease_view {
    struct resource row;
    struct lease_memory memory;
    int64_t holds, connection;
};
/* On the store's thread. `session` is store_session(). Where `owner` is not NULL the owner's name
 * is copied there. */
enum stk_error lease_view_read(struct store_txn *txn, struct bytes resource, int64_t session,
                               struct lease_view *view, struct buf *owner);

/* A token on its way back: the store retires it (or counts one hold less), then the lease service
 * lets go, then who waits is woken. */
enum return_kind { RETURN_RELEASE, RETURN_REVOKE };

struct lease_return {
    /* Set by the caller, who owns it until `done`. */
    struct engine *engine;
    enum return_kind kind;
    struct bytes resource; /* borrowed until done */
    int64_t token;         /* RETURN_RELEASE */
    void (*done)(struct lease_return *);

    /* The result. */
    enum stk_error error;   /* BUSY, STORE: nothing happened */
    enum stk_error verdict; /* the token rule's word */
    int64_t holds;          /* left */
    int64_t retired_token;  /* RETURN_REVOKE: 0 where none was ever granted */

    /* Its own. */
    bool let_go; /* the lease ended by this: the service has to know */
    struct lease_memory memory;
    struct store_op op;
    struct lease_call call;
};
void lease_return_start(struct lease_return *back);

/* The line: all ACQUIREs under way for one resource, in order of arrival. Only the head may take
 * the lease; the others ask once, whether they hold it already, and wait. */
enum acquire_phase {
    ACQUIRE_READING,
    ACQUIRE_ASKING,
    ACQUIRE_RECORDING,
    ACQUIRE_WAITING,
    ACQUIRE_RETURNING
};

struct acquire {
    struct request *request;
    struct line *line;
    struct list in_line;
    enum acquire_phase phase;
    struct timer deadline;
    int64_t wait_until_ms; /* 0: does not wait */
    int64_t ttl_ms, asked_ms, left_ms;
    struct bytes owner; /* in the request, or `nonce` */
    bool anonymous, recorded;
    int64_t session, connection; /* for the row: the store's session, this client's id */
    unsigned rounds;             /* grants minted again */
    char nonce[LEASE_NONCE_LEN + 1];
    struct lease_view view;
    struct lease_call call;
    struct lease_return back;
};

void line_join(struct engine *engine, struct acquire *acquire); /* at the tail */
bool line_is_head(const struct acquire *acquire);
/* The head was denied: look again when the lease may be over, in `held_ms`. */
void line_look_in(struct acquire *head, int64_t held_ms);
/* Was the line woken while its head was asking? Answers once. */
bool line_take_again(struct acquire *head);
/* `granted_ms`: how long the leaver now holds the lease; 0: it does not. */
void line_leave(struct acquire *acquire, int64_t granted_ms);
/* The lease may be free: the head asks. */
void line_wake(struct engine *engine, struct bytes resource);
/* How many are waiting. */
int64_t line_waiters(struct engine *engine, struct bytes resource);

/* lease_acquire.c: begins one attempt; called by the line for its head. */
void acquire_try(struct acquire *acquire);
/* Ends one that waits: the daemon is stopping. */
void acquire_stop(struct acquire *acquire);

#endif
