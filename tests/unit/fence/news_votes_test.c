/* SPDX-License-Identifier: Apache-2.0 */
/* News from several masters become news once, when a quorum has said so in time. */
#include "fence/lease/redlock/news_votes.h"
#include "tests/unit/test.h"

enum { QUORUM = 2 };

static const struct lease_news news = {.resource = BYTES_LITERAL("sku:1"), .token = 7};

TEST(what_a_quorum_says_is_news_once)
{
    struct news_votes news_votes = {0};

    assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_true(news_votes_add(&news_votes, &news, 31, QUORUM, 1001));
    assert_false(news_votes_add(&news_votes, &news, 2, QUORUM, 1002));
}

TEST(one_master_is_no_quorum_however_often_it_says_so)
{
    struct news_votes news_votes = {0};

    for (int i = 0; i < 5; i++)
        assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_true(news_votes_add(&news_votes, &news, 1, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &news, 1, QUORUM, 1000)); /* again: no news */
}

TEST(what_was_said_long_ago_counts_no_more)
{
    struct news_votes news_votes = {0};

    assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &news, 1, QUORUM, 1000 + NEWS_VOTES_KEPT_MS));
    assert_true(news_votes_add(&news_votes, &news, 0, QUORUM, 1000 + NEWS_VOTES_KEPT_MS));
}

TEST(a_revocation_is_other_news_than_a_release)
{
    struct news_votes news_votes = {0};
    struct lease_news revoked = news, later = news;

    revoked.revoked = true;
    later.token++;
    assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &revoked, 1, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &later, 2, QUORUM, 1000));
}
