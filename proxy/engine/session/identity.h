/* SPDX-License-Identifier: Apache-2.0 */
/* Which user is on a connection. At first nobody or `default`, or the one that a client certificate
 * names; later the one that has logged in. */
#ifndef STOCKADE_ENGINE_IDENTITY_H
#define STOCKADE_ENGINE_IDENTITY_H

#include "proxy/engine/session/session.h"

/* Make it the user that a new connection has, or one after RESET. */
void identity_forget(struct session *session);
/* Make it this user. `name` is the account's: the user's, or without a file of users the
 * certificate's. `rights` NULL: it has to log in. */
void identity_take(struct session *session, const struct acl_user *rights, const char *name,
                   bool logged_in);
/* May the account of this name have this connection, too? False: `why`. */
bool identity_has_room(const struct session *session, const char *name, char why[ACCOUNT_WHY_SIZE]);
/* The session ends: give back what its account has counted for it. */
void identity_end(struct session *session);

/* Return the name with its user (scope.h): either `name` itself, or what is appended to `out`. */
struct bytes identity_scope(const struct session *session, struct bytes name, struct buf *out);

#endif
