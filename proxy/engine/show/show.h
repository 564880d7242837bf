/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon's page shows, as JSON: how the daemon is, the list of leases, one resource. And
 * the one thing that the page does: REVOKE.
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

/* Counters since the start, of which the page plots how they grow. */
struct show_counts {
    uint64_t grants, writes, refusals;
    uint64_t changes; /* anything that may be seen in the list of leases */
    struct durations commits;
};

struct show_counts show_counts(const struct engine *engine);
/* Who looks: names that this user may not read are left out. `rights` NULL: all are shown. Who has
 * made it keeps the acl. */
struct reader {
    struct acl *acl;
    const struct acl_user *rights;
};

static inline bool reader_may(struct reader reader, struct bytes name)
{
    return reader.rights == NULL || acl_may_touch(reader.rights, name, ACL_READS);
}

/* Append the members of the state, without braces: "version":"0.1.0",... It takes no longer with
 * many leases. `service_uri` is shown as it is, so it must have no password. The times of commits
 * are of those since `earlier`. */
void show_state(struct engine *engine, const char *service_uri, const struct show_counts *earlier,
                struct reader reader, struct buf *json);
/* Can a lease be granted? Append to `why` what is wrong, though it may be, as one line; nothing:
 * all is well. It tells no names. */
bool show_ready(struct engine *engine, struct buf *why);
/* Append the newest refusals whose resource has `match` in its name, or fits that glob; empty: all.
 */
void show_refusals(struct engine *engine, struct bytes match, size_t count, struct reader reader,
                   struct buf *json);
/* Append up to `max` of the refusals that came after the first `seen` ones, as objects, each by
 * itself, the oldest first; return how many there are in all since the start. */
uint64_t show_new_refusals(struct engine *engine, uint64_t seen, size_t max,
                           void (*each)(void *context, struct bytes name, struct bytes json),
                           void *context);
/* Find the resource that a text from the page names. Names that are not UTF-8 are shown with a
 * character for each byte (fence/base/json.h), so where only that name is leased it is the one.
 * `name` owns the answer. */
void show_name(struct engine *engine, struct bytes text, struct buf *name);

/* leases.c: a window into the list of leases, sorted and filtered. With many leases a list takes
 * time, so it is made in small steps: lists_work() does one, and the host calls it again after
 * LISTS_REST_MS as long as it says so. A list that was made serves every window that asks for the
 * same order and filter, for some time if it was long; it says so where it is not `current`. */

enum { LISTS_REST_MS = 10, LEASES_COUNT_MAX = 200 };

struct lists;
struct window {
    struct bytes match; /* a glob as in SCAN, or a part of a name; borrowed until the ask returns */
    struct bytes sort;  /* the same */
    struct reader reader; /* the same */
    size_t from, count;
    void (*on_end)(struct window *window); /* the last thing that happens to it */
    struct buf json;                       /* the answer; freed by the caller */

    struct list link; /* its own */
};

struct lists *lists_new(struct engine *engine);
/* No window may be open. */
void lists_free(struct lists *lists);
/* Is there an order of this name? Empty: the usual one. */
bool lists_know(struct bytes sort);
/* Ask for a window, whose sort is known. False: too many lists are being made, and on_end will not
 * be called. Else it is called, maybe before this returns. */
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
    bool receipts_more; /* than are shown */
    struct store_op op;
};

void resource_ask(struct resource_ask *ask);

/* revoke.c: REVOKE from the page, of the lease that was seen there and of no other. */

struct revocation {
    struct engine *engine;
    struct bytes resource, reason; /* borrowed until on_end */
    const char *from, *user;       /* the client's address and user, for the log; the same */
    int64_t token;
    void (*on_end)(struct revocation *revocation);

    /* The result. */
    enum stk_error error; /* STALE, UNKNOWN: another token is the newest; BUSY; STORE: it may have
                             ended, where its line in the audit has to be on disk and is not */
    int64_t newest;
    bool ended; /* by this; else it had ended before */
};

void revocation_start(struct revocation *revocation);

#endif
