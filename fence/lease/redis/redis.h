/* SPDX-License-Identifier: Apache-2.0 */
/* The lease provider on one Redis, or on the master that sentinels name. Opened through
 * fence/lease/open.h. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_REDIS_H
#define STOCKADE_FENCE_LEASE_REDIS_REDIS_H

#include "fence/lease/open.h"

/* As lease_open, for LEASE_URI_REDIS, LEASE_URI_REDIS_UNIX and LEASE_URI_SENTINEL. */
struct lease_provider *lease_redis_new(const struct lease_uri *uri,
                                       const struct lease_surroundings *surroundings);

#endif
