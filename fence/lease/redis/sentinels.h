/* SPDX-License-Identifier: Apache-2.0 */
/* The sentinels that watch over a master: which address do they name?
 * (https://redis.io/docs/latest/develop/reference/sentinel-clients/)
 *
 * Each is asked when it is reached, and then listened to: +switch-master tells a new address at
 * once. All are asked at the same time, so that a silent one delays nobody for long. The address
 * that most of them name counts, because a sentinel that was cut off from the others may still name
 * a former master. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_SENTINELS_H
#define STOCKADE_FENCE_LEASE_REDIS_SENTINELS_H

#include "fence/lease/redis/conn.h"

struct sentinels;

/* `on_change` is called on the loop's thread whenever one of them has answered, or has failed to.
 * `uri` is a LEASE_URI_SENTINEL and copied. */
struct sentinels *sentinels_new(const struct lease_uri *uri,
                                const struct lease_surroundings *surroundings,
                                void (*on_change)(void *context), void *context);
/* Where is the master? REDIS_LOCATING: too few have answered yet. `last`: they had their time, so
 * the address that most of those name that have answered will do. */
enum redis_located sentinels_locate(const struct sentinels *sentinels, bool last,
                                    struct uri_host *master, char why[REDIS_WHY_MAX]);
/* The address that they named is not the master's any more: ask them again. */
void sentinels_ask_again(struct sentinels *sentinels);
/* Free all, from a turn of the loop, then call `closed`. */
void sentinels_close(struct sentinels *sentinels, void (*closed)(void *context), void *context);

#endif
