/* SPDX-License-Identifier: Apache-2.0 */
/* The gate: whatever a client sends passes it, and whatever a client is answered does. A parse
 * error, an unknown command and one that is refused are requests as all others are, and take their
 * turn.
 *
 *   admission_take ──▶ session->next ──▶ admission_start_next ──▶ session_admits ──▶ start
 *     unknown, wrong count of words,      order, back-pressure      stopping, login, rights,
 * limits, broken protocol: an answer                                    MULTI: an error, and no
 * start
 *
 * A command between MULTI and EXEC passes the second half twice: when it is queued, and, as to
 * rights, at EXEC (write/multi.c). */
#ifndef STOCKADE_ENGINE_ADMISSION_H
#define STOCKADE_ENGINE_ADMISSION_H

#include "proxy/engine/session/session.h"

struct denial; /* rights.h */

/* Make a complete request `next`: its command, or the answer that there is none such. A browser's
 * ends the session. */
void admission_take(struct session *session, const struct bytes *argv, size_t argc);
/* What came in is no request: make an error `next`, after which the connection ends. */
void admission_take_broken(struct session *session, const char *why);
/* Start `next`, if it has its turn and nothing speaks against it; else it is answered. False: it
 * has to wait. */
bool admission_start_next(struct session *session);
/* Give its reply a place in the order of replies. */
void admission_take_place(struct session *session, struct request *request);

/* Those that a queued command passes, too. False: the error is in the reply. */
bool session_admits(struct session *session, struct request *request);
/* Has the next turn to come before that, since there are more names in the request than one turn
 * may look at? Its plan is made. */
bool session_looks_on(struct session *session, struct request *request);
/* One of the checks: may its user do that? */
bool session_permits(struct session *session, struct request *request);
/* Tell the request that this was denied: its reply, the audit, the log of denials. */
void session_deny(struct session *session, struct request *request, const struct denial *denial);

#endif
