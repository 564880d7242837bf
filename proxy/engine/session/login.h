/* SPDX-License-Identifier: Apache-2.0 */
/* AUTH, and what becomes of those who are logged in when the users change (engine_set_acl). */
#ifndef STOCKADE_ENGINE_LOGIN_H
#define STOCKADE_ENGINE_LOGIN_H

#include "proxy/engine/session/request.h"

#define LOGINS_MAX 64 /* passwords that crypt(3) is busy with, or shall be */

/* Log in. `on_success` may be called at once; else the session starts nothing before. Where it
 * fails, so does the request. */
void login_start(struct request *request, struct bytes user, struct bytes password,
                 void (*on_success)(struct request *request));

#endif
