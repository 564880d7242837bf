/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of replies that are being made, or wait to be sent, of all connections together, and
 * its bound (--max-reply-memory). Who makes a large reply asks for room as it grows, before it
 * changes anything, and is refused where there is none (BUSY). Small ones always have room: where
 * the bound is reached, a connection starts one command at a time, and only when it has read what
 * came before. So the bound may be passed by some REPLY_SMALL for each connection.
 *
 * Counts are shares, one for each request and each session: from the store's threads, too. */
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

/* The share becomes at least `bytes`. False: there is no room, and it stays as it is. */
bool replies_take(struct replies *replies, size_t *share, size_t bytes);
/* The share becomes `bytes`, which are there already. */
void replies_count(struct replies *replies, size_t *share, size_t bytes);
/* Would the bound be reached with `more`? */
bool replies_full(const struct replies *replies, size_t more);
/* The error becomes the whole reply. */
void replies_refuse(const struct replies *replies, struct buf *reply);

#endif
