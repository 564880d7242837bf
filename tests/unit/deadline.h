/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on how long a test waits, or on the time that it measures. A test that misses one fails,
 * and prints the interval of the monotonic clock: where the machine stood still in it, tools/check
 * runs the program again. A failure of a plain assertion is never excused, so check time limits
 * with this and nothing else. */
#ifndef STOCKADE_TESTS_DEADLINE_H
#define STOCKADE_TESTS_DEADLINE_H

#include <inttypes.h>

#include "fence/base/clock.h"
#include "tests/unit/test.h"

/* For what has to come: a wait ends by that, and only a hang takes longer, on a busy machine, too.
 */
enum { HANG_MS = 120000 };

struct deadline {
    int64_t begun_ms, allowed_ms;
};

/* Begin now. */
static inline struct deadline deadline_in(int64_t allowed_ms)
{
    return (struct deadline){clock_now_ms(&clock_monotonic), allowed_ms};
}

static inline int64_t deadline_spent_ms(const struct deadline *deadline)
{
    return clock_now_ms(&clock_monotonic) - deadline->begun_ms;
}

/* Fail the test if the time is over. Call it while waiting, and after what must not take longer. */
#define deadline_keep(deadline) deadline_keep_at(deadline, __FILE__, __LINE__)
static inline void deadline_keep_at(const struct deadline *deadline, const char *file, int line)
{
    int64_t spent_ms = deadline_spent_ms(deadline), ended_ms = deadline->begun_ms + spent_ms;

    if (spent_ms <= deadline->allowed_ms)
        return;
    print_error("# late from %" PRId64 ".%03d to %" PRId64 ".%03d, allowed %" PRId64 ".%03d\n",
                deadline->begun_ms / 1000, (int)(deadline->begun_ms % 1000), ended_ms / 1000,
                (int)(ended_ms % 1000), deadline->allowed_ms / 1000,
                (int)(deadline->allowed_ms % 1000));
    _fail(file, line);
}

#endif
