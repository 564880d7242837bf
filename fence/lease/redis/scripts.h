/* SPDX-License-Identifier: Apache-2.0 */
/* What the Redis provider says to a Redis: one Lua script for each verb, how a lease call becomes
 * its keys and arguments, and how its reply becomes the call's answer. Nothing here does I/O.
 *
 *   {prefix}:{resource}:lock    "<token> <nonce> <attempt>...", expires with the lease
 *   {prefix}:{resource}:token   the last token; expires a week after the last grant, as the store's
 *                               floor restores it
 *
 * An attempt is one GRANT that was asked for. The lock names the attempts that have taken or
 * entered it and were not released. Where nobody received a GRANT's answer, its daemon releases
 * that attempt alone, and the release of the last one frees the lock. A renewal, or too many
 * attempts, makes it "<token> <nonce>", as older daemons write it: then only its token can release
 * it, no attempt.
 *
 * Whatever ends a lease publishes "released|revoked <origin> <token> <resource>" on the channel
 * {prefix}:wake ({prefix}:wake:DB for other databases than 0). Where an ACL forbids that, only the
 * message is lost. */
#ifndef STOCKADE_FENCE_LEASE_REDIS_SCRIPTS_H
#define STOCKADE_FENCE_LEASE_REDIS_SCRIPTS_H

#include <stdbool.h>
#include <stddef.h>

#include "fence/base/bytes.h"
#include "fence/lease/provider.h"

struct redisReply;

/* In a cluster the braces have both keys in one slot. Of a resource that is empty or begins with a
 * closing brace they would be empty, and each key where it likes: its keys begin with
 * {prefix}:#{#}{resource} there. */
#define SCRIPTS           (LEASE_QUERY + 1) /* indexed by enum lease_verb */
#define SCRIPT_ARGS_MAX   10                /* behind the script itself */
#define SCRIPT_ORIGIN_LEN 16                /* hexadecimal digits that tell daemons apart */
#define SCRIPT_ERROR_MAX  100

/* The script's text. Static storage. */
const char *script_text(enum lease_verb verb);

/* What follows the script (or its SHA) in EVAL: the number of keys, the keys, the arguments. */
struct script_args {
    int count;
    const char *at[SCRIPT_ARGS_MAX];
    size_t lens[SCRIPT_ARGS_MAX];
    struct buf text; /* that they point into; reused by each call, buf_free at the end */
};

/* What is the same in all calls of a daemon. Borrowed. */
struct script_self {
    const char *prefix, *channel, *origin;
    bool clustered; /* both keys of a resource have to be in one slot */
};

/* In a cluster, the part of a resource's keys that says in which slot they are. */
struct bytes script_slot_tag(struct bytes resource);

void script_args(const struct lease_call *call, const struct script_self *self,
                 struct script_args *args);

/* Cut the next word off a message: up to a blank. */
struct bytes script_word(struct bytes *text);
/* Read a message. False: no daemon wrote it, or we did ourselves (`self->origin`). */
bool script_news(struct bytes message, const struct script_self *self, struct lease_news *news);

/* Answer the call. False: this is no reply of our scripts, and the call is still unanswered. */
bool script_answer(struct lease_call *call, const struct redisReply *reply);

/* Did the script write? (A replica refuses that, but still answers questions.) */
bool script_wrote(const struct redisReply *reply);

/* Write an error reply's text for people, without what Redis adds about the script. */
void script_error(const struct redisReply *reply, char out[SCRIPT_ERROR_MAX]);

#endif
