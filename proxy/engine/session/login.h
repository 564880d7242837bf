/* SPDX-License-Identifier: Apache-2.0 */
/* Logging in by a password (AUTH, HELLO); and engine_set_acl: who is logged in when users change.
 */
#ifndef STOCKADE_ENGINE_LOGIN_H
#define STOCKADE_ENGINE_LOGIN_H

#include "proxy/engine/session/request.h"

#define LOGINS_MAX 64 /* passwords that wait for crypt(3), of all connections; more get BUSY */

/* Log in, then call `on_success`, which finishes the request: at once, or when the password was
 * checked, before which the session parses nothing more. Where the login fails, so does the
 * request. */
void login_start(struct request *request, struct bytes user, struct bytes password,
                 void (*on_success)(struct request *request));

#endif
