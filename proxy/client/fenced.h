/* SPDX-License-Identifier: Apache-2.0 */
/* Commands, bare and fenced: what stk_command, stk_fenced, transactions and SQL share. */
#ifndef STOCKADE_CLIENT_FENCED_H
#define STOCKADE_CLIENT_FENCED_H

#include "proxy/client/lease.h"

/* A command's arguments, borrowed. */
struct words {
    size_t argc;
    const char *const *argv;
    const size_t *lens; /* NULL: they end with a zero byte */
};

struct bytes words_at(const struct words *words, size_t i);

/* STK_OK, or fail(): no leases, or not of this client. */
enum stk_error leases_check(stk_lease *const *leases, size_t count, const stk_client *client);
/* FENCEDALL n resource token ... [ID id], with room for `argc` arguments behind it. FENCED is not
 * for a library: it does not say whose token it is, and a token of one resource may happen to be
 * another's number. */
void fence_begin(struct buf *out, stk_lease *const *leases, size_t count, const char *id,
                 size_t argc);
void words_add(struct buf *out, const struct words *words);

/* Runs a call of one reply and turns it into `*reply` (may be NULL) or an error; ends the call. */
enum stk_error call_for_reply(struct call *call, size_t which, stk_reply **reply);

#endif
