/* SPDX-License-Identifier: Apache-2.0 */
/* A program that was started: its stderr goes to a log in a folder, it ends with its parent, and it
 * is ended by its process id. */
#ifndef STOCKADE_TOOLS_PROGRAM_H
#define STOCKADE_TOOLS_PROGRAM_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tools/failure.h"
#include "tools/signals.h"

struct program {
    pid_t pid; /* 0: not started, or ended and reaped */
    char log_path[PATH_MAX];
};

/* Runs argv (found in PATH) with stderr, and stdout where `out` is -1, into FOLDER/NAME.log. The
 * environment's STOCKADE_ settings are kept from it: they are meant for the user's own daemon. That
 * argv[0] cannot be run shows as an early end. */
bool program_start(struct program *program, char *const *argv, const char *name, const char *folder,
                   int out, const struct signals *signals, struct failure *failure);
bool program_has_ended(struct program *program);
/* SIGTERM; SIGKILL where that is not enough in time. */
void program_end(struct program *program, struct signals *signals);
/* "; it said: ..." with the last line of the log, or nothing; returns `out`. */
const char *program_last_words(const struct program *program, char *out, size_t size);

#endif
