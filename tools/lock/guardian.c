/* SPDX-License-Identifier: Apache-2.0 */
/* Two messages: the group's id, then a byte that says that it has ended. The end of the pipe in
 * between is our death. The group's id is not used anew while one of it is left. */
#include "tools/lock/guardian.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"

static _Noreturn void guard(int from)
{
    pid_t group = 0;
    char ended;
    sigset_t all;

    (void)setsid(); /* what is sent to our group is not for it */
    (void)dup2(from, 0);
    (void)close_range(1, ~0U, 0); /* our connections and streams are not its own */
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    if (read(0, &group, sizeof group) == (ssize_t)sizeof group && group > 1 &&
        read(0, &ended, 1) == 0) {
        (void)kill(-group, SIGKILL);
    }
    _exit(0);
}

bool guardian_start(struct guardian *guardian)
{
    int ends[2];

    check(pipe2(ends, O_CLOEXEC) == 0);
    guardian->pipe = ends[1];
    guardian->pid = fork();
    if (guardian->pid == 0) {
        guard(ends[0]);
    }
    (void)close(ends[0]);
    if (guardian->pid < 0) {
        (void)close(ends[1]);
        return false;
    }
    return true;
}

void guardian_watch(struct guardian *guardian, pid_t group)
{
    check(write(guardian->pipe, &group, sizeof group) == (ssize_t)sizeof group);
}

void guardian_dismiss(struct guardian *guardian)
{
    (void)!write(guardian->pipe, "", 1); /* one that was killed does not hear it */
    (void)close(guardian->pipe);
    (void)waitpid(guardian->pid, NULL, 0);
}
