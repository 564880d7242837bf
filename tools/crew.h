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
#include "tools/signals.h"

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

/* Run in the child; return its exit code. Signals stay blocked there: only SIGKILL ends it. */
typedef int crew_function(void *context, unsigned index);

/* Start `count` processes. False: none is left, and `failure` says why. */
bool crew_start(struct crew *crew, unsigned count, crew_function *function, void *context,
                struct failure *failure);

/* Note who has ended, and who has stopped, to be continued after `pause_ms` (> 0). Return how many
 * have stopped. */
unsigned crew_poll(struct crew *crew, int64_t now_ms, int64_t pause_ms);
/* Continue those whose time has come. */
void crew_wake(struct crew *crew, int64_t now_ms);
/* Return the next wake_ms, or `otherwise` where nobody is stopped. */
int64_t crew_next_wake(const struct crew *crew, int64_t otherwise);

/* Kill and reap all that are left. */
void crew_end(struct crew *crew);

/* A crew at work, and what its parent does meanwhile. */
struct crew_work {
    const char *member; /* what one is called in messages, such as "worker" */
    unsigned count;
    crew_function
        *function; /* runs in each process with `context`, and returns 0 where it is done */
    void *context;
    const struct failure *failures; /* each member's, in shared memory, set before it ends */
    int64_t pause_ms;               /* how long one that stopped itself stays stopped */
    /* Called ten times a second. False: it takes too long, and `failure` says so. */
    bool (*progress)(void *context, int64_t took_ms, struct failure *failure);
    struct signals *signals;
    unsigned stops; /* out: how often one has stopped itself */
};

/* Start the crew, and block until the last one has ended. False: one failed, it takes too long, or
 * a signal asks for the end; none is left then. */
bool crew_run(struct crew_work *work, struct failure *failure);

/* Return zeroed memory that the processes share; crew_unshare gives it back. */
void *crew_share(size_t size);
void crew_unshare(void *memory, size_t size);

#endif
