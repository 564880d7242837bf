/* SPDX-License-Identifier: Apache-2.0 */
/* fork, exec, waitpid, tcsetpgrp. That exec failed is told through a pipe which exec closes. */
#include "tools/lock/job.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"

/* SIGTTOU is blocked, here and in the child until it runs. */
static void give_terminal(const struct job *job, pid_t from)
{
    if (job->terminal && tcgetpgrp(STDIN_FILENO) == from) {
        (void)tcsetpgrp(STDIN_FILENO, job->group);
    }
}

static _Noreturn void run(char **argv, const sigset_t *mask, pid_t parent, int told)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) { /* it ended before prctl */
        _exit(1);
    }
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
    (void)execvp(argv[0], argv);
    int error = errno;
    (void)!write(told, &error, sizeof error);
    _exit(JOB_NOT_FOUND);
}

int job_start(struct job *job, char **argv, const sigset_t *mask, struct failure *failure)
{
    pid_t parent = getpid();
    int told[2], error = 0;

    *job = (struct job){.terminal = isatty(STDIN_FILENO) == 1};
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    bool guarded = guardian_start(&job->guardian);
    check(pipe2(told, O_CLOEXEC) == 0);
    job->group = guarded ? fork() : -1;
    if (job->group < 0) {
        (void)failure_set(failure, "cannot start a process: %s", strerror(errno));
        (void)close(told[0]);
        (void)close(told[1]);
        if (guarded) {
            guardian_dismiss(&job->guardian);
        }
        return 1;
    }
    if (job->group == 0) {
        job->group = getpid();
        (void)setpgid(0, 0);
        give_terminal(job, getpgid(parent));
        run(argv, mask, parent, told[1]);
    }
    (void)setpgid(job->group, job->group); /* whoever is first */
    (void)close(told[1]);
    guardian_watch(&job->guardian, job->group);
    ssize_t got = read(told[0], &error, sizeof error);
    (void)close(told[0]);
    job->leader_runs = true;
    if (got != (ssize_t)sizeof error) {
        return 0;
    }
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

void job_look(struct job *job)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED)) > 0) {
        if (pid != job->group) {
            continue;
        }
        job->stopped = WIFSTOPPED(status);
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            job->leader_runs = false;
            job->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
}

bool job_is_alive(const struct job *job)
{
    return job->leader_runs || kill(-job->group, 0) == 0 || errno == EPERM;
}

void job_end(struct job *job)
{
    guardian_dismiss(&job->guardian);
}

void job_take_terminal(const struct job *job)
{
    if (job->terminal && tcgetpgrp(STDIN_FILENO) == job->group) {
        (void)tcsetpgrp(STDIN_FILENO, getpgrp());
    }
}

void job_give_terminal(const struct job *job)
{
    give_terminal(job, getpgrp());
}
