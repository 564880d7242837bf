/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade lock RESOURCE -- PROGRAM`: a program that runs only while its lease is held. */
#include "tools/lock/lock.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "tools/options.h"

enum { DAY_MS = 24 * 3600 * 1000 };

static const struct option_row rows[] = {
    {"ttl", OPTION_MS, offsetof(struct lock_settings, ttl_ms), 100, DAY_MS, "30s",
     "the lease's time to live; renewed at a third of it", NULL},
    {"wait", OPTION_MS, offsetof(struct lock_settings, wait_ms), 0, DAY_MS, "10s",
     "how long to wait in line for the lease", NULL},
    {"grace", OPTION_MS, offsetof(struct lock_settings, grace_ms), 0, DAY_MS, "5s",
     "from TERM to KILL, where the program has to be ended", NULL},
};
static const struct option_table table = {
    .command = "stockade lock",
    .usage = "stockade lock RESOURCE [options] -- PROGRAM [ARG...]",
    .about =
        "Runs a program while it holds the lease on a resource. The program finds\n"
        "STOCKADE_RESOURCE and STOCKADE_TOKEN in its environment: `stockade set --token` and\n"
        "FENCED take the token. It runs in a process group of its own; signals are passed on\n"
        "(INT, TERM, HUP, QUIT, USR1, USR2, TSTP, CONT).\n\n"
        "When the lease is lost, the group gets TERM, and KILL after --grace. When the lease\n"
        "cannot be renewed, the group gets TERM early enough to be killed before the TTL is\n"
        "over (the grace is a third of the TTL then, or less). What the program leaves running\n"
        "in its group is ended likewise before the lease is released.\n\n"
        "exit codes: the program's own, 128 + n where signal n ended it, or\n"
        "   2  wrong usage\n"
        "  69  the server cannot be reached, or refuses\n"
        "  75  another holds the lease: not acquired in time\n"
        "  76  the lease was lost, the program was ended\n"
        " 126  the program cannot be executed\n"
        " 127  the program was not found",
    .rows = rows,
    .count = sizeof rows / sizeof *rows,
    .operand = "RESOURCE",
    .operand_offset = offsetof(struct lock_settings, resource),
};

static void watch_signals(struct lock *lock)
{
    static const int numbers[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,
                                  SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD};
    sigset_t mask, blocked;

    (void)sigemptyset(&mask);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)sigaddset(&mask, numbers[i]);
    }
    blocked = mask;
    (void)sigaddset(&blocked, SIGTTOU); /* we take the terminal back from behind */
    check(sigprocmask(SIG_BLOCK, &blocked, &lock->before) == 0);
    lock->signal_fd = signalfd(-1, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
    lock->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    check(lock->signal_fd >= 0 && lock->timer_fd >= 0);
}

int lock_signal(struct lock *lock)
{
    struct signalfd_siginfo info;

    return read(lock->signal_fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo
                                                                             : 0;
}

void lock_wait(struct lock *lock, int64_t until_ms)
{
    struct pollfd polled[] = {
        {.fd = lock->signal_fd, .events = POLLIN},
        {.fd = lock->timer_fd, .events = POLLIN},
        link_poll(&lock->keeper.link),
        link_poll(&lock->keeper.events),
    };
    /* A poll's own time limit stands still while the machine sleeps; a moment in the past fires at
     * once, but zero would disarm. */
    int64_t at_ms = until_ms < 1 ? 1 : until_ms;
    struct itimerspec at = {
        .it_value = {.tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000}};

    check(timerfd_settime(lock->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
    (void)poll(polled, sizeof polled / sizeof *polled, -1);
}

static void make_owner(struct lock *lock)
{
    char host[65] = "";
    uint64_t random;

    check(getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random);
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(lock->owner, sizeof lock->owner, "lock:%s:%d:%016" PRIx64, host, getpid(),
                   random);
}

static int complain(const struct lock *lock, int code)
{
    if (code < 128) {
        fprintf(stderr, "stockade lock: %s\n", lock->keeper.failure.text);
    }
    return code;
}

static int run(struct lock *lock, char **program)
{
    char token[24];
    struct failure failure;

    (void)snprintf(token, sizeof token, "%" PRId64, lock->keeper.token);
    check(setenv("STOCKADE_RESOURCE", lock->settings.resource, 1) == 0);
    check(setenv("STOCKADE_TOKEN", token, 1) == 0);
    int code = job_start(&lock->job, program, &lock->before, &failure);
    if (code != 0) {
        fprintf(stderr, "stockade lock: %s\n", failure.text);
    } else {
        lock_run_job(lock);
        job_end(&lock->job);
        code = lock->job.status;
    }
    keeper_stop(&lock->keeper);
    if (!lock->keeper.lost && !lock_release(lock)) {
        lock->keeper.lost = true;
        fprintf(stderr, "stockade lock: the lease on %s was lost before the program had ended\n",
                lock->settings.resource);
    }
    return lock->keeper.lost || lock->ending == LOCK_LOSING ? LOCK_LOST : code;
}

/* How many words there are before "--". */
static int words_before_program(int argc, char **argv)
{
    int words = 1;

    while (words < argc && strcmp(argv[words], "--") != 0) {
        words++;
    }
    return words;
}

int lock_run(const struct cli *cli, int argc, char **argv)
{
    struct lock lock = {.settings = {.ttl_ms = 30000, .wait_ms = 10000, .grace_ms = 5000}};
    int words = words_before_program(argc, argv);

    switch (options_parse(&table, &lock.settings, words, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    if (words + 1 >= argc) {
        fprintf(stderr, "stockade lock: -- PROGRAM is missing; see stockade lock --help\n");
        return CLI_USAGE;
    }
    make_owner(&lock);
    watch_signals(&lock);
    int code = lock_acquire(&lock, &cli->uri);
    code = code != 0 ? complain(&lock, code) : run(&lock, argv + words + 1);
    link_close(&lock.keeper.link);
    (void)close(lock.signal_fd);
    (void)close(lock.timer_fd);
    return code;
}
