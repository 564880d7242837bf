/* SPDX-License-Identifier: Apache-2.0 */
/* A step that the table does not allow ends the process, and says which one it was. */
#include "fence/base/state.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/test.h"

static const struct state lamp[] = {
    {"DARK", STATE_BIT(1)},
    {"LIT", STATE_BIT(0) | STATE_BIT(2)},
    {"BROKEN", 0},
};

/* Take the step in a process of its own. Return its status, and what it said. */
static int step(unsigned from, unsigned to, char *said, size_t size)
{
    int ends[2], status;

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        dup2(ends[1], STDERR_FILENO);
        state_check_step(lamp, from, to);
        _exit(0);
    }
    close(ends[1]);
    ssize_t len = read(ends[0], said, size - 1);
    said[len > 0 ? len : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

TEST(steps_of_the_table_are_allowed_and_no_others)
{
    char said[200];

    for (unsigned from = 0; from < 3; from++)
        for (unsigned to = 0; to < 3; to++) {
            bool allowed = (from == 0 && to == 1) || (from == 1 && to != 1);
            int status = step(from, to, said, sizeof said);
            assert_int_equal(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, !allowed);
        }
}

TEST(a_step_that_is_not_allowed_is_named)
{
    char said[200];

    step(2, 1, said, sizeof said);
    assert_non_null(strstr(said, "LIT does not follow BROKEN"));
}
