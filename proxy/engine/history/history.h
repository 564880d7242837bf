/* SPDX-License-Identifier: Apache-2.0 */
/* What happened to leases here: each grant of this daemon and how it ended; each command that was
 * refused, how late it was and who had got the lease since. It ends with the process, and nothing
 * is decided by it.
 *
 * The newest `entries_max` grants are kept, and as many refusals, each kind in at most
 * HISTORY_BYTES * entries_max bytes. So a flood of refusals drives out no grant.
 *
 * Times: `*_clock_ms` are the engine's clock; the others are durations or of the wall clock. */
#ifndef STOCKADE_ENGINE_HISTORY_H
#define STOCKADE_ENGINE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/clock.h"
#include "fence/base/err.h"
#include "fence/base/list.h"

/* What an entry may take on the average, its names included. */
#define HISTORY_BYTES 320

struct history;

enum history_end {
    HISTORY_RUNS,
    HISTORY_RELEASED,
    HISTORY_EXPIRED,
    HISTORY_REVOKED,
    HISTORY_TAKEN,      /* another was granted it before its time was over */
    HISTORY_GIVEN_BACK, /* nobody could receive it */
};

/* Read it only. It lives until the next call that adds an entry. */
struct history_grant {
    struct list of_all;                     /* the oldest first */
    struct history_grant *older, *newer;    /* of the resource */
    struct history_resource *resource;      /* history_grant_name tells its name */
    struct history_grant **reference;       /* the lease's; is set to NULL when this is freed */
    int64_t token, granted_ms, ttl_ms;      /* as it was asked for */
    int64_t ended_ms;                       /* unless it runs still */
    int64_t until_clock_ms, ended_clock_ms; /* the engine's clock */
    uint32_t writes, refused;               /* under this token */
    enum history_end end;
    size_t size;
    struct bytes owner, user, client, address;
    struct buf reason; /* of HISTORY_REVOKED, for people; empty: none was given */
};

struct history_refusal {
    struct list of_all;
    struct history_refusal *older, *newer;
    struct history_resource *resource;
    int64_t time_ms, token, newest; /* 0: none */
    int64_t late_ms;                /* -1: not known */
    enum history_end ended;         /* its grant; HISTORY_RUNS: not known */
    int64_t granted_ms;             /* 0: not known */
    enum stk_error code;
    const char *command; /* lives as long as the program */
    size_t size;
    struct bytes user, client, address, newest_owner, newest_address; /* empty: not known */
};

/* Whose connection it is. */
struct history_client {
    struct bytes user, name, address;
};

/* `entries_max`: of grants, and of refusals; at least 1. */
struct history *history_new(size_t entries_max, const struct clock *clock);
void history_free(struct history *history);

/* Note a grant. `*reference` is set to it, and to NULL once it has made room for a newer one. */
void history_granted(struct history *history, struct bytes resource, int64_t token, int64_t ttl_ms,
                     int64_t until_clock_ms, struct bytes owner, struct history_client client,
                     struct history_grant **reference);
/* It was renewed. NULL, here and below: the grant has made room already, and nothing happens. */
void history_renewed(struct history_grant *grant, int64_t until_clock_ms);
/* The end that was noted of this token's grant was none: it lives on. False: it is not kept. */
bool history_resumed(struct history *history, struct bytes resource, int64_t token,
                     int64_t until_clock_ms, struct history_grant **reference);
/* What HISTORY_TAKEN would be now: an expiry, once the lease's time is over. */
enum history_end history_taken(const struct history *history, const struct history_grant *grant);
/* Note how it ended; call it once. An expiry is noted as of when the lease's time was over.
 * `reason` is empty where nobody gave one. */
void history_ended(struct history *history, struct history_grant *grant, enum history_end end,
                   struct bytes reason);
/* Note a grant that was given back, as nobody could be told of it. */
void history_given_back(struct history *history, struct bytes resource, int64_t token,
                        int64_t ttl_ms, struct bytes owner, struct history_client client);
/* Forget its reference: how it ends will not be known. */
void history_let_go(struct history_grant *grant);
/* Count writes that were applied. */
void history_wrote(struct history_grant *grant, uint32_t writes);

/* Note a refusal, and return it, complete. `newest` and `token` may be 0. */
const struct history_refusal *history_refused(struct history *history, struct bytes resource,
                                              int64_t token, int64_t newest, enum stk_error code,
                                              const char *command, struct history_client client);

/* Find the grant of a token; NULL: none that is kept, or thousands of the resource are newer. */
struct history_grant *history_find(struct history *history, struct bytes resource, int64_t token);

/* The newest of a resource, then `older` of each. */
const struct history_grant *history_grants(const struct history *history, struct bytes resource);
const struct history_refusal *history_refusals_of(const struct history *history,
                                                  struct bytes resource);
/* The newest of all, then the one before; NULL behind the last. */
const struct history_refusal *history_refusals(const struct history *history);
const struct history_refusal *history_refusal_before(const struct history *history,
                                                     const struct history_refusal *refusal);
/* The one that came after it; NULL behind the newest. */
const struct history_refusal *history_refusal_after(const struct history *history,
                                                    const struct history_refusal *refusal);
/* How many there were since the start. */
uint64_t history_refusals_total(const struct history *history);
struct bytes history_grant_name(const struct history_grant *grant);
struct bytes history_refusal_name(const struct history_refusal *refusal);
size_t history_grants_count(const struct history *history);
size_t history_refusals_count(const struct history *history);
size_t history_max(const struct history *history);
/* How many commands were refused within the last hour (to the minute). */
uint64_t history_refused_hour(struct history *history);

/* "released", "taken" ...; NULL for HISTORY_RUNS. */
const char *history_end_name(enum history_end end);

/* Append the fields of HISTORY and REFUSALS as members of a JSON object, without its braces. */
void history_grant_json(struct buf *json, const struct history_grant *grant);
void history_refusal_json(struct buf *json, const struct history_refusal *refusal);

#endif
