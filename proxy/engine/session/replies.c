/* SPDX-License-Identifier: Apache-2.0 */
/* A counter with a bound, without a lock: where two ask at once and there is room for one, both may
 * be refused. */
#include "proxy/engine/session/replies.h"

#include "proxy/resp/resp.h"

/* Large replies grow: they ask now and then. */
enum { STEP_BYTES = 64 << 10 };

bool replies_take(struct replies *replies, size_t *share, size_t bytes)
{
    size_t max = atomic_load_explicit(&replies->bytes_max, memory_order_relaxed);

    if (bytes <= *share)
        return true;
    bytes = (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
    size_t more = bytes - *share;
    size_t before = atomic_fetch_add_explicit(&replies->bytes, more, memory_order_relaxed);
    if (max > 0 && before + more > max) {
        atomic_fetch_sub_explicit(&replies->bytes, more, memory_order_relaxed);
        return false;
    }
    *share = bytes;
    return true;
}

bool replies_full(const struct replies *replies, size_t more)
{
    size_t max = atomic_load_explicit(&replies->bytes_max, memory_order_relaxed);

    return max > 0 && atomic_load_explicit(&replies->bytes, memory_order_relaxed) + more >= max;
}

void replies_refuse(const struct replies *replies, struct buf *reply)
{
    size_t bytes = atomic_load_explicit(&replies->bytes, memory_order_relaxed);
    size_t max = atomic_load_explicit(&replies->bytes_max, memory_order_relaxed);

    buf_clear(reply);
    resp_error(reply, STK_BUSY,
               "replies that clients have not read take %zu of %zu MiB (--max-reply-memory): there "
               "is no room for this one, and nothing was applied; try again later",
               bytes >> 20, max >> 20);
}
