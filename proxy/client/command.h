/* SPDX-License-Identifier: Apache-2.0 */
/* What fenced commands, transactions and SQL share. */
#ifndef STOCKADE_CLIENT_COMMAND_H
#define STOCKADE_CLIENT_COMMAND_H

#include "proxy/client/lease.h"

/* STK_OK, or fail(): no leases, or not of this client. */
enum stk_error leases_check(stk_lease *const *leases, size_t count, const stk_client *client);
/* Whether a command without a token only reads, and so may be sent twice. */
bool words_only_read(const stk_client *client, const stk_words *words);
/* FENCEDALL n resource token ... [ID id], with room for `argc` arguments behind it. FENCED is not
 * for a library: it does not say whose token it is, and a token of one resource may happen to be
 * another's number. */
void fence_begin(struct buf *out, stk_lease *const *leases, size_t count, const char *id,
                 size_t argc);
void words_add(struct buf *out, const stk_words *words);

#endif
