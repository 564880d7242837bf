/* SPDX-License-Identifier: Apache-2.0 */
/* A lease provider, as its callers see it: a service that knows whether a resource is free right
 * now, and mints tokens. There are Redis, a Redis Cluster, a quorum of Redises, ZooKeeper, and the
 * store's own `local:`.
 *
 * A provider decides about time, never about safety. A grant counts only once the store has
 * admitted its token. What a provider loses or gets wrong costs waiting, never data.
 *
 * A call carries one question and its answer. The caller owns it, and leaves it where it is until
 * it is answered: exactly once, within the provider's timeout. All of this happens on one thread,
 * the loop's. */
#ifndef STOCKADE_FENCE_LEASE_PROVIDER_H
#define STOCKADE_FENCE_LEASE_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/list.h"

enum lease_verb {
    LEASE_GRANT,   /* take it if it is free; enter again if `nonce` holds it already */
    LEASE_RENEW,   /* let `token` of `nonce` live for `ttl_ms`; take it back if nobody has it */
    LEASE_RELEASE, /* let it go if it is still `token` of `nonce` */
    LEASE_QUERY,   /* who holds it? */
    LEASE_INHERIT, /* the store has ended the lease and recorded `token` of `nonce` after it, for
                      `ttl_ms`: let it be known. Only for a service that relies on the store */
};

enum lease_answer {
    LEASE_UNANSWERED = 0,
    LEASE_GRANTED, /* GRANT: a fresh `token` above `floor`; RENEW, INHERIT: it lives `ttl_ms` */
    LEASE_OWN,     /* GRANT: `nonce` holds it already, under `token`, for `ttl_ms` at least */
    LEASE_HELD,    /* another holds it (`token`), for `ttl_ms` still */
    LEASE_FREE,    /* nobody holds it: QUERY, RELEASE done (also where it was gone already),
                      GRANT that was only to enter again */
    LEASE_DOWN,    /* the service cannot be reached or refuses: `reason` */
};

#define LEASE_NONCE_LEN 32 /* hexadecimal digits: 128 bits that stand for the owner */

/* The newest grant of a resource, as the store has recorded it. Of the providers only `local:`
 * needs it, which has no other memory. */
struct lease_record {
    int64_t token;        /* 0: nothing was ever granted */
    int64_t floor;        /* at least so many were used up */
    bool live;            /* not retired */
    bool this_opening;    /* granted by this very daemon since it started */
    bool earlier_opening; /* granted before this daemon opened the store, and not written since */
    bool unexpired;       /* not over, by what the store knows of its time */
    int64_t change;       /* another number after each renewal */
    int64_t age_ms;       /* so long ago at least it was granted or renewed; 0: may be just now */
    int64_t ttl_ms;       /* as granted or last renewed */
    int64_t holds;        /* entries of the owner that were not released */
    int64_t connection;   /* the one that took it last, by its number at its daemon; 0: none */
    bool ephemeral;       /* it ends with that connection */
    int64_t written_ms;   /* so long ago the row was written, by the store's time */
    char nonce[LEASE_NONCE_LEN + 1];
};

struct lease_call {
    /* The question. */
    enum lease_verb verb;
    struct bytes resource;           /* borrowed until answered */
    char nonce[LEASE_NONCE_LEN + 1]; /* the owner, as the service stores it */
    int64_t token;                   /* RENEW, RELEASE: whose; RELEASE of an attempt: 0, any */
    uint64_t attempt;                /* GRANT: set by the provider, its name for this attempt; 0:
                                        it has no need of one. RELEASE: only what this attempt
                                        was granted is given back, and other attempts that share
                                        the lease keep it; 0: the token's lease is over */
    int64_t ttl_ms;                  /* not QUERY; RELEASE: what may be left of the lease: so
                                        long a release that was not delivered is remembered */
    int64_t asked_ms;                /* not RELEASE: now, or earlier, on the caller's
                                        clock, for answer_until_ms */
    int64_t floor;                   /* GRANT: the store's; mint above it */
    int64_t believed_max;            /* GRANT: a counter above this is none: token_believed_max */
    int64_t void_token;              /* GRANT: a lock of `nonce` with this token counts as free,
                                        since the store has not recorded it; 0: none */
    bool reentry_only;               /* GRANT: others wait; enter again or leave it alone */
    bool waits;                      /* GRANT: where another holds it, the caller will ask again,
                                        and keeps its place if the service has a line */
    bool revoked;                    /* RELEASE: taken away by force, which watchers are told */
    struct lease_record record;      /* not RELEASE */
    void (*done)(struct lease_call *call); /* called once, when it is answered */

    /* The answer. */
    enum lease_answer answer;
    int64_t answer_token;
    int64_t answer_ttl_ms; /* HELD: left when the service looked, at least 1: when to ask again */
    /* GRANTED, OWN, HELD: the lease's end on the caller's clock, never later than by the service's
     * own clock. The time left that clients are told runs to here. */
    int64_t answer_until_ms;
    char reason[128]; /* DOWN: why, for people */

    /* The provider's own while the call is under way. */
    struct list link;
    int64_t deadline_ms;
    int64_t rounding_ms;
};

struct lease_health {
    bool up;
    char detail[160]; /* "redis 127.0.0.1:6379: ready", or why it is down */
    uint64_t calls, failures, reconnects;
    bool watching; /* it would hear of what other daemons do */
    uint64_t news; /* heard from other daemons so far */
};

/* What another daemon that shares the service has done to a lease. News may be lost, late or
 * doubled, and anybody who can write to the service can forge them: they are hints, not proofs. */
struct lease_news {
    bool revoked;          /* taken away by force; else given back */
    struct bytes resource; /* borrowed for the call */
    int64_t token;         /* the one that has ended */
};

struct lease_provider;

/* Return what is left of the lease that the call was answered with; 0: it may be over. */
int64_t lease_left_ms(const struct lease_call *call, int64_t now_ms);

/* Does it know of other daemons' leases only by what the store has recorded? Then renewals are
 * written there, for others to see. */
bool lease_provider_relies_on_store(const struct lease_provider *provider);

/* Ask. `done` is called with the answer, maybe before this returns: the call, and what it is a part
 * of, may be gone by then. */
void lease_ask(struct lease_provider *provider, struct lease_call *call);
/* From now on call `on_news` for what other daemons do, on the loop's thread and never within
 * lease_ask. A provider that cannot know of it never calls. */
void lease_provider_watch(struct lease_provider *provider,
                          void (*on_news)(void *context, const struct lease_news *news),
                          void *context);
/* Call `ended` once the first attempt to reach the service has ended, well or not, or after a
 * second: a daemon that starts can then say how things stand. That may be before this returns. One
 * call per provider, and not after lease_provider_close. */
void lease_on_first_attempt(struct lease_provider *provider, void (*ended)(void *context),
                            void *context);
struct lease_health lease_provider_health(const struct lease_provider *provider);
/* Return the kind, for INFO: "redis", "local". Static storage. */
const char *lease_provider_name(const struct lease_provider *provider);
/* Answer what is under way with LEASE_DOWN, and free everything. Call `closed` on the loop's thread
 * when nothing of it is left, maybe before this returns. */
void lease_provider_close(struct lease_provider *provider, void (*closed)(void *context),
                          void *context);

#endif
