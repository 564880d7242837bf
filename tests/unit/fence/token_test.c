/* SPDX-License-Identifier: Apache-2.0 */
/* The token rule: case by case, and over the whole life of a resource. */
#include "fence/token.h"
#include "tests/unit/test.h"

static const struct fence none = {0, 0, FENCE_NONE};

TEST(of_a_live_fence_only_the_newest_token_may_write)
{
    const struct fence live = {.token = 34, .floor = 34, .state = FENCE_LIVE};

    assert_int_equal(fence_judge(&live, 34), STK_OK);
    assert_int_equal(fence_judge(&live, 33), STK_STALE);
    assert_int_equal(fence_judge(&live, 1), STK_STALE);
    assert_int_equal(fence_judge(&live, 35), STK_UNKNOWN);
    assert_int_equal(fence_judge(&live, TOKEN_MAX), STK_UNKNOWN);
}

TEST(a_retired_token_is_stale_and_larger_ones_unknown)
{
    const enum fence_state retired[] = {FENCE_RELEASED, FENCE_REVOKED};

    for (size_t i = 0; i < 2; i++) {
        const struct fence fence = {.token = 34, .floor = 50, .state = retired[i]};
        assert_int_equal(fence_judge(&fence, 34), STK_STALE);
        assert_int_equal(fence_judge(&fence, 33), STK_STALE);
        assert_int_equal(fence_judge(&fence, 35), STK_UNKNOWN);
        assert_int_equal(fence_judge(&fence, 50), STK_UNKNOWN);
    }
}

TEST(where_nothing_was_granted_every_token_is_unknown)
{
    assert_int_equal(fence_judge(&none, 1), STK_UNKNOWN);
    assert_int_equal(fence_judge(&none, TOKEN_MAX), STK_UNKNOWN);
    const struct fence swept = {.token = 0, .floor = 90, .state = FENCE_NONE};
    assert_int_equal(fence_judge(&swept, 42), STK_UNKNOWN);
}

TEST(a_token_is_admitted_above_the_floor_only)
{
    const struct fence fence = {.token = 34, .floor = 50, .state = FENCE_LIVE};

    assert_false(fence_admits(&fence, 34));
    assert_false(fence_admits(&fence, 35));
    assert_false(fence_admits(&fence, 50));
    assert_true(fence_admits(&fence, 51));
    assert_true(fence_admits(&fence, TOKEN_MAX));
    assert_false(fence_admits(&fence, TOKEN_MAX + 1));
    assert_false(fence_admits(&none, 0));
    assert_true(fence_admits(&none, 1));
}

TEST(only_a_live_fence_claims_its_resource)
{
    assert_true(fence_unclaimed(&none));
    assert_false(fence_unclaimed(&(struct fence){34, 34, FENCE_LIVE}));
    assert_true(fence_unclaimed(&(struct fence){34, 34, FENCE_RELEASED}));
    assert_true(fence_unclaimed(&(struct fence){34, 34, FENCE_REVOKED}));
}

#define MOST (INT64_C(1) << 40) /* that is believed */

TEST(minting_goes_on_from_the_believable_counter_or_the_floor)
{
    static const struct {
        int64_t counter, floor, next;
    } cases[] = {
        {0, 0, 1},
        {7, 0, 8},
        {7, 6, 8},
        {7, 7, 8},
        {7, 41, 42}, /* the service lost its state */
        {-5, 3, 4},
        {INT64_MIN, 3, 4},
        {INT64_MAX, 3, 4}, /* someone wrote to it */
        {MOST - 1, 3, MOST},
        {MOST, 3, MOST + 1}, /* the last believable one */
        {MOST + 1, 3, 4},
        {MOST + 1, MOST, MOST + 1},
        {MOST + 2, MOST + 1, MOST + 2}, /* by the floor, though not believed */
        {0, TOKEN_MAX - 1, TOKEN_MAX},
        {0, TOKEN_MAX, 0}, /* used up */
        {TOKEN_MAX, TOKEN_MAX - 1, TOKEN_MAX},
        {TOKEN_MAX + 1, TOKEN_MAX, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(token_next(cases[i].counter, cases[i].floor, MOST), cases[i].next);
}

TEST(a_counter_is_believed_up_to_a_day_from_now_or_as_far_as_grants_may_have_taken_it)
{
    static const int64_t now_us = INT64_C(1790000000000000); /* 2026 */

    assert_int_equal(token_believed_max(3, now_us), now_us + TOKEN_DRIFT_MAX_US);
    assert_int_equal(token_believed_max(now_us, now_us), now_us + TOKEN_DRIFT_MAX_US);
    assert_int_equal(token_believed_max(now_us + TOKEN_DRIFT_MAX_US, now_us),
                     now_us + TOKEN_DRIFT_MAX_US + TOKEN_STEPS_MAX);
    assert_int_equal(token_believed_max(3, 0), TOKEN_DRIFT_MAX_US);
    assert_int_equal(token_believed_max(3, INT64_MIN / 2), 3 + TOKEN_STEPS_MAX);
    assert_int_equal(token_believed_max(3, INT64_MAX), TOKEN_MAX);
    assert_int_equal(token_believed_max(TOKEN_MAX, 0), TOKEN_MAX);
}

TEST(a_token_follows_the_floor_as_far_as_a_counter_is_believed)
{
    assert_false(token_follows(5, 5, MOST));
    assert_true(token_follows(6, 5, MOST));
    assert_true(token_follows(MOST, 5, MOST));
    assert_true(token_follows(MOST + 1, 5, MOST));
    assert_false(token_follows(MOST + 2, 5, MOST));
    assert_true(token_follows(MOST + 8, MOST + 7, MOST));
    assert_false(token_follows(MOST + 9, MOST + 7, MOST));
}

TEST(a_store_that_begins_anew_goes_on_from_the_time_and_never_from_a_fixed_step)
{
    static const int64_t now_us = INT64_C(1790000000000000);

    assert_int_equal(token_floor_anew(0, now_us, 7), now_us);
    assert_int_equal(token_floor_anew(now_us - 1, now_us, 7), now_us);
    /* The clock is behind. */
    assert_int_equal(token_floor_anew(now_us, now_us, 7), now_us + 8);
    assert_int_equal(token_floor_anew(now_us + 5, now_us, UINT32_MAX),
                     now_us + 5 + TOKEN_STEPS_MAX);
    assert_int_equal(token_floor_anew(41, 0, 0), 42);
    assert_int_equal(token_floor_anew(41, INT64_MAX, 0), 42); /* a clock that cannot be right */
    assert_int_equal(token_floor_anew(TOKEN_MAX - TOKEN_STEPS_MAX - 1, now_us, UINT32_MAX),
                     TOKEN_MAX - 1);
    assert_int_equal(token_floor_anew(TOKEN_MAX - TOKEN_STEPS_MAX, now_us, 0), 0);
    assert_int_equal(token_floor_anew(-1, now_us, 0), 0);
}

TEST(every_minted_token_is_admitted_and_outdates_all_before)
{
    struct fence fence = none;
    int64_t counter = 0;

    for (int i = 0; i < 1000; i++) {
        if (i % 7 == 0)
            counter = 0; /* lost */
        if (i % 11 == 0)
            counter = (int64_t)i << 40; /* nonsense */
        int64_t before = fence.token;
        counter = token_next(counter, fence.floor, token_believed_max(fence.floor, 0));
        assert_true(fence_admits(&fence, counter));
        fence = (struct fence){counter, counter, FENCE_LIVE};
        assert_true(fence.token > before);
        assert_int_equal(fence_judge(&fence, counter), STK_OK);
        if (before > 0)
            assert_int_equal(fence_judge(&fence, before), STK_STALE);
        assert_int_equal(fence_judge(&fence, counter + 1), STK_UNKNOWN);
    }
}

TEST(a_token_is_written_as_a_plain_number)
{
    static const char *const wrong[] = {"",
                                        "0",
                                        "-1",
                                        "+1",
                                        " 1",
                                        "1 ",
                                        "01",
                                        "1.0",
                                        "1e3",
                                        "12abc",
                                        "0x1",
                                        "9007199254740992",
                                        "18446744073709551616",
                                        "99999999999999999999999999"};
    int64_t token = -7;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(token_parse(bytes_of(wrong[i]), &token));
    assert_true(token_parse(bytes_of("1"), &token));
    assert_int_equal(token, 1);
    assert_true(token_parse(bytes_of("9007199254740991"), &token));
    assert_int_equal(token, TOKEN_MAX);
}
