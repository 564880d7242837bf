/* SPDX-License-Identifier: Apache-2.0 */
/* A command on lock keys that is under way: run.c fills it in, and the form's reply reads it. */
#ifndef STOCKADE_ENGINE_LOCK_RUN_H
#define STOCKADE_ENGINE_LOCK_RUN_H

#include "proxy/engine/lease/lease.h"
#include "proxy/engine/lockkeys/lock_keys.h"

/* One key. What is said of its lease was so when the lease was looked at. */
struct lock_item {
    struct bytes key; /* as it was sent */
    size_t place;     /* among the keys that were sent, from 1 on */
    struct bytes resource, value;
    struct bytes as;   /* the lease's owner: the value with its user (scope.h) */
    struct buf scoped; /* the text of `as`, where it is not the value's */
    bool locked;       /* somebody has it */
    bool mine;         /* the value has it */
    bool was_mine;     /* its time is over, but nobody has had it since the value */
    bool done;         /* the verb was done to it */
    int64_t token;     /* the value's */
    int64_t left_ms, holds;
    int64_t until_ms; /* TAKE: when its lease ends */
    struct buf owner; /* who has it; empty where the grant is on its way */
};

struct lock_run {
    struct request *request;
    const struct lock_form *form;
    int64_t ttl_ms, least_ms;
    bool adds, extends_only, resp3;
    struct bytes channel, message;
    struct lock_client *client;

    /* The result. */
    bool ok;     /* of all keys */
    size_t done; /* so many of them */

    /* Its own. */
    enum lock_verb verb; /* what is being done: the form's, or TAKE where EXTEND found it free */
    bool is_failed;      /* once what it has taken is given back, the request fails with: */
    enum stk_error error;
    char reason[160];
    size_t at; /* the item that is worked on; in TAKE, those before it are taken */
    unsigned looks;
    struct acquire acquire;
    struct lease_view view;
    struct release release;
    size_t count;
    struct lock_item items[];
};

static inline const struct lock_item *lock_run_item(const struct lock_run *run, size_t i)
{
    return &run->items[i];
}

#endif
