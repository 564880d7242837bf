/* SPDX-License-Identifier: Apache-2.0 */
/* How a unit test is written. Its name is the sentence that it proves, and it is named once:
 *
 *     TEST(an_empty_heap_has_no_first)
 *     {
 *         ...
 *     }
 *
 * Every test registers itself, and test.c runs those of the program in the order in which they
 * stand. A file whose tests have a fixture in common names it once, as a macro of its own, and each
 * test gets it as its parameter:
 *
 *     #define RIG_TEST(name) TEST_WITH(rig_setup, rig_teardown, struct rig *rig, name)
 *
 *     RIG_TEST(a_rig_is_ready_at_first)
 *     {
 *         assert_true(rig->ready);
 *     }
 */
#ifndef STOCKADE_TESTS_TEST_H
#define STOCKADE_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* It needs the headers above. */
#include <cmocka.h>

/* Add a test of this program; set-up and tear-down may be NULL. With a second set-up it runs twice,
 * once after each. */
void unit_test_add(const char *name, CMUnitTestFunction run, CMFixtureFunction setup,
                   CMFixtureFunction second_setup, CMFixtureFunction teardown);
/* Run `setup` before the first test of the program and `teardown` after the last; either may be
 * NULL. */
void unit_test_around_all(CMFixtureFunction setup, CMFixtureFunction teardown);

/* Note that none of the program's tests begins a thread. ThreadSanitizer then skips all of them: it
 * would take long and find nothing. Elsewhere the program fails if one was begun. */
void unit_test_one_thread(void);

#define TESTS_HAVE_ONE_THREAD                                                                      \
    __attribute__((constructor)) static void tests_have_one_thread(void)                           \
    {                                                                                              \
        unit_test_one_thread();                                                                    \
    }

#define TEST(name)                                                                                 \
    static void name(void);                                                                        \
    static void name##_run(void **state)                                                           \
    {                                                                                              \
        (void)state;                                                                               \
        name();                                                                                    \
    }                                                                                              \
    __attribute__((constructor)) static void name##_add(void)                                      \
    {                                                                                              \
        unit_test_add(#name, name##_run, NULL, NULL, NULL);                                        \
    }                                                                                              \
    static void name(void)

/* `fixture` declares the test's parameter: what `setup` left in *state. A test whose set-up left
 * NULL is skipped. */
#define TEST_WITH(setup, teardown, fixture, name)                                                  \
    TEST_WITH_EACH(setup, NULL, teardown, fixture, name)

/* The test runs on two fixtures, one after the other. */
#define TEST_WITH_EACH(setup, second_setup, teardown, fixture, name)                               \
    static void name(fixture);                                                                     \
    static void name##_run(void **state)                                                           \
    {                                                                                              \
        if (*state == NULL)                                                                        \
            skip();                                                                                \
        name(*state);                                                                              \
    }                                                                                              \
    __attribute__((constructor)) static void name##_add(void)                                      \
    {                                                                                              \
        unit_test_add(#name, name##_run, setup, second_setup, teardown);                           \
    }                                                                                              \
    static void name(fixture __attribute__((unused)))

#define AROUND_ALL_TESTS(setup, teardown)                                                          \
    __attribute__((constructor)) static void around_all_tests_add(void)                            \
    {                                                                                              \
        unit_test_around_all(setup, teardown);                                                     \
    }                                                                                              \
    struct around_all_tests /* a declaration that takes the semicolon */

#endif
