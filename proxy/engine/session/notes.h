/* SPDX-License-Identifier: Apache-2.0 */
/* Lines in the log for those who operate. */
#ifndef STOCKADE_ENGINE_NOTES_H
#define STOCKADE_ENGINE_NOTES_H

#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"

struct engine;
struct fact;
struct history_refusal;
struct notes;
struct request;

struct notes *notes_new(struct engine *engine);
/* Log how many lines were left out, and free it. */
void notes_free(struct notes *notes);

/* A command, or a program's own SQL, was refused, by the token rule or a guard. With the history's
 * fields, for programs. */
void note_refused(struct engine *engine, const struct fact *fact,
                  const struct history_refusal *refusal);
/* A token was retired by force: by a command, or on the page. */
void note_revoked(struct engine *engine, const struct fact *fact);
/* A REVOKE came, and nobody held the resource. */
void note_revoked_nothing(const struct request *request, struct bytes resource);

#endif
