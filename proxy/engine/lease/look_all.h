/* SPDX-License-Identifier: Apache-2.0 */
/* A look at several leases: may all of them be had now? None is taken, and none lives longer for
 * it. */
#ifndef STOCKADE_ENGINE_LEASE_LOOK_ALL_H
#define STOCKADE_ENGINE_LEASE_LOOK_ALL_H

#include "proxy/engine/lease/lease.h"

#define LOOKS_MAX 16 /* questions at once to the lease service */

#define ID_LEASES_OVER "the leases that this ID was granted are over; ask again with another ID"

struct look_item {
    struct bytes resource;       /* borrowed until on_end, as is */
    const struct waiter *waiter; /* the asker's place in the line there */

    /* The result. */
    struct lease_record record;
    bool repeats; /* the ID was granted it, and it still is good */
    bool enters;  /* so, or the owner has it already */
};

struct look_question {
    struct look_all *look;
    size_t at; /* the item that it is about */
    bool busy;
    struct lease_call call;
};

struct look_all {
    struct engine *engine;
    struct bytes owner; /* empty: a new one. Borrowed until on_end, as is */
    struct bytes id;    /* empty: none */
    uint64_t fingerprint;
    int64_t ttl_ms;
    void (*on_end)(struct look_all *look); /* the last that happens to it: may free it */
    void *context;                         /* the asker's */

    /* The result. */
    enum stk_error error;
    char reason[160];         /* for people; empty: the code's usual text */
    size_t denied_at;         /* the first one that is held, with the answer: */
    struct lease_call denial; /* `denied_at` is `count`: all are free */

    /* Its own. */
    enum id_use id_use; /* by what the first item says that has something to say */
    char nonce[LEASE_NONCE_LEN + 1];
    size_t next, busy; /* the item to be asked about, questions under way */
    bool asking;
    struct store_op op;
    struct look_question questions[LOOKS_MAX];
    size_t count;
    struct look_item items[];
};

/* Who calls it fills in the items and starts it. */
struct look_all *look_all_new(struct engine *engine, size_t count);
void look_all_start(struct look_all *look);

#endif
