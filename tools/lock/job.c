/* SPDX-License-Identifier: Apache-2.0 */
/* fork, exec, waitpid, tcsetpgrp. A failed exec is reported through a pipe that a successful one
 * closes. */
#include "tools/lock/job.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"

/* The watchdog reads two messages from its pipe: the group's id, then a byte that says that the
 * group has ended. Where the pipe ends in between, we have died. (The group's id is not used again
 * while one of its processes is left.) */
static _Noreturn void watch(int from)
{
    pid_t group = 0;
    char ended;
    sigset_t all;

    (void)setsid(); /* so that signals to our group do not reach it */
    (void)dup2(from, 0);
    (void)close_range(1, ~0U, 0); /* it must not keep our connections and streams open */
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    if (read(0, &group, sizeof group) == (ssize_t)sizeof group && group > 1 &&
        read(0, &ended, 1) == 0)
        (void)kill(-group, SIGKILL);
    _exit(0);
}

static bool watchdog_start(struct job *job)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    job->watchdog_pipe = ends[1];
    job->watchdog = fork();
    if (job->watchdog == 0)
        watch(ends[0]);
    (void)close(ends[0]);
    if (job->watchdog < 0) {
        (void)close(ends[1]);
        return false;
    }
    return true;
}

/* SIGTTOU is blocked, here and in the child until it runs. */
static void give_terminal(const struct job *job, pid_t from)
{
    if (job->terminal && tcgetpgrp(STDIN_FILENO) == from)
        (void)tcsetpgrp(STDIN_FILENO, job->group);
}

static _Noreturn void run(char **argv, const sigset_t *mask, pid_t parent, int exec_failed)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before prctl */
        _exit(1);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    (void)execvp(argv[0], argv);
    int error = errno;
    (void)!write(exec_failed, &error, sizeof error);
    _exit(JOB_NOT_FOUND);
}

int job_start(struct job *job, char **argv, const sigset_t *mask, struct failure *failure)
{
    pid_t parent = getpid();
    int exec_failed[2], error = 0;

    *job = (struct job){.terminal = isatty(STDIN_FILENO) == 1};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe2(exec_failed, O_CLOEXEC) != 0) {
        (void)failure_set(failure, "cannot start a process: %s", strerror(errno));
        return 1;
    }
    bool watched = watchdog_start(job);
    job->group = watched ? fork() : -1;
    if (job->group < 0) {
        (void)failure_set(failure, "cannot start a process: %s", strerror(errno));
        (void)close(exec_failed[0]);
        (void)close(exec_failed[1]);
        if (watched)
            job_end(job);
        return 1;
    }
    if (job->group == 0) {
        job->group = getpid();
        (void)setpgid(0, 0);
        give_terminal(job, getpgid(parent));
        run(argv, mask, parent, exec_failed[1]);
    }
    (void)setpgid(job->group, job->group); /* here and in the child: whoever is first */
    (void)close(exec_failed[1]);
    check(write(job->watchdog_pipe, &job->group, sizeof job->group) == (ssize_t)sizeof job->group);
    ssize_t got = read(exec_failed[0], &error, sizeof error);
    (void)close(exec_failed[0]);
    job->leader_runs = true;
    if (got != (ssize_t)sizeof error)
        return 0;
    check(waitpid(job->group, NULL, 0) == job->group);
    job->leader_runs = false;
    job_take_terminal(job);
    job_end(job);
    (void)failure_set(failure, "cannot run %s: %s", argv[0], strerror(error));
    return error == ENOENT || error == ENOTDIR ? JOB_NOT_FOUND : JOB_NOT_EXECUTABLE;
}

void job_signal(const struct job *job, int number)
{
    check(job->group > 1);
    /* It may be gone; while its leader is unreaped or a process is left, the id is its own. */
    (void)kill(-job->group, number);
}

void job_update(struct job *job)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (pid != job->group)
            continue;
        job->stopped = WIFSTOPPED(status);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            job->leader_runs = false;
            job->ended_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
            job->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + job->ended_by;
        }
    }
}

bool job_is_alive(const struct job *job)
{
    return job->leader_runs || kill(-job->group, 0) == 0 || errno == EPERM;
}

void job_end(struct job *job)
{
    (void)!write(job->watchdog_pipe, "", 1); /* fails where it was killed */
    (void)close(job->watchdog_pipe);
    (void)waitpid(job->watchdog, NULL, 0);
}

void job_take_terminal(const struct job *job)
{
    if (job->terminal && tcgetpgrp(STDIN_FILENO) == job->group)
        (void)tcsetpgrp(STDIN_FILENO, getpgrp());
}

void job_tell_own_group(const struct job *job, int number)
{
    if (job->terminal && tcgetpgrp(STDIN_FILENO) == getpgrp())
        (void)kill(0, number);
}

void job_give_terminal(const struct job *job)
{
    give_terminal(job, getpgrp());
}
