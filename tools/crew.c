/* SPDX-License-Identifier: Apache-2.0 */
/* fork, SIGCONT and waitpid, always by process id, so that servers that were started elsewhere are
 * never reaped by mistake. */
#include "tools/crew.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"

enum { TICK_MS = 100 };

static void member_ended(struct crew *crew, struct crew_member *member, int status)
{
    member->ended = true;
    member->wake_ms = 0;
    crew->running--;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        crew->failed++;
}

bool crew_start(struct crew *crew, unsigned count, crew_function *function, void *context,
                struct failure *failure)
{
    pid_t parent = getpid();

    check(count <= CREW_MAX);
    *crew = (struct crew){.count = 0};
    for (unsigned i = 0; i < count; i++) {
        pid_t pid = fork();
        if (pid < 0) {
            crew_end(crew);
            return failure_set(failure, "cannot start process %u of %u: %s", i + 1, count,
                               strerror(errno));
        }
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            /* _exit: what the parent has not printed yet is not ours to print. */
            _exit(getppid() == parent ? function(context, i) : 1);
        }
        crew->members[i].pid = pid;
        crew->count++;
        crew->running++;
    }
    return true;
}

unsigned crew_poll(struct crew *crew, int64_t now_ms, int64_t pause_ms)
{
    unsigned stopped = 0;

    for (unsigned i = 0; i < crew->count; i++) {
        struct crew_member *member = &crew->members[i];
        int status;

        if (member->ended || waitpid(member->pid, &status, WNOHANG | WUNTRACED) != member->pid)
            continue;
        if (WIFSTOPPED(status)) {
            member->wake_ms = now_ms + pause_ms;
            stopped++;
        } else {
            member_ended(crew, member, status);
        }
    }
    return stopped;
}

void crew_wake(struct crew *crew, int64_t now_ms)
{
    for (unsigned i = 0; i < crew->count; i++) {
        struct crew_member *member = &crew->members[i];
        if (member->wake_ms != 0 && member->wake_ms <= now_ms) {
            member->wake_ms = 0;
            check(kill(member->pid, SIGCONT) == 0); /* unreaped: the id is still its own */
        }
    }
}

int64_t crew_next_wake(const struct crew *crew, int64_t otherwise)
{
    int64_t next = otherwise;

    for (unsigned i = 0; i < crew->count; i++)
        if (crew->members[i].wake_ms != 0 && crew->members[i].wake_ms < next)
            next = crew->members[i].wake_ms;
    return next;
}

void crew_end(struct crew *crew)
{
    for (unsigned i = 0; i < crew->count; i++) {
        struct crew_member *member = &crew->members[i];
        int status;

        if (!member->ended) {
            (void)kill(member->pid, SIGKILL); /* ends stopped ones too */
            check(waitpid(member->pid, &status, 0) == member->pid);
            member_ended(crew, member, status);
        }
    }
}

static bool member_failed(const struct crew_work *work, struct failure *failure)
{
    for (unsigned i = 0; i < work->count; i++)
        if (work->failures[i].text[0] != '\0')
            return failure_set(failure, "%s", work->failures[i].text);
    return failure_set(failure, "a %s crashed", work->member);
}

static bool watch(struct crew_work *work, struct crew *crew, struct failure *failure)
{
    int64_t began_ms = clock_now_ms(&clock_monotonic), tick_ms = began_ms;

    while (crew->running > 0) {
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        if (work->signals->ending != 0)
            return failure_set(failure, "interrupted");
        work->stops += crew_poll(crew, now_ms, work->pause_ms);
        if (crew->failed > 0)
            return member_failed(work, failure);
        crew_wake(crew, now_ms);
        if (now_ms >= tick_ms) {
            tick_ms = now_ms + TICK_MS;
            if (!work->progress(work->context, now_ms - began_ms, failure))
                return false;
        }
        if (crew->running > 0)
            (void)signals_wait(work->signals, -1, crew_next_wake(crew, tick_ms) - now_ms);
    }
    return true;
}

bool crew_run(struct crew_work *work, struct failure *failure)
{
    struct crew crew;
    bool done = crew_start(&crew, work->count, work->function, work->context, failure) &&
                watch(work, &crew, failure);

    crew_end(&crew);
    return done;
}

void *crew_share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    check(memory != MAP_FAILED);
    return memory;
}

void crew_unshare(void *memory, size_t size)
{
    check(munmap(memory, size) == 0);
}
