/* SPDX-License-Identifier: Apache-2.0 */
/* A process that outlives us only to end the job where we are killed (SIGKILL) before the job's
 * end: it reads a pipe that only we can write to, and kills the group at the pipe's end. */
#ifndef STOCKADE_TOOLS_LOCK_GUARDIAN_H
#define STOCKADE_TOOLS_LOCK_GUARDIAN_H

#include <stdbool.h>
#include <sys/types.h>

struct guardian {
    pid_t pid;
    int pipe; /* the end to write to */
};

/* Before the job is started. False: there can be no more processes. */
bool guardian_start(struct guardian *guardian);
/* Names the group to kill. */
void guardian_watch(struct guardian *guardian, pid_t group);
/* The group has ended: the guardian leaves, and is reaped. */
void guardian_dismiss(struct guardian *guardian);

#endif
