/* SPDX-License-Identifier: Apache-2.0 */
/* News from several masters become news once, when a quorum has said so in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fence/lease/redlock/news_votes.h"

enum { QUORUM = 2 };

static const struct lease_news news = {.resource = BYTES_LITERAL("sku:1"), .token = 7};

static void test_what_a_quorum_says_is_news_once(void **state)
{
    struct news_votes news_votes = {0};

    (void)state;
    assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_true(news_votes_add(&news_votes, &news, 31, QUORUM, 1001));
    assert_false(news_votes_add(&news_votes, &news, 2, QUORUM, 1002));
}

static void test_one_master_is_no_quorum_however_often_it_says_so(void **state)
{
    struct news_votes news_votes = {0};

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_true(news_votes_add(&news_votes, &news, 1, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &news, 1, QUORUM, 1000)); /* again: no news */
}

static void test_what_was_said_long_ago_counts_no_more(void **state)
{
    struct news_votes news_votes = {0};

    (void)state;
    assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &news, 1, QUORUM, 1000 + NEWS_VOTES_KEPT_MS));
    assert_true(news_votes_add(&news_votes, &news, 0, QUORUM, 1000 + NEWS_VOTES_KEPT_MS));
}

static void test_a_revocation_is_other_news_than_a_release(void **state)
{
    struct news_votes news_votes = {0};
    struct lease_news revoked = news, later = news;

    (void)state;
    revoked.revoked = true;
    later.token++;
    assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &revoked, 1, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &later, 2, QUORUM, 1000));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_quorum_says_is_news_once),
        cmocka_unit_test(test_one_master_is_no_quorum_however_often_it_says_so),
        cmocka_unit_test(test_what_was_said_long_ago_counts_no_more),
        cmocka_unit_test(test_a_revocation_is_other_news_than_a_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
