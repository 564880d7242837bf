/* SPDX-License-Identifier: Apache-2.0 */
/* A program that we start. Its stderr goes to a log in a folder, it ends with its parent, and we
 * end it by its process id. */
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

/* Run argv (found in PATH). Its stderr, and its stdout where `out` is -1, go to FOLDER/NAME.log. It
 * does not get the environment's STOCKADE_ settings, which are meant for the user's own daemon.
 * Where argv[0] cannot be run, the program ends early. */
bool program_start(struct program *program, char *const *argv, const char *name, const char *folder,
                   int out, const struct signals *signals, struct failure *failure);
/* Return whether it has ended, and reap it. */
bool program_has_ended(struct program *program);
/* End it by SIGTERM, or by SIGKILL where that takes too long. */
void program_end(struct program *program, struct signals *signals);
/* Write "; it said: ..." with the last line of the log, or nothing; return `out`. */
const char *program_last_words(const struct program *program, char *out, size_t size);

#endif
