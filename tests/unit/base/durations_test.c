/* SPDX-License-Identifier: Apache-2.0 */
/* Durations: each is counted within the right bounds, and quantiles are near the truth. */
#include <stdlib.h>

#include "fence/base/durations.h"
#include "tests/unit/test.h"

/* Where it has to be counted, by trying every bound. */
static size_t place_of(int64_t us)
{
    size_t at = 0;

    while (at < DURATIONS_BOUNDS && us > durations_bounds_us[at])
        at++;
    return at;
}

TEST(each_duration_is_counted_by_the_smallest_bound_that_it_does_not_exceed)
{
    for (int64_t base = 1; base < INT64_C(1) << 40; base *= 2)
        for (int64_t us = base - 2; us <= base + 2; us++) {
            struct durations durations = {0};
            durations_add(&durations, us);
            assert_int_equal(durations.counts[place_of(us)], 1);
            assert_int_equal(durations_count(&durations), 1);
            assert_int_equal(durations.sum_us, us < 0 ? 0 : us);
        }
    for (size_t i = 0; i < DURATIONS_BOUNDS; i++)
        for (int64_t us = durations_bounds_us[i] - 1; us <= durations_bounds_us[i] + 1; us++) {
            struct durations durations = {0};
            durations_add(&durations, us);
            assert_int_equal(durations.counts[i + (us > durations_bounds_us[i])], 1);
        }
}

TEST(what_is_negative_counts_as_nothing_and_what_is_huge_as_more_than_all_bounds)
{
    struct durations durations = {0};

    durations_add(&durations, -5);
    durations_add(&durations, INT64_MIN);
    durations_add(&durations, INT64_MAX);
    assert_int_equal(durations.counts[0], 2);
    assert_int_equal(durations.counts[DURATIONS_BOUNDS], 1);
    assert_int_equal(durations.sum_us, INT64_MAX);
}

TEST(the_bounds_as_text_are_the_same_in_seconds)
{
    for (size_t i = 0; i < DURATIONS_BOUNDS; i++) {
        double seconds = strtod(durations_bounds_text[i], NULL);
        assert_true((int64_t)(seconds * 1e6 + 0.5) == durations_bounds_us[i]);
        assert_true(i == 0 || durations_bounds_us[i] > durations_bounds_us[i - 1]);
    }
}

TEST(quantiles_are_estimated_within_the_bounds_of_the_truth)
{
    struct durations durations = {0};

    assert_int_equal(durations_quantile_us(&durations, 0.5), -1);
    for (int64_t us = 1; us <= 10000; us++)
        durations_add(&durations, us);
    for (int percent = 1; percent <= 100; percent++) {
        int64_t estimate = durations_quantile_us(&durations, percent / 100.0);
        assert_in_range(estimate, percent * 100 - 5, percent * 100 + 5); /* it is even in there */
    }
    for (int i = 0; i < 1000; i++)
        durations_add(&durations, 60 * 1000 * 1000);
    assert_int_equal(durations_quantile_us(&durations, 0.99), 10 * 1000 * 1000);
}

TEST(what_came_between_two_copies_is_their_difference)
{
    struct durations durations = {0};

    durations_add(&durations, 40);
    durations_add(&durations, 7000);
    struct durations earlier = durations;
    durations_add(&durations, 7000);
    durations_add(&durations, 300);
    struct durations between = durations_between(&earlier, &durations);
    assert_int_equal(durations_count(&between), 2);
    assert_int_equal(between.sum_us, 7300);
    assert_int_equal(between.counts[0], 0);
    assert_int_equal(between.counts[place_of(7000)], 1);
    assert_int_equal(between.counts[place_of(300)], 1);
}
