/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's page: what it shows, as JSON (the daemon's state, the list of leases, one resource),
 * and the one thing that it does: REVOKE.
 *
 * Times end in _ms: milliseconds since 1970, or a duration. Names are JSON strings as in events. */
#ifndef STOCKADE_ENGINE_SHOW_H
#define STOCKADE_ENGINE_SHOW_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/durations.h"
#include "fence/base/list.h"
#include "proxy/engine/engine.h"

/* state.c */

/* Counters since the start; the page plots how they grow. */
struct show_counts {
    uint64_t grants, writes, refusals;
    uint64_t changes; /* of anything that the list of leases shows */
    struct durations commits;
};

struct show_counts show_counts(const struct engine *engine);
/* The user who looks at the page: names that he may not read are left out. `rights` NULL: all names
 * are shown. The acl belongs to whoever made the reader. */
struct reader {
    struct acl *acl;
    const struct acl_user *rights;
};

static inline bool reader_may(struct reader reader, struct bytes name)
{
    return reader.rights == NULL || acl_may_touch(reader.rights, name, ACL_READS);
}

/* Append the members of the state, without braces: "version":"0.1.0",... It takes as long with many
 * leases as with few. `service_uri` is shown as it is, so it must have no password. The times of
 * commits are those since `earlier`. */
void show_state(struct engine *engine, const char *service_uri, const struct show_counts *earlier,
                struct reader reader, struct buf *json);
/* Can a lease be granted? Append to `why`, as one line, what is wrong, even if leases can be
 * granted all the same; nothing: all is well. No names of resources are told. */
bool show_ready(struct engine *engine, struct buf *why);
/* Append the newest refusals of resources that have `match` in their name, or fit that glob; empty:
 * all. */
void show_refusals(struct engine *engine, struct bytes match, size_t count, struct reader reader,
                   struct buf *json);
/* Append up to `max` of the refusals that came after the first `seen` ones, as objects, each by
 * itself, the oldest first; return how many there are in all since the start. */
uint64_t show_new_refusals(struct engine *engine, uint64_t seen, size_t max,
                           void (*each)(void *context, struct bytes name, struct bytes json),
                           void *context);
/* Find the resource that a text from the page names. A name that is not UTF-8 is shown with a
 * character for each byte (fence/base/json.h). So the text may stand for either name; it is taken
 * for the latter where only that one is leased. `name` owns the answer. */
void show_name(struct engine *engine, struct bytes text, struct buf *name);

/* leases.c: a window into the list of leases, sorted and filtered. With many leases a list takes
 * time to make, so it is made in small steps: lists_work() does one, and returns true as long as
 * the host is to call it again after LISTS_REST_MS. A list serves every window that asks for the
 * same order and filter; a long one is kept for some time, and its answer says when it is no longer
 * `current`. */

enum { LISTS_REST_MS = 10, LEASES_COUNT_MAX = 200 };

struct lists;
struct window {
    struct bytes match; /* a glob as in SCAN, or a part of a name; borrowed until the ask returns */
    struct bytes sort;  /* borrowed until the ask returns */
    struct reader reader; /* borrowed until the ask returns */
    size_t from, count;
    void (*on_end)(struct window *window); /* called last: it may free the window */
    struct buf json;                       /* the answer; freed by the caller */

    struct list link; /* its own */
};

struct lists *lists_new(struct engine *engine);
/* There must be no open window. */
void lists_free(struct lists *lists);
/* Is there an order of this name? Empty: the usual one. */
bool lists_know(struct bytes sort);
/* Ask for a window; lists_know() has to know its sort. False: too many lists are being made, and
 * on_end will not be called. Otherwise it is called, maybe before this returns. */
bool lists_ask(struct lists *lists, struct window *window);
/* Drop a window that waits: on_end will not be called. */
void lists_cancel(struct window *window);
/* Do the next step. Return whether there is more to do. */
bool lists_work(struct lists *lists);

/* resource.c */

struct resource_ask {
    struct engine *engine;
    struct bytes resource; /* borrowed until on_end */
    bool with_value;
    void (*on_end)(struct resource_ask *ask);

    /* The result. */
    enum stk_error error; /* BUSY, STORE; else the JSON is there */
    struct buf json;      /* freed by the caller */

    /* Its own. */
    int64_t newest;
    struct buf receipts, value;
    bool receipts_more; /* there are more receipts than are shown */
    struct store_op op;
};

void resource_ask(struct resource_ask *ask);

/* revoke.c: REVOKE from the page. It ends the lease that was seen there, and no other. */

struct revocation {
    struct engine *engine;
    struct bytes resource, reason; /* borrowed until on_end */
    const char *from, *user;       /* the client's address and user, for the log; borrowed, too */
    int64_t token;
    void (*on_end)(struct revocation *revocation);

    /* The result. */
    enum stk_error error; /* STALE, UNKNOWN: another token is the newest; BUSY; STORE: also where
                             the lease has ended, but its line in the audit is not on disk yet */
    int64_t newest;
    bool ended; /* this call has ended the lease; false: it had ended before */
};

void revocation_start(struct revocation *revocation);

#endif
