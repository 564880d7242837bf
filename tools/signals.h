/* SPDX-License-Identifier: Apache-2.0 */
/* Signals as events: SIGINT, SIGTERM, SIGHUP and SIGQUIT ask for the end, SIGCHLD wakes the waiter.
 * They stay blocked while this is open, and are read from a descriptor: nothing is ever interrupted
 * half-way, and a command always cleans up before it ends. One that we were started to ignore
 * (nohup, a shell's `&`) stays ignored. */
#ifndef STOCKADE_TOOLS_SIGNALS_H
#define STOCKADE_TOOLS_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

struct signals {
    int fd;
    int ending;      /* the signal that asked for the end; 0: none yet */
    sigset_t before; /* the mask to give to programs that are started */
};

/* Add a signal to those that are read from a descriptor, unless it is ignored: blocked, it would
 * count all the same. */
void signals_add(sigset_t *set, int number);
/* End by a signal, after all is done, so that a shell's script or loop ends as well. */
_Noreturn void signals_end_by(int number);

/* Block the signals and begin to collect them. */
void signals_open(struct signals *signals);
/* Give the signals their usual effect again. */
void signals_close(struct signals *signals);

/* Wait until `fd` is readable (-1: no descriptor), a child has changed its state, the end is asked
 * for, or the time is over. Return whether `fd` is readable. */
bool signals_wait(struct signals *signals, int fd, int64_t limit_ms);

/* Prepare a child for exec: a process group of its own, so that Ctrl-C reaches only us and we end
 * it in order; the usual signals; and an end with its parent, whose process id is `parent`, by that
 * signal (0: SIGKILL). */
void signals_before_exec(const struct signals *signals, int parent, int end_signal);

#endif
