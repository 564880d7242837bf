/* SPDX-License-Identifier: Apache-2.0 */
/* The bound on the memory of all replies that are being made or wait to be sent, of all connections
 * together (--max-reply-memory). A command that makes a large reply asks for room as the reply
 * grows, before it changes anything, and is refused with BUSY where there is none. Small replies
 * always have room: where the bound is reached, a connection starts one command at a time, and only
 * when it has read what came before. So the bound may be passed by REPLY_SMALL per connection.
 *
 * Each request and each session counts its share; that of a request also from the store's threads.
 */
#ifndef STOCKADE_ENGINE_REPLIES_H
#define STOCKADE_ENGINE_REPLIES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"

#define REPLY_SMALL (16 << 10) /* bytes that need no asking */

struct replies {
    atomic_size_t bytes;
    atomic_size_t bytes_max; /* 0: no bound */
};

/* Make the share at least `bytes`. False: there is no room, and it stays as it is. */
bool replies_take(struct replies *replies, size_t *share, size_t bytes);
/* Would the bound be reached with `more`? */
bool replies_full(const struct replies *replies, size_t more);
/* Make the whole reply the error that there is no room. */
void replies_refuse(const struct replies *replies, struct buf *reply);

/* Make the share `bytes`, which are there already. */
static inline void replies_count(struct replies *replies, size_t *share, size_t bytes)
{
    if (bytes == *share)
        return;
    atomic_fetch_add_explicit(&replies->bytes, bytes - *share, memory_order_relaxed);
    *share = bytes;
}

#endif
