/* SPDX-License-Identifier: Apache-2.0 */
/* What the lease commands share: the owner's nonce, what the store remembers, the line of those who
 * ask for one resource, and a token's way back. */
#ifndef STOCKADE_ENGINE_LEASE_H
#define STOCKADE_ENGINE_LEASE_H

#include "proxy/engine/internal.h"
#include "proxy/engine/session/session.h"

#define LEASE_TTL_MIN_MS  10
#define LEASE_TTL_MAX_MS  (24 * 3600 * 1000)
#define LEASE_WAIT_MAX_MS LEASE_TTL_MAX_MS
#define LEASE_LOOK_MS     1000 /* a waiter that missed its wake-up looks again within this */
/* How often at most a renewal goes without a date in the store. */
#define RENEWAL_WRITTEN_MS (60 * 60 * 1000)

/* For the table of commands. */
command_start lease_acquire, lease_acquire_all, lease_renew, lease_release, lease_revoke,
    lease_show, lease_list;
command_start acquire_prepare; /* the order: does it wait? */
command_start acquire_abandon, acquire_all_abandon;

/* For the engine: a connection has closed; the daemon stops, and waiters get an error. */
void held_session_closed(struct session *session);
void acquire_drain(struct engine *engine);
void held_init(struct engine *engine);
void held_free(struct engine *engine);

/* The name under which a lease service knows an owner: for one that the client named, 128 bits of
 * XXH3 of it; a generated owner is already such a nonce. Two named owners with one nonce would take
 * each other's lock, never each other's token: the store compares the names. */
void lease_nonce(struct bytes owner, bool anonymous, char nonce[LEASE_NONCE_LEN + 1]);

/* What ACQUIRE and ACQUIREALL take alike. */
struct lease_options {
    int64_t wait_until_ms; /* 0: does not wait */
    struct bytes owner;    /* empty: a new one */
    struct bytes id;       /* empty: none */
    bool ephemeral;
};
/* The options from argv[at] on. False: the request has failed. */
bool lease_options_parse(struct request *request, size_t at, struct lease_options *options);
/* What a receipt remembers of a lease command besides its resource. */
uint64_t lease_fingerprint(const char *command, struct bytes owner);
/* A name that nobody else has. */
void lease_make_nonce(const struct chance *chance, char nonce[LEASE_NONCE_LEN + 1]);

/* What the store knows about a resource's newest grant, copied out of a transaction. */
struct lease_view {
    struct resource row;
    struct lease_memory memory;
    int64_t holds, connection;
    bool runs; /* by what the store knows of its time the lease is not over */
};
/* On the store's thread; `session` is store_session(), `owner` takes the name, or is NULL. */
enum stk_error lease_view_read(struct store_txn *txn, struct bytes resource, int64_t session,
                               struct lease_view *view, struct buf *owner);

/* A token on its way back: the store retires it (or counts one hold less), then the lease service
 * lets go, then who waits is woken. */
enum return_kind {
    RETURN_RELEASE, /* by its token */
    RETURN_REVOKE,  /* whoever holds it */
    RETURN_CLOSE,   /* by its token, all holds at once */
};

struct lease_return {
    /* Set by the caller, who owns it until `done`. */
    struct engine *engine;
    enum return_kind kind;
    struct bytes resource;              /* borrowed until done */
    int64_t token, session, connection; /* RETURN_RELEASE, RETURN_CLOSE; as in the row */
    struct bytes id;                    /* RETURN_RELEASE: the request's; empty: none */
    bool own_only;                      /* nothing, where another connection has entered since */
    bool unseen;           /* nobody was told of the grant: no event tells of its end */
    struct bytes grant_id; /* of the ACQUIRE that nobody was told of: free again; or empty */
    void (*done)(struct lease_return *);

    /* The result. */
    enum stk_error error;   /* BUSY, STORE: nothing happened */
    enum stk_error verdict; /* the token rule's word */
    int64_t holds;          /* left */
    int64_t retired_token;  /* RETURN_REVOKE: 0 where none was ever granted */

    /* Its own. */
    struct acquire *next_holder; /* gets the lease in the same transaction; NULL: nobody */
    bool let_go;                 /* the lease ended by this: the service has to know */
    bool misused;                /* the id is another command's */
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
    struct lease_options options;
    int64_t ttl_ms, left_ms;
    struct bytes owner; /* in the request, `nonce` or request->scratch */
    bool anonymous, recorded;
    bool entered;                /* recorded: the owner has this very lease already */
    bool behind;                 /* the row is new, and the token not the first one */
    bool of_basket;              /* which remembers the id, once it is whole */
    bool repeats;                /* its id was granted before: enters again, uncounted */
    uint64_t fingerprint;        /* with an id */
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
bool line_take_again(struct acquire *head); /* was it woken while its head asked? Says so once */
/* `granted_ms`: how long the leaver now holds the lease; 0: it does not. */
void line_leave(struct acquire *acquire, int64_t granted_ms);
/* The head, if it waits, which is to inherit the lease: no wake-up reaches it before. Or NULL. */
struct acquire *line_next_holder(struct engine *engine, struct bytes resource);
void line_wake(struct engine *engine, struct bytes resource);       /* may be free: the head asks */
void line_on_news(void *context, const struct lease_news *news);    /* `context` is the engine */
int64_t line_waiters(struct engine *engine, struct bytes resource); /* how many wait */
/* lease/renew.c: did this RENEW, which has finished, fail because the lease is over? */
bool renew_lost(const struct request *request);
/* lease/held.c: the leases that this daemon has granted and not seen end. */
struct held_grant {
    struct bytes resource, owner;
    int64_t token, ttl_ms;
    struct session *session;
    bool ephemeral, fresh, behind; /* fresh: not entered again; behind: as in struct acquire */
};
void held_granted(struct engine *engine, const struct held_grant *grant);
/* `notified`, where it is not NULL, is told of the loss from now on, in RESP2, too. */
void held_renewed(struct engine *engine, struct bytes resource, int64_t token, int64_t ttl_ms,
                  struct session *notified);
/* The token was retired here. */
void held_returned(struct engine *engine, struct bytes resource, int64_t token, bool revoked);
/* Another daemon is said to have ended it: asks the service. */
void held_doubt(struct engine *engine, struct bytes resource, int64_t token, bool revoked);

/* lease/acquire.c: ACQUIRE as a part of a basket, whose id this is, and which will remember it. */
void acquire_for_basket(struct request *sub, uint64_t fingerprint);
bool acquire_counted(const struct request *sub); /* it was granted: a hold of its own? */
void acquire_try(struct acquire *acquire);       /* one attempt; the line calls it for its head */
/* The head's token is recorded with its predecessor's return; `inherited`: that is done. */
void acquire_inherit(struct acquire *acquire);
void acquire_inherited(struct acquire *acquire, bool committed);
/* lease/record.c, on the store's thread: the store's word on its token, in `recorded`. */
enum stk_error acquire_record(struct acquire *acquire, struct store_txn *txn);
enum stk_error acquire_record_next_holder(struct acquire *acquire, struct store_txn *txn);
void acquire_stop(struct acquire *acquire); /* it waits, and the daemon is stopping */

#endif
