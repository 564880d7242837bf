/* SPDX-License-Identifier: Apache-2.0 */
/* `stockade lock RESOURCE -- PROGRAM`: a program that runs only while its lease is held.
 *
 * The library takes the lease, renews it and gives it back; here one loop waits for signals, the
 * clock and the library's word that the lease is lost. The job's life under the lease:
 *
 *   running ──leader ended, others left──▶ TERM ──grace──▶ KILL
 *      ├──── lease lost ─────────────────▶ TERM ──grace──▶ KILL
 *      ├──── no renewal ─────────────────▶ TERM ──────────▶ KILL   before the TTL is over
 *      └──── stopped at the terminal ──▶ we stop too ──▶ renew first, then go on */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "proxy/client/stockade.h"
#include "tools/cli.h"
#include "tools/lock/job.h"
#include "tools/options.h"
#include "tools/signals.h"
#include "tools/term.h"

enum {
    DAY_MS = 24 * 3600 * 1000,
    ANSWER_LIMIT_MS = 5000,
    RELEASE_LIMIT_MS = 3000,
    RELEASE_LOST_LIMIT_MS = 300, /* where the lease could not be renewed either */
    RESUME_LIMIT_MS = 3000,
    RESUME_PAUSE_MS = 50,
    KILLED_LIMIT_MS = 5000, /* until what was killed has ended */
    CHECK_GROUP_MS = 50,
    IDLE_MS = 3600 * 1000,
};

enum ending {
    NOT_ENDING,
    TIDYING, /* the leader has ended by itself, others of its group have not */
    LOSING,  /* the lease is lost, or may be soon */
};

struct settings {
    const char *resource;
    int64_t ttl_ms, wait_ms, grace_ms;
};

struct lock {
    struct settings settings;
    stk_client *client;
    stk_lease *lease;
    int signal_fd, timer_fd;
    sigset_t before; /* the signal mask that the job gets */
    struct job job;
    enum ending ending;
    bool killed;
    int passed_on; /* the last signal that was, of those that want our end; 0: none */
    int64_t kill_at_ms;
    int64_t sure_until_ms; /* the lease's end, as it was last known */
    /* Set by the library's thread. */
    int lost_fd;
    _Atomic enum stk_error lost; /* why the lease is lost; STK_OK: it is not */
};

static const struct option_row rows[] = {
    {"ttl", OPTION_MS, offsetof(struct settings, ttl_ms), 100, DAY_MS, "30s",
     "the lease's time to live; renewed at a third of it", NULL},
    {"wait", OPTION_MS, offsetof(struct settings, wait_ms), 0, DAY_MS, "10s",
     "how long to wait in line for the lease", NULL},
    {"grace", OPTION_MS, offsetof(struct settings, grace_ms), 0, DAY_MS, "5s",
     "from TERM to KILL, where the program has to be ended", NULL},
};
static const struct option_table table = {
    .command = "stockade lock",
    .usage = "stockade lock RESOURCE [options] -- PROGRAM [ARG...]",
    .about =
        "Runs a program while it holds the lease on a resource. The program finds\n"
        "STOCKADE_RESOURCE, STOCKADE_TOKEN and STOCKADE_URI in its environment: FENCED and\n"
        "`stockade set --token` take the token. It runs in a process group of its own; signals\n"
        "are passed on (INT, TERM, HUP, QUIT, USR1, USR2, TSTP, CONT).\n\n"
        "When the lease is lost, the group gets TERM, and KILL after --grace. When the lease\n"
        "cannot be renewed, the group gets TERM early enough to be killed before the TTL is\n"
        "over (the grace is a third of the TTL then, or less). Whatever the program leaves\n"
        "running in its group is ended, too, before the lease is released.\n\n"
        "exit codes: the program's own, 128 + n where signal n ended it (INT, QUIT, TERM and HUP\n"
        "end `stockade lock` alike, so that Ctrl-C ends a script around it), or\n"
        "   2  wrong usage\n"
        "  69  the server cannot be reached, or refuses\n"
        "  75  another holds the lease: not acquired in time\n"
        "  76  the lease was lost, the program was ended\n"
        " 126  the program cannot be executed\n"
        " 127  the program was not found",
    OPTION_ROWS(rows),
    .operands = {{"RESOURCE", offsetof(struct settings, resource)}},
    .too_many = "put -- before the program",
};

/* Milliseconds that never go back and that count while the machine sleeps: the servers' clocks do.
 */
static int64_t now_ms(void)
{
    struct timespec now;

    check(clock_gettime(CLOCK_BOOTTIME, &now) == 0);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Signals, as what can be read from a descriptor. */

static const int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
static const int job_signals[] = {SIGTSTP, SIGCONT, SIGCHLD};

static void add_signals(sigset_t *set, const int *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        signals_add(set, numbers[i]);
}

/* Read the signals that want our end, and, where a job runs, those that concern it. The others keep
 * their usual effect: before there is a job, Ctrl-Z stops us. */
static void watch_signals(struct lock *lock, bool with_job)
{
    sigset_t mask, blocked;

    (void)sigemptyset(&mask);
    add_signals(&mask, ending_signals, sizeof ending_signals / sizeof *ending_signals);
    if (with_job)
        add_signals(&mask, job_signals, sizeof job_signals / sizeof *job_signals);
    blocked = mask;
    if (with_job)
        (void)sigaddset(&blocked, SIGTTOU); /* we take the terminal back from the background */
    check(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    lock->signal_fd = signalfd(lock->signal_fd, &mask, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* Return the next signal that came, or 0. */
static int next_signal(const struct lock *lock)
{
    struct signalfd_siginfo info;

    return read(lock->signal_fd, &info, sizeof info) == (ssize_t)sizeof info ? (int)info.ssi_signo
                                                                             : 0;
}

/* Taking the lease. */

static void on_lost(stk_lease *lease, enum stk_error why, void *context)
{
    struct lock *lock = context;

    (void)lease;
    atomic_store(&lock->lost, why);
    (void)eventfd_write(lock->lost_fd, 1);
}

static int complain_of_acquire(const struct lock *lock, enum stk_error error)
{
    const char *resource = lock->settings.resource, *why = stk_message();

    switch (error) {
    case STK_CANCELLED: return CLI_SIGNAL + next_signal(lock);
    case STK_HELD:
        term_error("stockade lock: another holds %s, still after %" PRId64 " ms", resource,
                   lock->settings.wait_ms);
        return CLI_HELD;
    case STK_TIMEOUT:
    case STK_UNREACHABLE:
        term_error("stockade lock: cannot reach the server: %s", why);
        return CLI_UNREACHABLE;
    default:
        term_error("stockade lock: no lease on %s: %s %s", resource, stk_error_code(error), why);
        return error == STK_STALE || error == STK_UNKNOWN ? CLI_STALE : CLI_UNREACHABLE;
    }
}

/* Return 0, or the exit code after a message (there is none where a signal ended it). */
static int acquire(struct lock *lock, const char *uri)
{
    char host[65] = "", owner[160]; /* ours alone */
    uint64_t random;

    check(getrandom(&random, sizeof random, 0) == (ssize_t)sizeof random);
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(owner, sizeof owner, "lock:%s:%d:%016" PRIx64, host, getpid(), random);
    const stk_lease_options options = {.ttl_ms = lock->settings.ttl_ms,
                                       .wait_ms = lock->settings.wait_ms,
                                       .owner = owner,
                                       .lost = on_lost,
                                       .context = lock};
    stk_cancel_on(lock->signal_fd);
    enum stk_error error = stk_client_open(uri, ANSWER_LIMIT_MS, &lock->client);
    if (error == STK_OK)
        error = stk_acquire(lock->client, lock->settings.resource, &options, &lock->lease);
    stk_cancel_on(-1);
    return error == STK_OK ? 0 : complain_of_acquire(lock, error);
}

/* The job's life. */

static void read_lease(struct lock *lock)
{
    int64_t left_ms = stk_lease_left_ms(lock->lease);

    if (left_ms > 0)
        lock->sure_until_ms = now_ms() + left_ms;
}

/* Return when nothing of the job may be left, unless a renewal comes. */
static int64_t last_ms(const struct lock *lock)
{
    return lock->sure_until_ms - lock->settings.ttl_ms / 50;
}

/* Return when its end has to begin for that. */
static int64_t end_at_ms(const struct lock *lock)
{
    return last_ms(lock) - earlier(lock->settings.grace_ms, lock->settings.ttl_ms / 3);
}

static void begin_end(struct lock *lock, enum ending ending, int64_t kill_at_ms)
{
    lock->ending = ending;
    lock->kill_at_ms = kill_at_ms;
    job_signal(&lock->job, SIGTERM);
    if (kill_at_ms > now_ms())
        job_signal(&lock->job, SIGCONT); /* a stopped one gets its TERM only then */
}

/* `why`: of the loss, or of the last renewal's failure. */
static void lose(struct lock *lock, enum stk_error why, int64_t kill_at_ms)
{
    const char *text = why == STK_OK     ? "no answer"
                       : why == STK_BUSY ? "the daemon is busy, or the lock is another's"
                                         : stk_error_text(why);

    term_error("stockade lock: the lease on %s %s: %.*s; ending the program",
               lock->settings.resource, why == STK_STALE ? "is lost" : "could not be renewed",
               (int)strcspn(text, ";"), text);
    begin_end(lock, LOSING, kill_at_ms);
}

static void check_lease(struct lock *lock)
{
    int64_t now = now_ms(), grace_end_ms = now + lock->settings.grace_ms;
    enum stk_error lost = atomic_load(&lock->lost);

    read_lease(lock);
    if (lost == STK_STALE)
        lose(lock, lost, grace_end_ms);
    else if (lost != STK_OK || now >= end_at_ms(lock))
        lose(lock, lost != STK_OK ? lost : stk_lease_why(lock->lease),
             earlier(last_ms(lock), grace_end_ms));
}

/* The job was stopped at the terminal: so are we, until the shell continues us. The lease may have
 * passed on meanwhile, and the job goes on only where it is ours. */
static void stop_with_job(struct lock *lock)
{
    enum stk_error error;

    job_take_terminal(&lock->job);
    (void)stk_keep_alive(lock->lease, false);
    (void)raise(SIGSTOP);
    lock->job.stopped = false;
    int64_t limit_ms = now_ms() + RESUME_LIMIT_MS;
    (void)stk_client_set_timeout(lock->client, RESUME_LIMIT_MS);
    while ((error = stk_renew(lock->lease, 0)) != STK_OK && error != STK_STALE &&
           error != STK_UNKNOWN && now_ms() < limit_ms)
        (void)poll(NULL, 0, RESUME_PAUSE_MS);
    read_lease(lock);
    if (error == STK_OK && now_ms() < end_at_ms(lock))
        error = stk_keep_alive(lock->lease, true);
    if (error != STK_OK) {
        lose(lock, error, now_ms()); /* at once: continued, it would write */
        return;
    }
    job_give_terminal(&lock->job);
    job_signal(&lock->job, SIGCONT);
}

static void pass_signals_on(struct lock *lock)
{
    int number;

    while ((number = next_signal(lock)) != 0) {
        if (number == SIGCHLD)
            continue;
        if (number == SIGCONT)
            job_give_terminal(&lock->job);
        else if (number != SIGTSTP)
            lock->passed_on = number;
        job_signal(&lock->job, number);
    }
}

static int64_t next_event_ms(const struct lock *lock)
{
    int64_t next_ms = now_ms() + IDLE_MS;

    if (lock->ending != LOSING)
        next_ms = earlier(next_ms, end_at_ms(lock));
    if (lock->ending != NOT_ENDING)
        next_ms = earlier(next_ms, lock->kill_at_ms + (lock->killed ? KILLED_LIMIT_MS : 0));
    if (!lock->job.leader_runs) /* not all that are left need be our children */
        next_ms = earlier(next_ms, now_ms() + CHECK_GROUP_MS);
    return next_ms;
}

/* Wait until a signal came, the lease was lost, or it is time. */
static void wait_until(struct lock *lock, int64_t until_ms)
{
    struct pollfd polled[] = {{.fd = lock->signal_fd, .events = POLLIN},
                              {.fd = lock->timer_fd, .events = POLLIN},
                              {.fd = lock->lost_fd, .events = POLLIN}};
    /* A poll's own time limit stands still while the machine sleeps; a moment in the past fires at
     * once, but zero would disarm. */
    int64_t at_ms = until_ms < 1 ? 1 : until_ms;
    struct itimerspec at = {
        .it_value = {.tv_sec = at_ms / 1000, .tv_nsec = at_ms % 1000 * 1000000}};
    eventfd_t ignored;

    check(timerfd_settime(lock->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
    (void)poll(polled, sizeof polled / sizeof *polled, -1);
    (void)eventfd_read(lock->lost_fd, &ignored);
}

/* Run the started job to its end, or end it. */
static void run_job(struct lock *lock)
{
    struct job *job = &lock->job;

    for (;;) {
        job_update(job);
        if (!job->leader_runs)
            job_take_terminal(job);
        if (!job_is_alive(job))
            return;
        if (job->stopped && job->terminal && lock->ending == NOT_ENDING)
            stop_with_job(lock);
        if (lock->ending != LOSING)
            check_lease(lock);
        if (lock->ending == NOT_ENDING && !job->leader_runs)
            begin_end(lock, TIDYING, now_ms() + lock->settings.grace_ms);
        if (lock->ending != NOT_ENDING && !lock->killed && now_ms() >= lock->kill_at_ms) {
            lock->killed = true;
            job_signal(job, SIGKILL);
        }
        if (lock->killed && now_ms() > lock->kill_at_ms + KILLED_LIMIT_MS) {
            term_error("stockade lock: processes of group %d do not end", job->group);
            return;
        }
        wait_until(lock, next_event_ms(lock));
        pass_signals_on(lock);
    }
}

/* Giving it back. */

/* Release the lease. False: the server says that it was not ours any more. */
static bool release(struct lock *lock)
{
    int64_t limit_ms = lock->ending == LOSING ? RELEASE_LOST_LIMIT_MS : RELEASE_LIMIT_MS;

    read_lease(lock);
    limit_ms = earlier(limit_ms, lock->sure_until_ms - now_ms()); /* it ends by itself then */
    watch_signals(lock, false);
    stk_cancel_on(lock->signal_fd);
    enum stk_error error = stk_client_set_timeout(lock->client, limit_ms < 1 ? 1 : limit_ms);
    if (error == STK_OK)
        error = stk_release(lock->lease);
    stk_cancel_on(-1);
    if (error == STK_OK || error == STK_STALE)
        return error == STK_OK;
    term_error("stockade lock: could not release %s, it ends by its TTL: %s",
               lock->settings.resource, stk_message());
    return true;
}

/* Return what becomes of us when the program has ended by itself: who asks it to end, asks us. */
static int code_of_job(const struct lock *lock)
{
    const struct job *job = &lock->job;

    if (job->ended_by != SIGINT && job->ended_by != SIGQUIT && job->ended_by != SIGTERM &&
        job->ended_by != SIGHUP)
        return job->status;
    if (job->ended_by != lock->passed_on && (job->ended_by == SIGINT || job->ended_by == SIGQUIT))
        job_tell_own_group(job, job->ended_by);
    return CLI_SIGNAL + job->ended_by;
}

/* Run the program, and return the exit code. */
static int run(struct lock *lock, char **program)
{
    char token[24];
    struct failure failure;

    (void)snprintf(token, sizeof token, "%" PRId64, stk_lease_token(lock->lease, NULL));
    check(setenv("STOCKADE_RESOURCE", lock->settings.resource, 1) == 0);
    check(setenv("STOCKADE_TOKEN", token, 1) == 0);
    watch_signals(lock, true);
    int code = job_start(&lock->job, program, &lock->before, &failure);
    if (code != 0) {
        term_error("stockade lock: %s", failure.text);
    } else {
        run_job(lock);
        job_end(&lock->job);
    }
    if (atomic_load(&lock->lost) != STK_STALE && !release(lock)) {
        atomic_store(&lock->lost, STK_STALE);
        term_error("stockade lock: the lease on %s was lost before the program had ended",
                   lock->settings.resource);
    }
    if (atomic_load(&lock->lost) == STK_STALE || lock->ending == LOSING)
        return CLI_STALE;
    return code != 0 ? code : code_of_job(lock);
}

/* Return how many words there are before "--". */
static int words_before_program(int argc, char **argv)
{
    int words = 1;

    while (words < argc && strcmp(argv[words], "--") != 0)
        words++;
    return words;
}

int lock_run(struct cli *cli, int argc, char **argv)
{
    struct lock lock = {.settings = {.ttl_ms = 30000, .wait_ms = 10000, .grace_ms = 5000},
                        .signal_fd = -1};
    struct failure failure;
    int words = words_before_program(argc, argv);

    switch (options_parse(&table, &lock.settings, cli, words, argv)) {
    case OPTIONS_HELPED: return CLI_OK;
    case OPTIONS_WRONG: return CLI_USAGE;
    case OPTIONS_RUN: break;
    }
    if (words + 1 >= argc) {
        term_error("stockade lock: -- PROGRAM is missing; see stockade lock --help");
        return CLI_USAGE;
    }
    const char *uri = cli_uri(cli, &failure);
    if (uri == NULL) {
        term_error("stockade lock: %s; see stockade lock --help", failure.text);
        return CLI_USAGE;
    }
    /* What the program asks of `stockade` goes to the server that its token is from. */
    check(setenv("STOCKADE_URI", uri, 1) == 0);
    check(sigprocmask(SIG_BLOCK, NULL, &lock.before) == 0);
    watch_signals(&lock, false);
    lock.timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);
    lock.lost_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (lock.signal_fd < 0 || lock.timer_fd < 0 || lock.lost_fd < 0) {
        term_error("stockade lock: no file descriptors are left");
        return CLI_UNREACHABLE;
    }
    int code = acquire(&lock, uri);
    if (code == 0)
        code = run(&lock, argv + words + 1);
    stk_lease_free(lock.lease);
    stk_client_close(lock.client);
    (void)close(lock.signal_fd);
    (void)close(lock.timer_fd);
    (void)close(lock.lost_fd);
    return code;
}
