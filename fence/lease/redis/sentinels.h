/* SPDX-License-Identifier: Apache-2.0 */
/* The sentinels that watch over a master: which address do they name?
 * (https://redis.io/docs/latest/develop/reference/sentinel-clients/)
 *
 * Each is asked when it is reached, and then listened to: +switch-master tells a new address at
 * once. All are asked at the same time, so that a silent one delays nobody for long, and the
 * address that most of them name counts: one that was cut off from the others may name a master of
 * the past. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_SENTINELS_H
#define STOCKADE_FENCE_LEASE_REDIS_SENTINELS_H

#include "fence/lease/open.h"

struct sentinels;

enum sentinels_answer {
    SENTINELS_AGREE,  /* on `master` */
    SENTINELS_ASKED,  /* too few have answered yet */
    SENTINELS_SILENT, /* none of them names one: `why` */
};

#define SENTINELS_WHY_MAX 128

/* `changed` is called on the loop's thread whenever one of them has answered, or has failed to.
 * `uri` is a LEASE_URI_SENTINEL and copied. */
struct sentinels *sentinels_new(const struct lease_uri *uri,
                                const struct lease_surroundings *surroundings,
                                void (*changed)(void *context), void *context);
/* `last`: they had their time; what most of those say that have answered is good enough. */
enum sentinels_answer sentinels_master(const struct sentinels *sentinels, bool last,
                                       struct uri_host *master, char why[SENTINELS_WHY_MAX]);
/* Their master is none: those that have answered are asked again. */
void sentinels_ask_again(struct sentinels *sentinels);
/* Frees all, from a turn of the loop, then calls `closed`. */
void sentinels_close(struct sentinels *sentinels, void (*closed)(void *context), void *context);

#endif
