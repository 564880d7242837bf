/* SPDX-License-Identifier: Apache-2.0 */
/* What the Redis provider asks of a Redis: one Lua script for each verb, how a lease call becomes
 * its keys and arguments, and how its reply becomes the call's answer. No I/O.
 *
 *   {prefix}:{resource}:lock    "<token> <nonce> <attempt>...", expires with the lease
 *   {prefix}:{resource}:token   the last token; expires a week after the last grant, as the store's
 *                               floor restores it
 *
 * An attempt is one GRANT that was asked; the lock names those that have taken or entered it and
 * have not given up. Where nobody heard a GRANT's answer its daemon lets go of that attempt alone,
 * and the last one's going frees the lock. A renewal, or too many, makes it "<token> <nonce>", as
 * older daemons write it: a lease that no attempt can give up, only its token.
 *
 * and the channel {prefix}:wake, behind which other databases than 0 add their number: what ends a
 * lease publishes "released|revoked <origin> <token> <resource>" there. An ACL that forbids it
 * costs nothing but the message. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_SCRIPTS_H
#define STOCKADE_FENCE_LEASE_REDIS_SCRIPTS_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"
#include "fence/lease/provider.h"

struct redisReply;

#define SCRIPTS           (LEASE_QUERY + 1) /* indexed by enum lease_verb */
#define SCRIPT_ARGS_MAX   10                /* behind the script itself */
#define SCRIPT_ORIGIN_LEN 16                /* hexadecimal digits that tell daemons apart */
#define SCRIPT_ERROR_MAX  100

/* The script's text. Static storage. */
const char *script_text(enum lease_verb verb);

/* What follows the script (or its SHA) in EVAL: number of keys, keys, arguments. */
struct script_args {
    int count;
    const char *at[SCRIPT_ARGS_MAX];
    size_t lens[SCRIPT_ARGS_MAX];
    struct buf text; /* what they point into; kept from call to call, buf_free at the end */
};

/* Who asks: what is the same in all calls. Borrowed. */
struct script_self {
    const char *prefix, *channel, *origin;
};

void script_args(const struct lease_call *call, const struct script_self *self,
                 struct script_args *args);

/* Cuts the next word off a message: up to a blank. */
struct bytes script_word(struct bytes *text);
/* What a message says. False: it is none of ours, or our own (`self->origin`). */
bool script_news(struct bytes message, const struct script_self *self, struct lease_news *news);

/* Answers the call. False: the reply is nothing that a script of ours says, and the call is still
 * unanswered. */
bool script_answer(struct lease_call *call, const struct redisReply *reply);

/* Did the script change something? (A replica that takes no writes still answers questions.) */
bool script_wrote(const struct redisReply *reply);

/* An error reply's text for people, without what Redis adds about the script. */
void script_error(const struct redisReply *reply, char out[SCRIPT_ERROR_MAX]);

#endif
