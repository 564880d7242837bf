/* SPDX-License-Identifier: Apache-2.0 */
/* Who is on a connection: nobody or `default` at first, whom a client certificate names, who has
 * given a password. What that user may is asked of the rights in force. */
#ifndef STOCKADE_ENGINE_LOGIN_H
#define STOCKADE_ENGINE_LOGIN_H

#include "proxy/engine/session/session.h"

#define LOGINS_MAX 64 /* passwords that crypt(3) is busy with, or shall be */

/* The state of a connection that has just come, or was RESET. */
void login_forget(struct session *session);
/* Log in. `on_success` may be called at once; else the session starts nothing before. Where it
 * fails, so does the request. */
void login_start(struct request *request, struct bytes user, struct bytes password,
                 void (*on_success)(struct request *request));
/* The end of a session: it is nobody's any more. */
void login_end(struct session *session);

#endif
