/* SPDX-License-Identifier: Apache-2.0 */
/* `local:` beyond what every provider must do (tests/unit/fence/conformance_test.c): leases of
 * earlier runs and of other daemons, and memory. Time is the test's. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "store/open.h"

static const char ann[] = "a0000000000000000000000000000001";
static const char bob[] = "b0000000000000000000000000000002";

static int64_t now_ms;

static int64_t held_still(const struct clock *clock)
{
    (void)clock;
    return now_ms;
}

static const struct clock still_clock = {.now_ms = held_still};

static int setup(void **state)
{
    now_ms = 5000;
    *state = lease_local_new(&still_clock);
    return 0;
}

static void ignore(void *context)
{
    (void)context;
}

static void ignore_answer(struct lease_call *call)
{
    (void)call;
}

static int teardown(void **state)
{
    lease_provider_close(*state, ignore, NULL);
    return 0;
}

enum run { THIS_RUN, EARLIER_RUN, ANOTHER_DAEMON };

/* What the store remembers: a live lease of ann's. */
static struct lease_record remembered(enum run run, int64_t token, int64_t ttl_ms)
{
    struct lease_record record = {.token = token,
                                  .live = true,
                                  .this_run = run == THIS_RUN,
                                  .earlier_run = run == EARLIER_RUN,
                                  .ttl_ms = ttl_ms};

    memcpy(record.nonce, ann, sizeof ann);
    return record;
}

static struct lease_call ask(struct lease_provider *local, enum lease_verb verb, const char *nonce,
                             int64_t token, const struct lease_record *record)
{
    struct lease_call call = {.verb = verb,
                              .resource = BYTES_LITERAL("sku:1"),
                              .token = token,
                              .ttl_ms = 1000,
                              .done = ignore_answer};

    snprintf(call.nonce, sizeof call.nonce, "%s", nonce);
    if (record != NULL) {
        call.record = *record;
        call.floor = record->token;
    }
    lease_ask(local, &call);
    assert_int_not_equal(call.answer, LEASE_UNANSWERED);
    return call;
}

static void assert_held(struct lease_call call, int64_t token, int64_t left_ms)
{
    assert_int_equal(call.answer, LEASE_HELD);
    assert_int_equal(call.answer_token, token);
    assert_int_equal(call.answer_ttl_ms, left_ms);
}

static void test_a_lease_of_an_earlier_run_is_held_for_its_ttl_from_the_start(void **state)
{
    const struct lease_record record = remembered(EARLIER_RUN, 34, 300);

    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 300);
    now_ms += 299;
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 1);
    assert_held(ask(*state, LEASE_QUERY, "", 0, &record), 34, 1);
    assert_held(ask(*state, LEASE_RENEW, bob, 34, &record), 34, 1);
    now_ms += 1;
    assert_int_equal(ask(*state, LEASE_QUERY, "", 0, &record).answer, LEASE_FREE);
    struct lease_call call = ask(*state, LEASE_GRANT, bob, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 35);
}

static void test_the_holder_from_an_earlier_run_enters_again_and_renews(void **state)
{
    const struct lease_record record = remembered(EARLIER_RUN, 34, 300);

    struct lease_call call = ask(*state, LEASE_GRANT, ann, 0, &record);
    assert_int_equal(call.answer, LEASE_OWN);
    assert_int_equal(call.answer_token, 34);
    now_ms += 999; /* past what the store remembers, within what was asked for now */
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 1);
    call = ask(*state, LEASE_RENEW, ann, 34, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 1000);
    now_ms += 1000;
    assert_int_equal(ask(*state, LEASE_GRANT, bob, 0, &record).answer, LEASE_GRANTED);
}

static void test_another_daemons_lease_is_held_from_when_it_is_first_seen(void **state)
{
    const struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    now_ms += 100000;
    assert_held(ask(*state, LEASE_QUERY, "", 0, &record), 34, 300);
    now_ms += 299;
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 1);
    now_ms += 1;
    assert_int_equal(ask(*state, LEASE_QUERY, "", 0, &record).answer, LEASE_FREE);
    now_ms += 100000; /* it stays over */
    assert_int_equal(ask(*state, LEASE_QUERY, "", 0, &record).answer, LEASE_FREE);
    struct lease_call call = ask(*state, LEASE_GRANT, bob, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 35);
}

static void test_another_daemons_lease_renewed_here_stays_over_when_it_is_over(void **state)
{
    const struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    assert_int_equal(ask(*state, LEASE_RENEW, ann, 34, &record).answer, LEASE_GRANTED);
    assert_held(ask(*state, LEASE_QUERY, "", 0, &record), 34, 1000);
    now_ms += 1000;
    assert_int_equal(ask(*state, LEASE_QUERY, "", 0, &record).answer, LEASE_FREE);
    assert_int_equal(ask(*state, LEASE_QUERY, "", 0, &record).answer, LEASE_FREE);
}

static void test_another_daemons_renewal_counts_from_when_it_is_seen(void **state)
{
    struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    record.changed_ms = 77000;
    assert_held(ask(*state, LEASE_QUERY, "", 0, &record), 34, 300);
    now_ms += 300;
    record.changed_ms = 77100; /* renewed there */
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 300);
    now_ms += 299;
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 1);
    record.changed_ms = 1; /* again, after its clock was set back */
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 300);
    now_ms += 300;
    assert_int_equal(ask(*state, LEASE_GRANT, bob, 0, &record).answer, LEASE_GRANTED);
}

static void test_a_token_that_two_minted_at_once_is_whose_the_store_says(void **state)
{
    const struct lease_record record = remembered(ANOTHER_DAEMON, 1, 300); /* ann's */

    assert_int_equal(ask(*state, LEASE_GRANT, bob, 0, NULL).answer_token, 1);
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 1, 300);
    assert_held(ask(*state, LEASE_RELEASE, bob, 1, &record), 1, 300);
    now_ms += 300;
    struct lease_call call = ask(*state, LEASE_GRANT, bob, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 2);
}

static void test_a_newer_grant_of_another_daemon_outdates_our_own(void **state)
{
    assert_int_equal(ask(*state, LEASE_GRANT, bob, 0, NULL).answer_token, 1);
    struct lease_record record = remembered(ANOTHER_DAEMON, 2, 300); /* after a REVOKE there */
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 2, 300);
    now_ms += 10;
    record = remembered(ANOTHER_DAEMON, 3, 300);
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 3, 300);
    record.live = false;
    record.token = 4; /* granted and released there */
    struct lease_call call = ask(*state, LEASE_GRANT, bob, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 5);
}

static void test_a_retired_lease_of_an_earlier_run_is_free(void **state)
{
    struct lease_record record = remembered(EARLIER_RUN, 34, 300);

    record.live = false;
    struct lease_call call = ask(*state, LEASE_GRANT, bob, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 35);
}

static void test_another_daemons_lease_that_it_gave_back_is_free(void **state)
{
    struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 34, 300);
    record.live = false;
    assert_int_equal(ask(*state, LEASE_QUERY, "", 0, &record).answer, LEASE_FREE);
    struct lease_call call = ask(*state, LEASE_GRANT, bob, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 35);
}

static void test_our_own_lease_that_another_daemon_took_away_is_free(void **state)
{
    struct lease_record record = remembered(THIS_RUN, 1, 1000);

    assert_int_equal(ask(*state, LEASE_GRANT, ann, 0, NULL).answer_token, 1);
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &record), 1, 1000);
    record.live = false;
    struct lease_call call = ask(*state, LEASE_GRANT, ann, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 2);
}

static void test_a_grant_on_its_way_to_the_store_holds_against_an_older_record(void **state)
{
    struct lease_record old = remembered(THIS_RUN, 33, 300);

    old.live = false;
    assert_int_equal(ask(*state, LEASE_GRANT, ann, 0, &old).answer_token, 34);
    assert_held(ask(*state, LEASE_GRANT, bob, 0, &old), 34, 1000);
    now_ms += 1000; /* its time is over before the store has it */
    struct lease_call call = ask(*state, LEASE_GRANT, bob, 0, &old);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 35);
}

static void test_a_lease_given_back_is_free_before_the_store_knows(void **state)
{
    struct lease_call call = ask(*state, LEASE_GRANT, ann, 0, NULL);

    assert_int_equal(call.answer, LEASE_GRANTED);
    const struct lease_record record = remembered(THIS_RUN, call.answer_token, 1000);
    assert_int_equal(ask(*state, LEASE_RELEASE, ann, record.token, &record).answer, LEASE_FREE);
    call = ask(*state, LEASE_GRANT, bob, 0, &record);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, record.token + 1);
}

/* A million leases held at once, and what is left of them afterwards. */
static void test_memory_follows_the_number_of_held_leases(void **state)
{
    enum { LEASES = 1000000 };
    char name[32];
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;

    for (int i = 0; i < LEASES; i++) {
        struct lease_call call = {.verb = LEASE_GRANT, .ttl_ms = 1000, .done = ignore_answer};
        snprintf(name, sizeof name, "inventory:%08d", i);
        memcpy(call.nonce, ann, sizeof ann);
        call.resource = bytes_of(name);
        lease_ask(*state, &call);
        assert_int_equal(call.answer, LEASE_GRANTED);
    }
    size_t each = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / LEASES;
    print_message("%zu bytes for each held lease\n", each);
    if (each == 0)
        skip(); /* an allocator that does not count (a sanitizer's) */
    assert_true(each < 160);

    now_ms += 1000;
    for (int i = 0; i < LEASES / 4 + 1; i++)
        ask(*state, LEASE_QUERY, "", 0, NULL);
    size_t left = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / LEASES;
    assert_true(left < 20); /* the heap's array stays */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_lease_of_an_earlier_run_is_held_for_its_ttl_from_the_start),
        TEST(the_holder_from_an_earlier_run_enters_again_and_renews),
        TEST(another_daemons_lease_is_held_from_when_it_is_first_seen),
        TEST(another_daemons_lease_renewed_here_stays_over_when_it_is_over),
        TEST(a_newer_grant_of_another_daemon_outdates_our_own),
        TEST(another_daemons_renewal_counts_from_when_it_is_seen),
        TEST(a_token_that_two_minted_at_once_is_whose_the_store_says),
        TEST(a_retired_lease_of_an_earlier_run_is_free),
        TEST(another_daemons_lease_that_it_gave_back_is_free),
        TEST(our_own_lease_that_another_daemon_took_away_is_free),
        TEST(a_grant_on_its_way_to_the_store_holds_against_an_older_record),
        TEST(a_lease_given_back_is_free_before_the_store_knows),
        TEST(memory_follows_the_number_of_held_leases),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
