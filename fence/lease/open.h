/* SPDX-License-Identifier: Apache-2.0 */
/* From a parsed URI to a lease provider at work. */
#ifndef STOCKADE_FENCE_LEASE_OPEN_H
#define STOCKADE_FENCE_LEASE_OPEN_H

#include "fence/base/clock.h"
#include "fence/base/log.h"
#include "fence/lease/provider.h"
#include "fence/lease/uri.h"

struct uv_loop_s; /* uv_loop_t */

/* What a provider lives in. All borrowed; outlives the provider. */
struct lease_surroundings {
    struct uv_loop_s *loop;
    const struct clock *clock;
    const struct chance *chance; /* jitter */
    const struct log *log;       /* may be NULL */
};

/* Begin to connect, and return at once. A service that cannot be reached is tried for ever. The URI
 * is copied. lease_provider_close ends it; the loop has to turn until that has called back. The
 * process must ignore SIGPIPE, as hiredis uses write. NULL: it needs a library that is not
 * installed, and `why` says which. */
struct lease_provider *lease_open(const struct lease_uri *uri,
                                  const struct lease_surroundings *surroundings, char *why,
                                  size_t why_size);

/* The provider of `local:`, leases without a lease service. It remembers what it granted in this
 * run. Of earlier runs and of other daemons on the store it knows what that has recorded
 * (lease_call.record): a live lease of an earlier run is held until its TTL has passed since this
 * provider was made, one of another daemon until its TTL has passed since it was first seen here.
 * `clock` outlives it. */
struct lease_provider *lease_local_new(const struct clock *clock);
/* The same for one kind each: LEASE_URI_REDIS, _REDIS_UNIX and _SENTINEL; _CLUSTER;
 * _REDLOCK; _ZOOKEEPER. */
struct lease_provider *lease_redis_new(const struct lease_uri *uri,
                                       const struct lease_surroundings *surroundings);
struct lease_provider *lease_cluster_new(const struct lease_uri *uri,
                                         const struct lease_surroundings *surroundings);
struct lease_provider *lease_redlock_new(const struct lease_uri *uri,
                                         const struct lease_surroundings *surroundings);
struct lease_provider *lease_zookeeper_new(const struct lease_uri *uri,
                                           const struct lease_surroundings *surroundings, char *why,
                                           size_t why_size);

#endif
