/* SPDX-License-Identifier: Apache-2.0 */
/* How Redlock counts votes: examples, then what holds for every possible ballot. A ballot is
 * written as one word for each master: G granted, O own, H held, F free, D down, followed by the
 * token; a dot where the answer is still to come. The TTL of H is ten times its place. Last, how
 * news is counted. */
#include "fence/lease/redlock/ballot.h"
#include "fence/token.h"
#include "tests/unit/test.h"

#define FLOOR 5

static enum lease_answer answer_of(char letter)
{
    switch (letter) {
    case 'G': return LEASE_GRANTED;
    case 'O': return LEASE_OWN;
    case 'H': return LEASE_HELD;
    case 'F': return LEASE_FREE;
    case 'D': return LEASE_DOWN;
    default: return LEASE_UNANSWERED;
    }
}

static struct vote vote_of(const char *word, int place)
{
    return (struct vote){answer_of(*word), strtoll(word + 1, NULL, 10), 10 * place};
}

static struct verdict count(enum lease_verb verb, bool reentry_only, const char *words)
{
    struct ballot ballot = {0};
    struct lease_call question = {.verb = verb,
                                  .floor = FLOOR,
                                  .believed_max = FLOOR + 1000,
                                  .token = FLOOR,
                                  .reentry_only = reentry_only};

    for (const char *word = words; word != NULL; ballot.masters++) {
        ballot.votes[ballot.masters] = vote_of(word, ballot.masters + 1);
        word = strchr(word, ' ');
        word = word == NULL ? NULL : word + 1;
    }
    return ballot_count(&ballot, &question);
}

struct example {
    const char *words;
    enum ballot_outcome outcome;
    int64_t token, ttl_ms;
};

static void check_examples(enum lease_verb verb, bool reentry_only, const struct example *examples,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct verdict verdict = count(verb, reentry_only, examples[i].words);
        if (verdict.outcome != examples[i].outcome || verdict.token != examples[i].token ||
            verdict.ttl_ms != examples[i].ttl_ms)
            fail_msg("%s: outcome %d, token %lld, ttl %lld", examples[i].words, verdict.outcome,
                     (long long)verdict.token, (long long)verdict.ttl_ms);
    }
}

#define CHECK(verb, reentry_only, examples)                                                        \
    check_examples(verb, reentry_only, examples, sizeof(examples) / sizeof *(examples))

TEST(a_grant_takes_a_quorum_under_one_token)
{
    static const struct example examples[] = {
        {"G6", BALLOT_GRANTED, 6, 0},
        {"G6 .", BALLOT_OPEN, 0, 0},
        {"G6 D", BALLOT_DOWN, 0, 0},
        {"G6 G6 .", BALLOT_GRANTED, 6, 0},
        {"G6 . G6 . .", BALLOT_OPEN, 0, 0},
        {"G6 . G6 . G6", BALLOT_GRANTED, 6, 0},
        {"G6 D G6 H5 G6", BALLOT_GRANTED, 6, 0},
        {"G6 G6 . .", BALLOT_OPEN, 0, 0},
        {"O5 . O5 . O5", BALLOT_OWN, 5, 0},
        {"O5 G6 O5 G6 O5", BALLOT_OWN, 5, 0},
        /* Not granted anew while a quorum may still say that it is the owner's. */
        {"O5 O5 G6 . .", BALLOT_OPEN, 0, 0},
        {"O5 O5 G6 G6 .", BALLOT_OPEN, 0, 0},
        {"O5 O5 G6 G6 D", BALLOT_RAISE, 6, 0},
        /* Own at one of them: the lease of an earlier attempt. */
        {"O6 G6 O6 . .", BALLOT_OWN, 6, 0},
        {"G6 G6 O6 . .", BALLOT_OWN, 6, 0},
        {"O6 O6 O6 . .", BALLOT_OWN, 6, 0},
    };
    CHECK(LEASE_GRANT, false, examples);
}

TEST(a_quorum_under_different_tokens_is_raised_to_the_largest)
{
    static const struct example examples[] = {
        {"G6 G7 . . G6", BALLOT_RAISE, 7, 0},
        {"O5 G6 O5 G6 D", BALLOT_RAISE, 6, 0},
        {"O5 O4 O3 D D", BALLOT_RAISE, 6, 0},                  /* none of them is fresh */
        {"G6 G6 O9007199254740991 H5 H5", BALLOT_RAISE, 6, 0}, /* not to be believed */
    };
    CHECK(LEASE_GRANT, false, examples);
}

TEST(a_denied_grant_is_held_or_tried_again_or_down)
{
    static const struct example examples[] = {
        {"H5 H5 . . .", BALLOT_OPEN, 0, 0},
        {"H5 H5 H5 . .", BALLOT_HELD, 5, 30},
        {"H5 H5 H5 H5 H5", BALLOT_HELD, 5, 30},
        {"H5 H5 H5 G6 G6", BALLOT_HELD, 5, 10}, /* one more would do */
        {"H6 H6 H6 H6 H6", BALLOT_HELD, 6, 30}, /* none of it is ours */
        {"H6 H6 H6 G6 G6", BALLOT_SPLIT, 6, 10},
        {"H6 H6 H4 G6 G6", BALLOT_SPLIT, 6, 10},
        {"H6 H6 D G6 G6", BALLOT_SPLIT, 6, 10},
        {"H6 H6 . G6 .", BALLOT_OPEN, 0, 0},
        {"H6 H7 H8 . .", BALLOT_OPEN, 0, 0}, /* two of 8 would not do, but all may be 8 */
        {"H6 H7 H8 H9 .", BALLOT_SPLIT, 9, 30},
        {"D D . . .", BALLOT_OPEN, 0, 0},
        {"D D D . .", BALLOT_DOWN, 0, 0},
        {"D D H5 G6 .", BALLOT_OPEN, 0, 0}, /* it may go down as well */
        {"D D H5 G6 G6", BALLOT_SPLIT, 5, 30},
    };
    CHECK(LEASE_GRANT, false, examples);
}

TEST(who_may_only_enter_again_needs_a_quorum_of_its_own)
{
    static const struct example examples[] = {
        {"O5 O5 O5 . .", BALLOT_OWN, 5, 0},   {"O5 O5 F F .", BALLOT_OPEN, 0, 0},
        {"O5 O5 F F F", BALLOT_FREE, 0, 0},   {"O5 O5 F F D", BALLOT_FREE, 0, 0},
        {"H5 H5 H5 . .", BALLOT_HELD, 5, 30}, {"H5 F F H4 D", BALLOT_HELD, 5, 10},
        {"D D D . .", BALLOT_DOWN, 0, 0},
    };
    CHECK(LEASE_GRANT, true, examples);
}

TEST(a_renewal_takes_a_quorum_and_is_lost_to_more_than_can_be_spared)
{
    static const struct example examples[] = {
        {"G5 G5 G5 . .", BALLOT_GRANTED, 5, 0},  {"G5 G5 H6 H6 .", BALLOT_OPEN, 0, 0},
        {"G5 G5 H6 H6 H6", BALLOT_HELD, 6, 30},  {"H6 H6 H6 . .", BALLOT_HELD, 6, 30},
        {"G5 H6 H7 H7 H6", BALLOT_SPLIT, 7, 30}, {"D D D . .", BALLOT_DOWN, 0, 0},
        {"G5 G5 H6 D D", BALLOT_DOWN, 0, 0},     {"G5 D H6 D .", BALLOT_OPEN, 0, 0},
    };
    CHECK(LEASE_RENEW, false, examples);
}

TEST(it_is_free_where_a_quorum_is)
{
    static const struct example examples[] = {
        {"F F F . .", BALLOT_FREE, 0, 0},     {"H5 H5 H5 . .", BALLOT_HELD, 5, 30},
        {"H5 H5 F F .", BALLOT_OPEN, 0, 0},   {"H5 H5 F F D", BALLOT_HELD, 5, 10},
        {"H5 H5 F F F", BALLOT_FREE, 0, 0},   {"D D D . .", BALLOT_DOWN, 0, 0},
        {"H5 H6 H6 F F", BALLOT_HELD, 6, 10},
    };
    CHECK(LEASE_QUERY, false, examples);
    CHECK(LEASE_RELEASE, false, examples);
}

/* All ballots of so many masters, made of the words that can answer the question. */
struct sweep {
    struct lease_call question;
    const char *const *words;
    int words_count, masters;
    struct ballot ballot;
};

static bool is_taken(enum ballot_outcome outcome)
{
    return outcome == BALLOT_GRANTED || outcome == BALLOT_OWN;
}

static void check_one(struct sweep *sweep)
{
    struct ballot *ballot = &sweep->ballot;
    struct verdict verdict = ballot_count(ballot, &sweep->question);
    int pending = 0, agree = 0;

    for (int i = 0; i < ballot->masters; i++) {
        pending += ballot->votes[i].answer == LEASE_UNANSWERED;
        agree += vote_has(&ballot->votes[i]) && ballot->votes[i].token == verdict.token;
    }
    assert_true(pending > 0 || verdict.outcome != BALLOT_OPEN);
    if (is_taken(verdict.outcome))
        assert_true(agree >= quorum_of(ballot->masters));
    if (verdict.outcome == BALLOT_HELD || verdict.outcome == BALLOT_SPLIT)
        assert_true(verdict.ttl_ms >= 1);
    if (verdict.outcome == BALLOT_OPEN || verdict.outcome == BALLOT_RAISE)
        return;
    for (int i = 0; i < ballot->masters; i++) {
        if (ballot->votes[i].answer != LEASE_UNANSWERED)
            continue;
        for (int w = 1; w < sweep->words_count; w++) {
            ballot->votes[i] = vote_of(sweep->words[w], i + 1);
            enum ballot_outcome later = ballot_count(ballot, &sweep->question).outcome;
            assert_int_equal(is_taken(verdict.outcome), is_taken(later));
        }
        ballot->votes[i] = vote_of(sweep->words[0], i + 1);
    }
}

static void sweep_from(struct sweep *sweep, int place)
{
    if (place == sweep->masters) {
        check_one(sweep);
        return;
    }
    for (int w = 0; w < sweep->words_count; w++) {
        sweep->ballot.votes[place] = vote_of(sweep->words[w], place + 1);
        sweep_from(sweep, place + 1);
    }
}

TEST(every_ballot_is_decided_in_the_end_and_stays_so)
{
    static const char *const grant[] = {".", "G6", "G7", "O5", "O7", "H5", "H6", "D"};
    static const char *const reentry[] = {".", "O5", "O6", "H5", "H6", "F", "D"};
    static const char *const renewal[] = {".", "G5", "H6", "H7", "D"};
    static const char *const others[] = {".", "F", "H5", "H6", "D"};
    struct sweep sweeps[] = {
        {.question = {.verb = LEASE_GRANT, .floor = FLOOR, .believed_max = FLOOR + 1000},
         .words = grant,
         .words_count = 8},
        {.question = {.verb = LEASE_GRANT,
                      .floor = FLOOR,
                      .believed_max = FLOOR + 1000,
                      .reentry_only = true},
         .words = reentry,
         .words_count = 7},
        {.question = {.verb = LEASE_RENEW, .token = 5}, .words = renewal, .words_count = 5},
        {.question = {.verb = LEASE_RELEASE}, .words = others, .words_count = 5},
        {.question = {.verb = LEASE_QUERY}, .words = others, .words_count = 5},
    };

    for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++)
        for (int masters = 1; masters <= 5; masters++) {
            sweeps[i].masters = sweeps[i].ballot.masters = masters;
            sweep_from(&sweeps[i], 0);
        }
}

/* How news is counted. */

enum { QUORUM = 2 };

static const struct lease_news news = {.resource = BYTES_LITERAL("sku:1"), .token = 7};

TEST(news_from_a_quorum_are_news_once)
{
    struct news_votes news_votes = {0};

    assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_true(news_votes_add(&news_votes, &news, 31, QUORUM, 1001));
    assert_false(news_votes_add(&news_votes, &news, 2, QUORUM, 1002));
}

TEST(news_from_one_master_are_no_quorum_however_often_it_sends_them)
{
    struct news_votes news_votes = {0};

    for (int i = 0; i < 5; i++)
        assert_false(news_votes_add(&news_votes, &news, 0, QUORUM, 1000));
    assert_true(news_votes_add(&news_votes, &news, 1, QUORUM, 1000));
    assert_false(news_votes_add(&news_votes, &news, 1, QUORUM, 1000)); /* again: no news */
}

TEST(news_of_long_ago_count_no_more)
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
