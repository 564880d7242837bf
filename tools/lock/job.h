/* SPDX-License-Identifier: Apache-2.0 */
/* The program that runs under the lease: the leader of a process group of its own, with all that it
 * starts there. Where we are in the terminal's foreground, it is put there.
 *
 * It has ended when the whole group has: orphans become our children (PR_SET_CHILD_SUBREAPER), so
 * that we see their end. Where we are killed (SIGKILL), the kernel kills the leader, and a watchdog
 * the whole group: a process that outlives us only for that. */
#ifndef STOCKADE_TOOLS_LOCK_JOB_H
#define STOCKADE_TOOLS_LOCK_JOB_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "tools/failure.h"

enum { JOB_NOT_EXECUTABLE = 126, JOB_NOT_FOUND = 127 };

struct job {
    pid_t group;      /* the leader's process id */
    bool leader_runs; /* or is stopped */
    bool stopped;     /* the leader is */
    bool terminal;    /* stdin is one */
    int status;       /* the leader's, as the shell counts: 128 + n where signal n ended it */
    int ended_by;     /* that signal; 0: none */
    pid_t watchdog;
    int watchdog_pipe; /* the end to write to; only we can */
};

/* Start argv with this signal mask. Return 0, or JOB_NOT_FOUND, JOB_NOT_EXECUTABLE or 1, and why.
 */
int job_start(struct job *job, char **argv, const sigset_t *mask, struct failure *failure);
/* After a successful start, when the group has ended: the watchdog leaves, and is reaped. */
void job_end(struct job *job);

/* Send a signal to the whole group. */
void job_signal(const struct job *job, int number);
/* Learn who has ended, stopped or gone on. */
void job_update(struct job *job);
/* Return whether any process of the group is left. */
bool job_is_alive(const struct job *job);

/* Take the terminal's foreground for us, so that the shell hears of it when we stop. */
void job_take_terminal(const struct job *job);
/* Send a signal that came from the terminal, so to the job's group only, to our own: the script
 * that we are a part of waits for it. Only where the foreground is ours. */
void job_tell_own_group(const struct job *job, int number);
/* Give it to the job, if it is ours to give. */
void job_give_terminal(const struct job *job);

#endif
