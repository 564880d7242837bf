/* SPDX-License-Identifier: Apache-2.0 */
/* Real processes that are stopped, continued and ended. */
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/clock.h"
#include "tests/unit/deadline.h"
#include "tests/unit/test.h"
#include "tools/crew.h"
#include "tools/signals.h"

static struct failure failure;

static int step_stop_and_step(void *context, unsigned index)
{
    _Atomic int64_t *steps = context;

    (void)index;
    atomic_fetch_add(steps, 1);
    (void)raise(SIGSTOP);
    atomic_fetch_add(steps, 1);
    return 0;
}

static int stop_oneself_and_end(void *context, unsigned index)
{
    (void)context;
    (void)raise(SIGSTOP);
    return index == 1 ? 3 : 0;
}

static int wait_for_ever_the_first_stopped(void *context, unsigned index)
{
    (void)context;
    if (index == 0)
        (void)raise(SIGSTOP);
    while (pause() != 0) {
    }
    return 0;
}

/* Poll and wake the crew until all have ended. Return how many stops were seen. */
static unsigned run_to_the_end(struct crew *crew, struct signals *signals, int64_t pause_ms)
{
    struct deadline deadline = deadline_in(HANG_MS);
    unsigned stopped = 0;

    while (crew->running > 0) {
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        deadline_keep(&deadline);
        stopped += crew_poll(crew, now_ms, pause_ms);
        crew_wake(crew, now_ms);
        if (crew->running > 0)
            (void)signals_wait(signals, -1, crew_next_wake(crew, now_ms + 100) - now_ms);
    }
    return stopped;
}

/* Wait until one has stopped, to be woken after the pause. */
static void await_stop(struct crew *crew, struct signals *signals, int64_t pause_ms)
{
    struct deadline deadline = deadline_in(HANG_MS);
    unsigned stopped = 0;

    while (stopped == 0) {
        int64_t now_ms = clock_now_ms(&clock_monotonic);
        deadline_keep(&deadline);
        (void)signals_wait(signals, -1, 100);
        stopped = crew_poll(crew, now_ms, pause_ms);
    }
}

TEST(a_stopped_member_does_nothing_until_it_is_continued)
{
    _Atomic int64_t *steps = crew_share(sizeof *steps); /* how far it has come */
    struct signals signals;
    struct crew crew;
    struct timespec delay = {.tv_nsec = 50000000};

    signals_open(&signals);
    assert_true(crew_start(&crew, 1, step_stop_and_step, steps, &failure));
    await_stop(&crew, &signals, 3600000);
    crew_wake(&crew, clock_now_ms(&clock_monotonic)); /* it is not time yet */
    (void)nanosleep(&delay, NULL);                    /* what must not happen may happen now */
    assert_int_equal(crew.running, 1);
    assert_int_equal(atomic_load(steps), 1);
    crew_wake(&crew, crew_next_wake(&crew, INT64_MAX));
    assert_int_equal(run_to_the_end(&crew, &signals, 1), 0);
    assert_int_equal(atomic_load(steps), 2);
    assert_int_equal(crew.failed, 0);
    signals_close(&signals);
    crew_unshare((void *)(uintptr_t)steps, sizeof *steps);
}

TEST(who_stops_by_itself_is_continued_after_its_pause)
{
    struct signals signals;
    struct crew crew;
    int64_t begun_ms = clock_now_ms(&clock_monotonic);

    signals_open(&signals);
    assert_true(crew_start(&crew, 3, stop_oneself_and_end, NULL, &failure));
    assert_int_equal(run_to_the_end(&crew, &signals, 120), 3);
    assert_true(clock_now_ms(&clock_monotonic) - begun_ms >= 120);
    assert_int_equal(crew.failed, 1);
    signals_close(&signals);
}

TEST(the_end_takes_stopped_members_along)
{
    struct signals signals;
    struct crew crew;

    signals_open(&signals);
    assert_true(crew_start(&crew, 2, wait_for_ever_the_first_stopped, NULL, &failure));
    await_stop(&crew, &signals, 3600000);
    crew_end(&crew);
    assert_int_equal(crew.running, 0);
    for (unsigned i = 0; i < crew.count; i++)
        assert_int_equal(kill(crew.members[i].pid, 0), -1);
    signals_close(&signals);
}

TEST(a_signal_asks_for_the_end_and_ends_nothing_itself)
{
    struct signals signals;

    signals_open(&signals);
    assert_int_equal(kill(getpid(), SIGTERM), 0);
    (void)signals_wait(&signals, -1, HANG_MS);
    assert_int_equal(signals.ending, SIGTERM);
    signals_close(&signals);
}
