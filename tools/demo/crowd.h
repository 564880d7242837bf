/* SPDX-License-Identifier: Apache-2.0 */
/* The buyers of one sale, each a process, and the referee who watches them: whoever has stopped
 * itself between read and write is continued after the pause. */
#ifndef STOCKADE_TOOLS_DEMO_CROWD_H
#define STOCKADE_TOOLS_DEMO_CROWD_H

#include "tools/crew.h"
#include "tools/signals.h"
#include "tools/term.h"

struct crowd {
    const char *title; /* of the contender: in front of messages */
    unsigned count;
    crew_function *function; /* runs in each process with `context`, ends with 0 */
    void *context;
    const struct failure *failures; /* each buyer's, in shared memory, written before it ends */
    int64_t limit_ms, pause_ms;
    void (*progress)(void *context, int64_t took_ms); /* now and then */
    struct signals *signals;
    struct term *term;
};

/* Blocks until the last buyer has left. False: one failed, hangs, or a signal asked for the end;
 * none is left then. */
bool crowd_run(const struct crowd *crowd, struct failure *failure);

/* Zeroed memory that the processes share; crowd_unshare gives it back. */
void *crowd_share(size_t size);
void crowd_unshare(void *memory, size_t size);

#endif
