/* SPDX-License-Identifier: Apache-2.0 */
/* A crew: forked processes that run one function each. They stop themselves (raise(SIGSTOP)) where
 * a garbage collector, a swapping host or a paused virtual machine might stop them, and are
 * continued after a pause.
 *
 * None outlives its parent (PR_SET_PDEATHSIG), stopped ones included. */
#ifndef STOCKADE_TOOLS_CREW_H
#define STOCKADE_TOOLS_CREW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "tools/failure.h"

enum { CREW_MAX = 512 };

struct crew_member {
    pid_t pid;
    bool ended;      /* and reaped */
    int64_t wake_ms; /* when to continue it; 0: it is not stopped */
};

struct crew {
    unsigned count;   /* started */
    unsigned running; /* not ended yet; stopped ones run */
    unsigned failed;  /* ended otherwise than with exit code 0 */
    struct crew_member members[CREW_MAX];
};

/* Runs in the child; the result is its exit code. Signals stay blocked there: only SIGKILL ends it.
 */
typedef int crew_function(void *context, unsigned index);

bool crew_start(struct crew *crew, unsigned count, crew_function *function, void *context,
                struct failure *failure);

/* Notes who has ended, and gives who has stopped `pause_ms` (> 0); returns how many did. */
unsigned crew_look(struct crew *crew, int64_t now_ms, int64_t pause_ms);
/* Continues those whose time has come. */
void crew_wake(struct crew *crew, int64_t now_ms);
/* The next wake_ms; `otherwise` where nobody is stopped. */
int64_t crew_next_wake(const struct crew *crew, int64_t otherwise);

/* Kills and reaps all that are left. */
void crew_end(struct crew *crew);

#endif
