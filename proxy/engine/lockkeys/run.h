/* SPDX-License-Identifier: Apache-2.0 */
/* A command on lock keys under way, as its form's reply reads it. */
#ifndef STOCKADE_ENGINE_LOCK_RUN_H
#define STOCKADE_ENGINE_LOCK_RUN_H

#include "proxy/engine/lease/lease.h"
#include "proxy/engine/lockkeys/lock_keys.h"

/* One key. What is known of its lease was true when it was looked at. */
struct lock_item {
    struct bytes resource, value;
    struct bytes as;   /* the owner: the value, as its user's own */
    struct buf scoped; /* where that is another text */
    bool locked;       /* somebody has it */
    bool mine;         /* the value has it */
    bool was_mine;     /* its time is over, but nobody has had it since the value */
    bool done;         /* what was to be done was done to it */
    int64_t token;     /* the value's */
    int64_t left_ms, holds;
    int64_t until_ms; /* TAKE: it is held so long */
    struct buf owner; /* who has it; empty where the grant is on its way */
};

struct lock_run {
    struct request *request;
    const struct lock_form *form;
    int64_t ttl_ms;
    bool adds, extends_only, resp3;
    struct bytes channel, message;
    struct lock_client *client;

    /* The result. */
    bool ok;     /* of all keys */
    size_t done; /* so many of them */

    /* Its own. */
    enum lock_verb verb; /* what is being done; TAKE where EXTEND finds nobody */
    bool is_failed;      /* what is taken goes back, then the request fails with: */
    enum stk_error error;
    char reason[160];
    size_t at; /* the item it is at; of TAKE, so many have been taken */
    unsigned looks;
    struct acquire acquire;
    struct lease_view view;
    struct renewal renewal;
    struct release release;
    size_t count;
    struct lock_item items[];
};

static inline const struct lock_item *lock_run_item(const struct lock_run *run, size_t i)
{
    return &run->items[i];
}

#endif
