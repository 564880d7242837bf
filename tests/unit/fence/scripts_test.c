/* SPDX-License-Identifier: Apache-2.0 */
/* Replies that no script of ours gives, as a server that is no Redis may send them. (Scripts at
 * work: redis_test.c.) */
#include <hiredis/hiredis.h>

#include "fence/lease/redis/scripts.h"
#include "tests/unit/test.h"

static bool answered(struct lease_call *call, char *word, char *token, long long ttl_ms)
{
    redisReply parts[] = {
        {.type = REDIS_REPLY_STRING, .str = word, .len = strlen(word)},
        {.type = REDIS_REPLY_STRING, .str = token, .len = strlen(token)},
        {.type = REDIS_REPLY_INTEGER, .integer = ttl_ms},
    };
    redisReply *elements[] = {&parts[0], &parts[1], &parts[2]};

    return script_answer(
        call, &(redisReply){.type = REDIS_REPLY_ARRAY, .elements = 3, .element = elements});
}

static struct lease_call grant(void)
{
    return (struct lease_call){.verb = LEASE_GRANT,
                               .floor = 5,
                               .believed_max = 100,
                               .ttl_ms = 1000,
                               .asked_ms = INT64_C(1) << 40};
}

TEST(a_lock_that_lasts_for_ever_is_held_and_its_time_is_a_number)
{
    struct lease_call call = grant();

    assert_true(answered(&call, "held", "7", INT64_MAX));
    assert_int_equal(call.answer, LEASE_HELD);
    assert_true(call.answer_until_ms > call.asked_ms);
}

TEST(what_makes_no_sense_leaves_the_call_unanswered)
{
    static const struct {
        char *word, *token;
        long long ttl_ms;
    } rows[] = {
        {"held", "7", 0},         {"granted", "5", 1000}, {"granted", "x", 1000},
        {"own", "x", 1000},       {"granted", "6", 0},    {"granted", "6", 1001},
        {"own", "5", -1},         {"own", "5", 1001},     {"nonsense", "6", 1000},
        {"granted", "102", 1000}, /* above what is believed: it would use up the tokens */
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lease_call call = grant();
        assert_false(answered(&call, rows[i].word, rows[i].token, rows[i].ttl_ms));
        assert_int_equal(call.answer, LEASE_UNANSWERED);
    }
}

TEST(a_grant_may_leap_above_the_floor_as_far_as_a_counter_is_believed)
{
    struct lease_call call = grant();

    assert_true(answered(&call, "granted", "101", 1000));
    assert_int_equal(call.answer_token, 101);
}

TEST(an_error_has_a_reason_even_where_it_has_no_words)
{
    char why[SCRIPT_ERROR_MAX];

    script_error(&(redisReply){.type = REDIS_REPLY_ERROR, .str = "", .len = 0}, why);
    assert_string_equal(why, "an error without a word (is it Redis?)");
    script_error(&(redisReply){.type = REDIS_REPLY_ERROR, .str = "ERR no.", .len = 7}, why);
    assert_string_equal(why, "ERR no");
}
