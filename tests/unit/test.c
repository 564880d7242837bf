/* SPDX-License-Identifier: Apache-2.0 */
/* The main program of each unit test: runs the tests that have registered themselves. */
#include "tests/unit/test.h"

#include <errno.h>
#include <sys/single_threaded.h>

#include "fence/base/check.h"

enum { TESTS_MAX = 256 };

static struct CMUnitTest tests[TESTS_MAX];
static size_t test_count;
static CMFixtureFunction group_setup, group_teardown;
static bool one_thread;

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

void unit_test_one_thread(void)
{
    one_thread = true;
}

static bool looks_for_races(void)
{
#ifdef __has_feature
    return __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

static void skip_one(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    if (one_thread && looks_for_races()) {
        group_setup = group_teardown = NULL;
        for (size_t i = 0; i < test_count; i++)
            tests[i] = (struct CMUnitTest){tests[i].name, skip_one, NULL, NULL, NULL};
    }
    int failed = _cmocka_run_group_tests(program_invocation_short_name, tests, test_count,
                                         group_setup, group_teardown);
    if (one_thread && !looks_for_races() && !__libc_single_threaded) {
        print_error("# a test has begun a thread: take TESTS_HAVE_ONE_THREAD out\n");
        return EXIT_FAILURE;
    }
    return failed;
}
