/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE ... PERMITS n: one of n permits, each of which is an exclusive lease on a resource of its
 * own, `resource#1` to `resource#n`. */
#ifndef STOCKADE_ENGINE_LEASE_PERMITS_H
#define STOCKADE_ENGINE_LEASE_PERMITS_H

#include "proxy/engine/lease/lease.h"

#define PERMITS_AT_ONCE 256 /* in one look at the store */
/* Of the lease service, for one try, however many permits there are. */
#define PERMIT_QUESTIONS_MAX 4

enum permits_state {
    PERMITS_NEW,
    PERMITS_LOOKING, /* the store is read: which permits may be free, does its owner have one? */
    PERMITS_ASKING,  /* one of them is acquired */
    PERMITS_WAITING, /* all are taken */
    PERMITS_REMEMBERING, /* it has one, and the store remembers that for its ID */
    PERMITS_RETURNING,   /* it gives that back */
    PERMITS_ENDED,
};

/* What the store knows of a permit. */
enum permit_seen {
    SEEN_FREE,  /* nobody has it */
    SEEN_OVER,  /* its time is over, unless it was renewed in the lease service only */
    SEEN_TAKEN, /* for `left_ms` */
    SEEN_OWN,   /* its owner has it already */
};

struct permits {
    struct engine *engine;
    struct session *session;       /* NULL: gone */
    const struct acl_user *rights; /* by which a permit may be had; NULL: any. Borrowed until
                                      on_end, as are the next ones */
    struct bytes resource;
    struct lease_options options;
    int64_t ttl_ms;
    void (*on_end)(struct permits *permits);

    /* The result. */
    enum stk_error error; /* STK_NOPERM: none of the permits is for this user */
    const char *reason;   /* for people; NULL: the code's usual text */
    const char *why;      /* STK_STORE: as store_op's */
    int64_t token;        /* 0: denied, or nobody wants it any more */
    int64_t left_ms, permit;

    /* Its own. */
    enum permits_state state;
    uint64_t fingerprint;
    char nonce[LEASE_NONCE_LEN + 1]; /* of an owner that the client named */
    struct waiter waiter;
    struct lease_wait wait;
    int64_t start;     /* the permit at which this look began, less 1 */
    int64_t looked;    /* so many were seen before this part of it */
    bool was_next;     /* nobody who waits was before it then */
    bool is_permitted; /* at least one is for this user */
    struct {
        enum permit_seen seen;
        int64_t left_ms;
    } part[PERMITS_AT_ONCE];
    enum id_use id_use;
    struct {
        int64_t token, permit;
    } first; /* what the ID was granted */
    int64_t own;
    int64_t freed; /* somebody has just given it back; 0: none is known */
    struct permit_list {
        int64_t permits[PERMIT_QUESTIONS_MAX];
        size_t count;
    } free, over, candidates; /* the last: in the order in which they are asked for */
    size_t asked;             /* of these */
    bool untried;             /* there are more that may be free */
    bool elsewhere;           /* another daemon has one */
    int64_t soonest_ms;       /* then one may be free again */
    int64_t *denied_ms;       /* for each: until when it is not asked for again; NULL: none was */
    struct store_op op;
    struct acquire acquire;
    int64_t until_ms;
    bool twice; /* the store: the ID was granted another one meanwhile */
    bool lost;  /* the token is over */
    struct release release;
    size_t name_len;
    char name[RESOURCE_NAME_MAX]; /* of the permit that it asks for, or has */
};

void permits_start(struct permits *permits);
/* The client is gone: what is on its way is given back. */
void permits_cancel(struct permits *permits);

#endif
