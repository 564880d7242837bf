/* SPDX-License-Identifier: Apache-2.0 */
/* How long a lease service is waited for: long enough for one that is slow, and never for ever. */
#include "fence/lease/patience.h"
#include "tests/unit/test.h"

static void fill(const struct chance *chance, void *bytes, size_t len)
{
    memset(bytes, *(const unsigned char *)chance->context, len);
}

TEST(the_pause_between_attempts_doubles_up_to_two_seconds)
{
    unsigned char dice = 0; /* the shortest */
    const struct chance chance = {fill, &dice};

    assert_int_equal(patience_backoff_ms(&chance, 1), 50);
    assert_int_equal(patience_backoff_ms(&chance, 2), 100);
    assert_int_equal(patience_backoff_ms(&chance, 3), 200);
    assert_int_equal(patience_backoff_ms(&chance, 6), 1000);
    assert_int_equal(patience_backoff_ms(&chance, 1000), 1000);
    for (unsigned failures = 1; failures < 100; failures++, dice += 37)
        assert_in_range(patience_backoff_ms(&chance, failures), 50, 2000);
}

TEST(one_answer_after_the_other_is_no_silence)
{
    assert_int_equal(patience_due_ms(1100, 0, 100), 1100);
    assert_int_equal(patience_due_ms(1100, 1000, 100), 1100);
    assert_int_equal(patience_due_ms(1100, 1050, 100), 1150);
}

TEST(who_answers_all_but_one_is_waited_for_five_times_as_long_at_most)
{
    assert_int_equal(patience_due_ms(1100, 1399, 100), 1499);
    assert_int_equal(patience_due_ms(1100, 1450, 100), 1500);
    assert_int_equal(patience_due_ms(1100, 100000, 100), 1500);
}

TEST(a_pause_of_our_own_is_granted_to_the_answer_too)
{
    assert_int_equal(patience_grace_ms(1100, 1100, 100), 1101);
    assert_int_equal(patience_grace_ms(1150, 1100, 100), 1200);
    assert_int_equal(patience_grace_ms(9000, 1100, 100), 9100);
}
