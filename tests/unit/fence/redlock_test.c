/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock over in-memory masters that fail, disagree, answer late or not at all. (What every
 * provider must do: conformance_test.c; how votes are counted: ballot_test.c.) */
#include "tests/unit/fence/masters.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define TTL_MS  60000
#define SOON_MS 1000 /* by then everything has been answered and given back */

static int setup(void **state)
{
    *state = masters_new(5);
    return 0;
}

static int teardown(void **state)
{
    masters_free(*state);
    return 0;
}

#define MASTERS_TEST(name) TEST_WITH(setup, teardown, struct masters *masters, name)

static void ask(struct masters *masters, int client, struct asked *asked)
{
    rig_ask_at(masters->clients[client].provider, asked);
}

/* Ask, and let time pass until the answer is there. */
static struct lease_call answer_of(struct masters *masters, struct lease_provider *provider,
                                   struct asked asked)
{
    rig_ask_at(provider, &asked);
    for (int i = 0; i < SOON_MS && !asked.answered; i++)
        masters_pass(masters, 1);
    assert_true(asked.answered);
    return asked.call;
}

static struct lease_call answer(struct masters *masters, struct asked asked)
{
    return answer_of(masters, masters->clients[0].provider, asked);
}

/* Let the masters from `first` to `last` answer so late. */
static void set_late(struct masters *masters, int first, int last, int64_t late_ms)
{
    for (int i = first; i <= last; i++)
        lease_service_set_late(masters->services[i], late_ms);
}

/* Take them down for `reason`, or up again (NULL). */
static void set_down(struct masters *masters, int first, int last, const char *reason)
{
    for (int i = first; i <= last; i++)
        lease_service_set_down(masters->services[i], reason);
}

static struct asked grant(const char *nonce, int64_t floor)
{
    struct asked asked = rig_question(LEASE_GRANT, nonce, 0);

    asked.call.floor = floor;
    return asked;
}

/* Ask a master itself, past Redlock. */
static struct lease_call of_master(struct masters *masters, int number, enum lease_verb verb,
                                   const char *nonce, int64_t token)
{
    struct lease_provider *provider = lease_memory_new(masters->services[number]);
    struct asked asked = rig_question(verb, nonce, token);
    bool closed = false;

    if (verb == LEASE_GRANT)
        asked.call.floor = token - 1;
    struct lease_call call = answer_of(masters, provider, asked);
    lease_provider_close(provider, rig_on_closed, &closed);
    return call;
}

/* Assert which token each master has; 0: it is free there. */
static void assert_masters_have(struct masters *masters, const int64_t tokens[5])
{
    for (int i = 0; i < 5; i++)
        assert_int_equal(of_master(masters, i, LEASE_QUERY, "", 0).answer_token, tokens[i]);
}

/* Let bob take it at the masters from `first` to `last`, or release it there. */
static void take(struct masters *masters, int first, int last, int64_t token)
{
    for (int i = first; i <= last; i++)
        assert_answer(of_master(masters, i, LEASE_GRANT, bob, token), LEASE_GRANTED, token);
}

static void let_go(struct masters *masters, int first, int last, int64_t token)
{
    for (int i = first; i <= last; i++)
        of_master(masters, i, LEASE_RELEASE, bob, token);
}

MASTERS_TEST(masters_whose_counters_ran_ahead_are_levelled)
{
    take(masters, 1, 1, 9);
    let_go(masters, 1, 1, 9);
    take(masters, 3, 3, 7);
    let_go(masters, 3, 3, 7);
    struct lease_call call = answer(masters, grant(ann, 5));
    assert_int_equal(call.answer, LEASE_GRANTED);
    masters_pass(masters, SOON_MS);
    for (int i = 0; i < 5; i++) {
        int64_t token = of_master(masters, i, LEASE_QUERY, "", 0).answer_token;
        assert_true(token == call.answer_token || token == 0);
    }
    assert_answer(answer(masters, rig_question(LEASE_QUERY, "", 0)), LEASE_HELD, call.answer_token);
    assert_answer(answer(masters, grant(ann, call.answer_token)), LEASE_OWN, call.answer_token);
}

MASTERS_TEST(empty_masters_are_healed_by_a_renewal)
{
    assert_answer(answer(masters, grant(ann, 5)), LEASE_GRANTED, 6);
    lease_service_lose_all(masters->services[0]);
    lease_service_lose_all(masters->services[4]);
    assert_answer(answer(masters, grant(bob, 6)), LEASE_HELD, 6);
    assert_masters_have(masters, (int64_t[]){0, 6, 6, 6, 0});
    assert_answer(answer(masters, rig_question(LEASE_RENEW, ann, 6)), LEASE_GRANTED, 6);
    assert_masters_have(masters, (int64_t[]){6, 6, 6, 6, 6});
}

MASTERS_TEST(what_is_granted_by_a_minority_is_given_back_also_when_it_comes_late)
{
    take(masters, 0, 2, 5);
    set_late(masters, 4, 4, 300);
    struct asked asked = grant(ann, 5);
    ask(masters, 0, &asked);
    assert_true(asked.answered); /* nobody waits for the late one */
    assert_answer(asked.call, LEASE_HELD, 5);
    masters_pass(masters, SOON_MS);
    set_late(masters, 4, 4, 0);
    assert_masters_have(masters, (int64_t[]){5, 5, 5, 0, 0});
}

MASTERS_TEST(a_late_master_delays_no_decision_and_keeps_the_lease)
{
    set_late(masters, 0, 0, 300);
    set_late(masters, 2, 2, -1);
    struct asked asked = grant(ann, 5);
    ask(masters, 0, &asked);
    assert_true(asked.answered);
    assert_answer(asked.call, LEASE_GRANTED, 6);
    masters_pass(masters, SOON_MS);
    set_late(masters, 0, 0, 0);
    set_late(masters, 2, 2, 0);
    masters_pass(masters, 1);
    assert_masters_have(masters, (int64_t[]){6, 6, 6, 6, 6});
}

MASTERS_TEST(a_late_grant_under_another_token_is_given_back)
{
    take(masters, 0, 0, 20);
    let_go(masters, 0, 0, 20);
    set_late(masters, 0, 0, 50);
    assert_answer(answer(masters, grant(ann, 5)), LEASE_GRANTED, 6);
    masters_pass(masters, SOON_MS);
    set_late(masters, 0, 0, 0);
    assert_masters_have(masters, (int64_t[]){0, 6, 6, 6, 6});
}

/* One master is gone, and two daemons have half of the others each. */
MASTERS_TEST(of_those_who_split_the_masters_the_one_who_pauses_keeps_nothing)
{
    struct asked a = grant(ann, 5), b = grant(bob, 5);

    set_down(masters, 4, 4, "gone");
    take(masters, 0, 1, 6);
    ask(masters, 0, &a);
    assert_false(a.answered);
    assert_masters_have(masters, (int64_t[]){6, 6, 0, 0, 0});
    let_go(masters, 0, 1, 6);
    ask(masters, 1, &b);
    assert_answer(b.call, LEASE_GRANTED, 7);
    let_go(masters, 0, 0, 7);
    masters_pass(masters, SOON_MS);
    assert_int_equal(a.times, 1);
    assert_int_equal(a.call.answer, LEASE_HELD);
    assert_in_range(a.call.answer_ttl_ms, 1, TTL_MS);
    assert_int_equal(b.times, 1);
}

MASTERS_TEST(who_is_alone_after_a_split_is_granted)
{
    struct asked a = grant(ann, 5);

    take(masters, 0, 2, 6); /* not recorded: maybe not one owner's */
    ask(masters, 0, &a);
    assert_false(a.answered);
    let_go(masters, 0, 2, 6);
    masters_pass(masters, SOON_MS);
    assert_int_equal(a.times, 1);
    assert_int_equal(a.call.answer, LEASE_GRANTED);
    assert_true(a.call.answer_token > 5);
}

MASTERS_TEST(without_a_quorum_it_is_down_with_the_reason_and_nothing_stays)
{
    set_down(masters, 0, 2, "struck by lightning");
    assert_down(answer(masters, grant(ann, 5)),
                "no quorum: 3 of 5 masters are down: struck by lightning");
    assert_down(answer(masters, rig_question(LEASE_QUERY, "", 0)), "lightning");
    struct lease_health health = lease_provider_health(masters->clients[0].provider);
    assert_false(health.up);
    assert_false(health.watching);
    assert_int_equal(health.failures, 2);
    assert_string_equal(health.detail, "redlock: 5 masters, 2 ready; memory: struck by lightning");
    set_down(masters, 0, 2, NULL);
    assert_masters_have(masters, (int64_t[]){0, 0, 0, 0, 0});
    assert_true(lease_provider_health(masters->clients[0].provider).up);
}

MASTERS_TEST(a_renewal_that_is_lost_leaves_nothing_behind)
{
    take(masters, 0, 2, 7);
    assert_answer(answer(masters, rig_question(LEASE_RENEW, ann, 6)), LEASE_HELD, 7);
    masters_pass(masters, SOON_MS);
    assert_masters_have(masters, (int64_t[]){7, 7, 7, 0, 0});
}

MASTERS_TEST(a_renewal_without_a_quorum_is_down_and_keeps_what_it_has)
{
    set_down(masters, 0, 2, "gone");
    assert_down(answer(masters, rig_question(LEASE_RENEW, ann, 6)), "no quorum");
    set_down(masters, 0, 2, NULL);
    masters_pass(masters, SOON_MS);
    assert_masters_have(masters, (int64_t[]){0, 0, 0, 6, 6});
}

/* The drift counts. */
MASTERS_TEST(a_quorum_that_comes_too_late_for_the_ttl_is_asked_again)
{
    struct asked asked = grant(ann, 5);

    set_late(masters, 0, 4, 97);
    asked.call.ttl_ms = 100; /* of which drift takes 3 */
    ask(masters, 0, &asked);
    masters_pass(masters, 98);
    assert_false(asked.answered);
    set_late(masters, 0, 4, 0);
    masters_pass(masters, SOON_MS);
    assert_int_equal(asked.times, 1);
    assert_answer(asked.call, LEASE_GRANTED, 7);

    struct asked longer = grant(ann, 50);
    set_late(masters, 0, 4, 97);
    longer.call.ttl_ms = 102;
    ask(masters, 0, &longer);
    masters_pass(masters, 98);
    assert_answer(longer.call, LEASE_GRANTED, 51);
}

MASTERS_TEST(what_is_told_ends_with_the_first_that_was_asked_less_the_drift)
{
    struct asked asked = grant(ann, 5);

    for (int i = 0; i < 5; i++)
        lease_service_set_late(masters->services[i], 10 * i);
    asked.call.asked_ms = masters->now_ms;
    ask(masters, 0, &asked);
    masters_pass(masters, 50);
    assert_answer(asked.call, LEASE_GRANTED, 6);
    assert_int_equal(asked.call.answer_until_ms, asked.call.asked_ms + TTL_MS - TTL_MS / 100 - 2);
    set_late(masters, 0, 4, 0);
    for (int i = 0; i < 5; i++)
        assert_true(lease_left_ms(&asked.call, masters->now_ms) <=
                    of_master(masters, i, LEASE_QUERY, "", 0).answer_ttl_ms);
}

/* The time of the first try does not count: it was given back. */
MASTERS_TEST(what_is_told_of_a_second_try_counts_from_there)
{
    struct asked asked = grant(ann, 5);

    set_late(masters, 0, 4, 97);
    asked.call.ttl_ms = 100;
    asked.call.asked_ms = masters->now_ms;
    ask(masters, 0, &asked);
    masters_pass(masters, 98);
    set_late(masters, 0, 4, 0);
    while (!asked.answered)
        masters_pass(masters, 1);
    assert_answer(asked.call, LEASE_GRANTED, 7);
    assert_int_equal(lease_left_ms(&asked.call, masters->now_ms), 97);
}

MASTERS_TEST(a_quorum_that_is_always_too_late_is_left_to_the_caller)
{
    struct asked asked = grant(ann, 5);
    int64_t asked_ms = masters->now_ms;

    set_late(masters, 0, 4, 97);
    asked.call.ttl_ms = 100;
    ask(masters, 0, &asked);
    while (!asked.answered && masters->now_ms < asked_ms + 10 * SOON_MS)
        masters_pass(masters, 1);
    assert_int_equal(asked.call.answer, LEASE_GRANTED);
    assert_true(masters->now_ms - asked_ms >= 100);
    masters_pass(masters, SOON_MS);
}

/* One timer wakes them all, each at its own time. */
MASTERS_TEST(all_rounds_that_pause_at_once_are_answered)
{
    enum { ROUNDS = 8 };
    struct asked asked[ROUNDS];
    char names[ROUNDS][16];

    set_late(masters, 0, 4, 97);
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(names[i], sizeof names[i], "sku:%d", i);
        asked[i] = grant(ann, 5);
        asked[i].call.resource = bytes_of(names[i]);
        asked[i].call.ttl_ms = 100;
        ask(masters, 0, &asked[i]);
    }
    masters_pass(masters, 50);
    set_late(masters, 0, 4, 0); /* what is given back is so at once, and no later round pauses */
    masters_pass(masters, 48);
    for (int i = 0; i < ROUNDS; i++)
        assert_false(asked[i].answered);
    masters_pass(masters, SOON_MS);
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(asked[i].times, 1);
        assert_int_equal(asked[i].call.answer, LEASE_GRANTED);
    }
}

/* The owner asks again before a late master has answered the first time. */
MASTERS_TEST(what_a_late_master_grants_is_not_taken_from_the_owners_next_try)
{
    struct asked first = grant(ann, 5), second = grant(ann, 5);

    take(masters, 0, 2, 5);
    set_late(masters, 3, 3, 300);
    ask(masters, 0, &first);
    assert_answer(first.call, LEASE_HELD, 5);
    let_go(masters, 0, 1, 5);
    set_down(masters, 4, 4, "gone");
    ask(masters, 0, &second);
    assert_false(second.answered);
    masters_pass(masters, SOON_MS);
    assert_answer(second.call, LEASE_OWN, 6);
    set_late(masters, 3, 3, 0);
    set_down(masters, 4, 4, NULL);
    assert_masters_have(masters, (int64_t[]){6, 6, 5, 6, 0});
}

MASTERS_TEST(what_the_owners_next_try_cannot_use_is_given_back_after_all)
{
    struct asked first = grant(ann, 5), second = grant(ann, 5);

    take(masters, 0, 2, 5);
    set_late(masters, 3, 3, 300);
    ask(masters, 0, &first);
    ask(masters, 0, &second);
    assert_answer(second.call, LEASE_HELD, 5);
    masters_pass(masters, SOON_MS);
    set_late(masters, 3, 3, 0);
    assert_masters_have(masters, (int64_t[]){5, 5, 5, 0, 0});
}

MASTERS_TEST(news_are_told_once_when_a_quorum_has_them)
{
    struct client *other = &masters->clients[1];

    assert_answer(answer(masters, grant(ann, 5)), LEASE_GRANTED, 6);
    of_master(masters, 0, LEASE_RELEASE, ann, 6);
    of_master(masters, 1, LEASE_RELEASE, ann, 6);
    assert_int_equal(other->told, 0); /* two are no quorum */
    struct asked release = rig_question(LEASE_RELEASE, ann, 6);
    release.call.revoked = true;
    assert_answer(answer(masters, release), LEASE_FREE, 0);
    assert_int_equal(other->told, 1);
    assert_true(other->news.revoked);
    assert_int_equal(other->news.token, 6);
    assert_int_equal(masters->clients[0].told, 0);
    assert_int_equal(lease_provider_health(other->provider).news, 1);
}

MASTERS_TEST(closing_answers_what_is_under_way_and_what_pauses)
{
    struct asked pausing = grant(ann, 5), waiting = rig_question(LEASE_RENEW, ann, 3);
    bool closed = false;

    take(masters, 0, 2, 6);
    ask(masters, 0, &pausing);
    assert_false(pausing.answered);
    set_late(masters, 0, 4, -1);
    waiting.call.resource = BYTES_LITERAL("sku:2");
    ask(masters, 0, &waiting);
    assert_false(waiting.answered);
    lease_provider_close(masters->clients[0].provider, rig_on_closed, &closed);
    masters->clients[0].provider = NULL;
    assert_int_equal(pausing.times, 1);
    assert_int_equal(waiting.times, 1);
    assert_down(pausing.call, "being closed");
    assert_down(waiting.call, "being closed");
}
