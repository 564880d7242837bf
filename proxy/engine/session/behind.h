/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind a request that waits for others: it is read ahead, and nothing of it is begun
 * or refused. At most SESSION_INPUT_MAX bytes or so are held for a connection: what comes behind
 * these is not seen before the wait has ended. */
#ifndef STOCKADE_ENGINE_BEHIND_H
#define STOCKADE_ENGINE_BEHIND_H

#include "proxy/engine/session/session.h"

/* Look at what is there now, then at what arrives. Called again, it begins anew. It may find what
 * it looks for at once. */
void behind_look(struct session *session, struct behind *behind);
void behind_end(struct session *session);

/* For the session: more is held back; so much of it has been used. */
void behind_arrived(struct session *session);
void behind_used(struct session *session, size_t bytes);

#endif
