/* SPDX-License-Identifier: Apache-2.0 */
/* Lines in the log for those who operate. */
#ifndef STOCKADE_ENGINE_NOTES_H
#define STOCKADE_ENGINE_NOTES_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"

struct engine;
struct notes;
struct request;

struct notes *notes_new(struct engine *engine);
/* Log how many lines were left out, and free it. */
void notes_free(struct notes *notes);

/* A command was refused: STALE, UNKNOWN, NOTOKEN or GUARDED. Goes to the history and the events,
 * too. */
void note_refused(struct request *request, enum stk_error error);
/* A REVOKE came; `ended`: it has retired the token. */
void note_revoked(struct request *request, struct bytes resource, int64_t token, bool ended);

#endif
