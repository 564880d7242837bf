/* SPDX-License-Identifier: Apache-2.0 */
/* Who is on a connection: nobody, or `default`, at first; whom a client certificate names; who has
 * logged in. What that user may is asked of the rights in force. */
#ifndef STOCKADE_ENGINE_IDENTITY_H
#define STOCKADE_ENGINE_IDENTITY_H

#include "proxy/engine/session/session.h"

/* The state of a connection that has just come, or was RESET. */
void identity_forget(struct session *session);
/* It is this user now. `name` is the account's: the user's, or where there is no file the
 * certificate's. */
void identity_take(struct session *session, const struct acl_user *rights, const char *name,
                   bool logged_in);
/* May the user of this account have one connection more, unless it is this one already? */
bool identity_has_room(const struct session *session, const char *name, char why[ACCOUNT_WHY_SIZE]);
/* The end of a session: it is nobody's any more. */
void identity_end(struct session *session);

/* A name as its user's own (scope.h): itself, or behind what is in `out` already. */
struct bytes identity_scope(const struct session *session, struct bytes name, struct buf *out);

#endif
