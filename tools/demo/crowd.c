/* SPDX-License-Identifier: Apache-2.0 */
/* A buyer that is at work when a stop is due raises SIGSTOP itself, so each stop lies between a
 * read and a write, for certain, however busy the machine is. The referee sees that the process has
 * stopped, lets the pause pass and continues it. */
#include "tools/demo/crowd.h"

#include <sys/mman.h>

#include "fence/base/check.h"
#include "fence/base/clock.h"

enum { TICK_MS = 100, GRACE_MS = 20000 };

static bool buyers_failed(const struct crowd *crowd, struct failure *failure)
{
    for (unsigned i = 0; i < crowd->count; i++) {
        const char *why = crowd->failures[i].text;
        if (why[0] != '\0') {
            return failure_set(failure, "%s: buyer %u: %s", crowd->title, i + 1, why);
        }
    }
    return failure_set(failure, "%s: a buyer crashed", crowd->title);
}

static bool watch(const struct crowd *crowd, struct crew *crew, struct failure *failure)
{
    int64_t began_ms = clock_now_ms(&clock_monotonic), tick_ms = began_ms;
    int64_t deadline_ms = began_ms + crowd->limit_ms + crowd->pause_ms + GRACE_MS;

    while (crew->running > 0) {
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        if (crowd->signals->ending != 0) {
            return failure_set(failure, "interrupted");
        }
        if (now_ms > deadline_ms) {
            return failure_set(failure, "%s: buyers hang", crowd->title);
        }
        (void)crew_look(crew, now_ms, crowd->pause_ms);
        if (crew->failed > 0) {
            return buyers_failed(crowd, failure);
        }
        crew_wake(crew, now_ms);
        if (now_ms >= tick_ms) {
            tick_ms = now_ms + TICK_MS;
            crowd->progress(crowd->context, now_ms - began_ms);
        }
        if (crew->running > 0) {
            (void)signals_wait(crowd->signals, -1, crew_next_wake(crew, tick_ms) - now_ms);
        }
    }
    return true;
}

bool crowd_run(const struct crowd *crowd, struct failure *failure)
{
    struct crew crew;
    bool held = crew_start(&crew, crowd->count, crowd->function, crowd->context, failure) &&
                watch(crowd, &crew, failure);

    crew_end(&crew);
    term_clear(crowd->term);
    return held;
}

void *crowd_share(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    check(memory != MAP_FAILED);
    return memory;
}

void crowd_unshare(void *memory, size_t size)
{
    check(munmap(memory, size) == 0);
}
