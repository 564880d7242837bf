/* SPDX-License-Identifier: Apache-2.0 */
/* signalfd and poll. */
#include "tools/signals.h"

#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "fence/base/check.h"

void signals_add(sigset_t *set, int number)
{
    struct sigaction now;

    if (sigaction(number, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        (void)sigaddset(set, number);
}

_Noreturn void signals_end_by(int number)
{
    const struct rlimit no_core = {0, 0};
    sigset_t open;

    (void)setrlimit(RLIMIT_CORE, &no_core); /* SIGQUIT is no defect of ours */
    (void)signal(number, SIG_DFL);
    (void)raise(number);
    (void)sigemptyset(&open);
    (void)sigprocmask(SIG_SETMASK, &open, NULL);
    _exit(128 + number);
}

void signals_open(struct signals *signals)
{
    sigset_t mask;

    (void)sigemptyset(&mask);
    signals_add(&mask, SIGINT);
    signals_add(&mask, SIGTERM);
    signals_add(&mask, SIGHUP);
    signals_add(&mask, SIGQUIT);
    (void)sigaddset(&mask, SIGCHLD);
    signals->ending = 0;
    check(sigprocmask(SIG_BLOCK, &mask, &signals->before) == 0);
    signals->fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    check(signals->fd >= 0);
}

void signals_close(struct signals *signals)
{
    (void)close(signals->fd);
    check(sigprocmask(SIG_SETMASK, &signals->before, NULL) == 0);
}

bool signals_wait(struct signals *signals, int fd, int64_t limit_ms)
{
    struct pollfd polled[2] = {{.fd = signals->fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    struct signalfd_siginfo info;

    if (poll(polled, 2, (int)(limit_ms > 0 ? limit_ms : 0)) < 0) {
        check(errno == EINTR);
        return false;
    }
    while (read(signals->fd, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo != SIGCHLD)
            signals->ending = (int)info.ssi_signo;
    return polled[1].revents != 0;
}

void signals_before_exec(const struct signals *signals, int parent, int end_signal)
{
    (void)setpgid(0, 0);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &signals->before, NULL);
    (void)prctl(PR_SET_PDEATHSIG, end_signal != 0 ? end_signal : SIGKILL);
    if (getppid() != parent) /* it ended before prctl */
        _exit(1);
}
