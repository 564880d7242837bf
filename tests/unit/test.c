/* SPDX-License-Identifier: Apache-2.0 */
/* The main program of each unit test: runs the tests that have registered themselves. */
#include "tests/unit/test.h"

#include <errno.h>

#include "fence/base/check.h"

enum { TESTS_MAX = 256 };

static struct CMUnitTest tests[TESTS_MAX];
static size_t test_count;
static CMFixtureFunction group_setup, group_teardown;

static void add(const char *name, CMUnitTestFunction run, CMFixtureFunction setup,
                CMFixtureFunction teardown)
{
    check(test_count < TESTS_MAX);
    tests[test_count++] = (struct CMUnitTest){name, run, setup, teardown, NULL};
}

void unit_test_add(const char *name, CMUnitTestFunction run, CMFixtureFunction setup,
                   CMFixtureFunction second_setup, CMFixtureFunction teardown)
{
    add(name, run, setup, teardown);
    if (second_setup != NULL)
        add(name, run, second_setup, teardown);
}

void unit_test_around_all(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    group_setup = setup;
    group_teardown = teardown;
}

int main(void)
{
    return _cmocka_run_group_tests(program_invocation_short_name, tests, test_count, group_setup,
                                   group_teardown);
}
