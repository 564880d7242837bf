/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a resource's past, or of a night: holds and refused commands, the oldest first.
 * They come from the daemon's HISTORY and REFUSALS, from its log or from its audit. */
#ifndef STOCKADE_TOOLS_WHY_STORY_H
#define STOCKADE_TOOLS_WHY_STORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

#define STORY_NONE INT64_MIN /* a number that is not known */

/* Times are milliseconds since 1970. A text that is not known has no data. */
struct hold {
    int64_t token, granted_ms, ttl_ms;
    int64_t ended_ms;        /* STORY_NONE: not yet */
    int64_t writes, refused; /* STORY_NONE: not known */
    struct buf owner, user, client, address;
    struct buf end;    /* "released", "expired", ...; empty: not yet */
    struct buf reason; /* of who revoked it; empty: none was given */
};

struct refusal {
    int64_t time_ms, token;
    int64_t granted_ms; /* when the token was; STORY_NONE: that is not known */
    int64_t late_ms;    /* after its lease had ended; STORY_NONE: that is not known */
    int64_t newest;     /* the token that had overtaken it, or its own */
    struct buf resource, code, command, user, client, address;
    struct buf ended; /* how its lease had ended */
    struct buf newest_owner, newest_address;
};

/* One who waits in line now. */
struct waiter {
    int64_t place, waited_ms;
    struct buf owner, client, address;
    struct buf way; /* "wait", on its connection; "queue" */
};

/* The fields by the names that they have on the wire and in JSON. */
struct story_field {
    const char *name;
    size_t offset;
    bool is_text;  /* a struct buf; else an int64_t */
    bool is_time;  /* milliseconds, from 0 to those of the year 9999 */
    bool may_miss; /* STORY_NONE is a value; else 0 stands for it */
};
enum { HOLD_FIELDS = 12, REFUSAL_FIELDS = 14, WAITER_FIELDS = 6 };
extern const struct story_field hold_fields[HOLD_FIELDS];
extern const struct story_field refusal_fields[REFUSAL_FIELDS];
extern const struct story_field waiter_fields[WAITER_FIELDS];

struct story {
    const char *resource; /* NULL: all of them */
    const char *log;      /* the file that it was read from; NULL: it is a daemon's answer */
    bool is_audit;        /* that file is an audit, which has holds, too */
    int64_t now_ms;       /* the daemon's time; of a log, STORY_NONE */

    struct hold *holds; /* owned */
    size_t holds_count;
    struct refusal *refusals; /* owned */
    size_t refusals_count;
    struct waiter *line; /* owned; the next one first */
    size_t line_count;
    int64_t left_out;  /* refusals before these */
    int64_t bad_lines; /* of the log */
    bool is_cut;       /* as many holds as were asked for: there may be older ones */

    bool is_leased; /* the daemon knows the resource; then its state now: */
    bool is_held;
    int64_t token, left_ms, entered, waiters;
    struct buf owner;
};

/* Make room for one more at the end, all zero, and return it. */
struct hold *story_add_hold(struct story *story);
struct refusal *story_add_refusal(struct story *story);
struct waiter *story_add_waiter(struct story *story);
/* Leave out all but the newest `count` refusals, or holds. */
void story_keep_refusals(struct story *story, size_t count);
void story_keep_holds(struct story *story, size_t count);
/* Give an empty `entry` the value of a field. A time that nobody can mean is missing. */
void story_set_text(void *entry, const struct story_field *field, struct bytes text);
void story_set_number(void *entry, const struct story_field *field, int64_t number);
/* Put the oldest first: on the wire the newest come first. */
void story_reverse(struct story *story);
/* Return the moment at which the hold ended, or until which it is known to last. */
int64_t story_hold_until(const struct story *story, const struct hold *hold);
/* Return whether the hold goes on. */
bool story_is_on(const struct story *story, const struct hold *hold);
/* Return whether the daemon has made this owner up, for one who named none. */
bool story_is_nameless(struct bytes owner);
void story_free(struct story *story);

/* Append an array of JSON objects: the entries with their fields. */
void story_append_holds(struct buf *json, const struct story *story);
void story_append_refusals(struct buf *json, const struct story *story);
void story_append_waiters(struct buf *json, const struct story *story);

#endif
