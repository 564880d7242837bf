/* SPDX-License-Identifier: Apache-2.0 */
/* How long to wait for a lease service, and when to try it again: long enough for a slow one, and
 * never for ever. */
#include "fence/lease/reconnect.h"
#include "tests/unit/test.h"

enum { TIMEOUT_MS = 100 };

static unsigned char dice;
static int64_t now_ms;

static void fill(const struct chance *chance, void *bytes, size_t len)
{
    (void)chance;
    memset(bytes, dice, len);
}

static int64_t tell_now_ms(const struct clock *clock)
{
    (void)clock;
    return now_ms;
}

static struct reconnect made(void)
{
    static const struct clock clock = {.now_ms = tell_now_ms};
    static const struct chance chance = {.fill = fill};
    struct reconnect reconnect;

    reconnect_init(&reconnect, "redis 127.0.0.1:6379", TIMEOUT_MS,
                   &(struct lease_surroundings){NULL, &clock, &chance, NULL});
    return reconnect;
}

/* Return the pause after so many failures in a row. */
static int64_t pause_ms(unsigned failures)
{
    struct reconnect reconnect = made();

    reconnect.failures = failures - 1;
    return reconnect_down(&reconnect, "gone");
}

TEST(the_pause_between_attempts_doubles_up_to_two_seconds)
{
    dice = 0; /* the shortest */
    assert_int_equal(pause_ms(1), 50);
    assert_int_equal(pause_ms(2), 100);
    assert_int_equal(pause_ms(3), 200);
    assert_int_equal(pause_ms(6), 1000);
    assert_int_equal(pause_ms(1000), 1000);
    for (unsigned failures = 1; failures < 100; failures++, dice += 37)
        assert_in_range(pause_ms(failures), 50, 2000);
}

TEST(a_connection_that_was_up_is_soon_tried_again)
{
    struct reconnect reconnect = made();

    dice = 0;
    for (int i = 0; i < 10; i++)
        reconnect_down(&reconnect, "gone");
    reconnect_up(&reconnect);
    assert_int_equal(reconnect_down(&reconnect, "gone again"), 50);
    assert_string_equal(reconnect_reason(&reconnect), "gone again");
}

static int64_t due_ms(int64_t heard_ms)
{
    struct reconnect reconnect = made();

    reconnect.heard_ms = heard_ms;
    return reconnect_due_ms(&reconnect, 1100);
}

TEST(one_answer_after_the_other_is_no_silence)
{
    assert_int_equal(due_ms(0), 1100);
    assert_int_equal(due_ms(1000), 1100);
    assert_int_equal(due_ms(1050), 1150);
}

TEST(who_answers_all_but_one_is_waited_for_five_times_as_long_at_most)
{
    assert_int_equal(due_ms(1399), 1499);
    assert_int_equal(due_ms(1450), 1500);
    assert_int_equal(due_ms(100000), 1500);
}

/* An answer was due at 1100, and this is noticed at `late_ms`: return until when to wait for it. */
static int64_t grace_ms(int64_t late_ms)
{
    struct reconnect reconnect = made();

    now_ms = 1099;
    assert_false(reconnect_is_overdue(&reconnect, 1100));
    assert_int_equal(reconnect.grace_until_ms, 0);
    now_ms = late_ms;
    assert_false(reconnect_is_overdue(&reconnect, 1100));
    now_ms = reconnect.grace_until_ms - 1;
    assert_false(reconnect_is_overdue(&reconnect, 1100));
    now_ms++;
    assert_true(reconnect_is_overdue(&reconnect, 1100));
    return reconnect.grace_until_ms;
}

TEST(a_pause_of_our_own_is_granted_to_the_answer_too)
{
    assert_int_equal(grace_ms(1100), 1101);
    assert_int_equal(grace_ms(1150), 1200);
    assert_int_equal(grace_ms(9000), 9100);
}

static void on_ended(void *context)
{
    ++*(int *)context;
}

TEST(the_end_of_the_first_attempt_is_told_once)
{
    struct reconnect reconnect = made();
    int ended = 0;

    now_ms = 5000;
    assert_int_equal(reconnect_first_due_ms(&reconnect), INT64_MAX);
    reconnect_on_first_attempt(&reconnect, on_ended, &ended);
    assert_int_equal(reconnect_first_due_ms(&reconnect), 6000);
    assert_int_equal(ended, 0);
    reconnect_end_first_attempt(&reconnect);
    reconnect_end_first_attempt(&reconnect);
    assert_int_equal(ended, 1);
    reconnect_on_first_attempt(&reconnect, on_ended, &ended); /* at once: it has ended */
    assert_int_equal(ended, 2);
}

static const char *detail(const struct reconnect *reconnect, bool answers, int64_t retry_at_ms,
                          struct lease_health *health)
{
    *health = (struct lease_health){0};
    reconnect_health(reconnect, answers, retry_at_ms, health);
    return health->detail;
}

TEST(its_health_is_said_in_words)
{
    struct reconnect reconnect = made();
    struct lease_health health;

    now_ms = 1000;
#define NAME "redis 127.0.0.1:6379: "
    assert_string_equal(detail(&reconnect, false, 0, &health), NAME "connecting");
    assert_false(health.up);
    reconnect_up(&reconnect);
    assert_string_equal(detail(&reconnect, true, 0, &health), NAME "ready");
    assert_true(health.up);
    assert_true(reconnect_refused(&reconnect, "READONLY"));
    assert_false(reconnect_refused(&reconnect, "OOM"));
    assert_string_equal(detail(&reconnect, true, 0, &health), NAME "refuses: OOM");
    assert_false(health.up);
    assert_true(reconnect_accepted(&reconnect));
    assert_false(reconnect_accepted(&reconnect));
    reconnect_down(&reconnect, "gone");
    assert_string_equal(detail(&reconnect, false, 1400, &health),
                        NAME "gone, trying again in 0.4 s");
    assert_string_equal(detail(&reconnect, false, 0, &health), NAME "gone, trying again");
    assert_int_equal(health.reconnects, 0);
    reconnect_up(&reconnect);
    assert_string_equal(detail(&reconnect, true, 0, &health), NAME "ready");
    assert_int_equal(health.reconnects, 1);
#undef NAME
}
