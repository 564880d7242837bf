/* SPDX-License-Identifier: Apache-2.0 */
/* A lock's time, as libraries send it. */
#ifndef STOCKADE_ENGINE_LOCK_TIME_H
#define STOCKADE_ENGINE_LOCK_TIME_H

#include "proxy/engine/lease/lease.h"
#include "proxy/engine/session/arguments.h"

/* Read argv[i]. False: the request has failed. */
static inline bool lock_time(struct request *request, size_t i, bool seconds, int64_t *ttl_ms)
{
    const int64_t unit = seconds ? 1000 : 1;

    if (bytes_to_int64(request->argv[i], ttl_ms) && *ttl_ms <= LEASE_TTL_MAX_MS / unit &&
        *ttl_ms * unit >= LEASE_TTL_MIN_MS) {
        *ttl_ms *= unit;
        return true;
    }
    request_fail(request, STK_ERR, "a lock's time must be from %d ms to %d s, not %.*s %s",
                 LEASE_TTL_MIN_MS, LEASE_TTL_MAX_MS / 1000, BYTES_CUT(request->argv[i], 32),
                 seconds ? "s" : "ms");
    return false;
}

#endif
