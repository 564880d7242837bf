/* SPDX-License-Identifier: Apache-2.0 */
/* `local:` beyond what every provider must do (tests/unit/fence/conformance_test.c): leases of
 * earlier runs and of other daemons, and memory. Time is the test's. */
#include <malloc.h>

#include "fence/lease/open.h"
#include "tests/unit/test.h"

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

#define PROVIDER_TEST(name) TEST_WITH(setup, teardown, struct lease_provider *provider, name)

enum run { THIS_RUN, EARLIER_RUN, ANOTHER_DAEMON };

/* Return the store's record of a live lease of ann's. */
static struct lease_record remembered(enum run run, int64_t token, int64_t ttl_ms)
{
    struct lease_record record = {.token = token,
                                  .live = true,
                                  .this_opening = run == THIS_RUN,
                                  .earlier_opening = run == EARLIER_RUN,
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

static void assert_granted(struct lease_call call, int64_t token)
{
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, token);
}

static void assert_free(struct lease_call call)
{
    assert_int_equal(call.answer, LEASE_FREE);
}

PROVIDER_TEST(a_lease_that_the_store_has_lost_is_held_by_nobody)
{
    struct lease_call call = {.verb = LEASE_GRANT,
                              .resource = BYTES_LITERAL("sku:1"),
                              .ttl_ms = 1000,
                              .floor = 6,
                              .record = {.floor = 6},
                              .done = ignore_answer};

    assert_granted(ask(provider, LEASE_GRANT, ann, 0, NULL), 1);
    assert_free(ask(provider, LEASE_QUERY, "", 0, &call.record)); /* and is shown so */
    memcpy(call.nonce, ann, sizeof ann);
    lease_ask(provider, &call); /* its owner does not enter it again, either */
    assert_granted(call, 7);
    memcpy(call.nonce, bob, sizeof bob);
    call.answer = LEASE_UNANSWERED;
    lease_ask(provider, &call);
    assert_held(call, 7, 1000); /* on its way to the store */
}

PROVIDER_TEST(a_lease_of_an_earlier_run_is_held_for_its_ttl_from_the_start)
{
    const struct lease_record record = remembered(EARLIER_RUN, 34, 300);

    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 300);
    now_ms += 299;
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 1);
    assert_held(ask(provider, LEASE_QUERY, "", 0, &record), 34, 1);
    assert_held(ask(provider, LEASE_RENEW, bob, 34, &record), 34, 1);
    now_ms += 1;
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 35);
}

PROVIDER_TEST(the_holder_from_an_earlier_run_enters_again_and_renews)
{
    const struct lease_record record = remembered(EARLIER_RUN, 34, 300);

    struct lease_call call = ask(provider, LEASE_GRANT, ann, 0, &record);
    assert_int_equal(call.answer, LEASE_OWN);
    assert_int_equal(call.answer_token, 34);
    now_ms += 999; /* past what the store remembers, within what was asked for now */
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 1);
    assert_int_equal(ask(provider, LEASE_RENEW, ann, 34, &record).answer, LEASE_GRANTED);
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 1000);
    now_ms += 1000;
    assert_int_equal(ask(provider, LEASE_GRANT, bob, 0, &record).answer, LEASE_GRANTED);
}

PROVIDER_TEST(another_daemons_lease_is_held_from_when_it_is_first_seen)
{
    const struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    now_ms += 100000;
    assert_held(ask(provider, LEASE_QUERY, "", 0, &record), 34, 300);
    now_ms += 299;
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 1);
    now_ms += 1;
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    now_ms += 100000; /* it stays over */
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 35);
}

PROVIDER_TEST(another_daemons_lease_renewed_here_stays_over_when_it_is_over)
{
    const struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    assert_int_equal(ask(provider, LEASE_RENEW, ann, 34, &record).answer, LEASE_GRANTED);
    assert_held(ask(provider, LEASE_QUERY, "", 0, &record), 34, 1000);
    now_ms += 1000;
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
}

PROVIDER_TEST(another_daemons_renewal_counts_from_when_it_is_seen)
{
    struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    record.change = 7;
    assert_held(ask(provider, LEASE_QUERY, "", 0, &record), 34, 300);
    now_ms += 300;
    record.change = 8; /* renewed there */
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 300);
    now_ms += 299;
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 1);
    record.change = 1; /* again, by whatever number */
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 300);
    now_ms += 300;
    assert_int_equal(ask(provider, LEASE_GRANT, bob, 0, &record).answer, LEASE_GRANTED);
}

PROVIDER_TEST(another_daemons_lease_ends_by_the_stores_time_where_it_has_one)
{
    struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    record.age_ms = 200;
    assert_held(ask(provider, LEASE_QUERY, "", 0, &record), 34, 100);
    now_ms += 100;
    record.age_ms = 290; /* seen before, it ends as it was seen first */
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    record.change = 8;
    record.age_ms = 0; /* renewed there */
    assert_held(ask(provider, LEASE_QUERY, "", 0, &record), 34, 300);
    record.token = 35;
    record.age_ms = 300;
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 36);
}

/* The row has changed hands since it was granted here. */
PROVIDER_TEST(our_own_lease_that_another_daemon_has_renewed_is_held)
{
    struct lease_record record = remembered(THIS_RUN, 1, 1000);

    assert_granted(ask(provider, LEASE_GRANT, ann, 0, NULL), 1);
    now_ms += 900;
    record.this_opening = false;
    record.change = 2;
    assert_held(ask(provider, LEASE_QUERY, "", 0, &record), 1,
                100); /* a renewal may be on its way */
    now_ms += 200;
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 1, 1000);
    now_ms += 999;
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 1, 1);
    now_ms += 1;
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 2);
}

PROVIDER_TEST(a_token_that_two_minted_at_once_is_whose_the_store_says)
{
    const struct lease_record record = remembered(ANOTHER_DAEMON, 1, 300); /* ann's */

    assert_granted(ask(provider, LEASE_GRANT, bob, 0, NULL), 1);
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 1, 300);
    assert_held(ask(provider, LEASE_RELEASE, bob, 1, &record), 1, 300);
    now_ms += 300;
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 2);
}

PROVIDER_TEST(a_newer_grant_of_another_daemon_outdates_our_own)
{
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, NULL), 1);
    struct lease_record record = remembered(ANOTHER_DAEMON, 2, 300); /* after a REVOKE there */
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 2, 300);
    now_ms += 10;
    record = remembered(ANOTHER_DAEMON, 3, 300);
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 3, 300);
    record.live = false;
    record.token = 4; /* granted and released there */
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 5);
}

PROVIDER_TEST(a_retired_lease_of_an_earlier_run_is_free)
{
    struct lease_record record = remembered(EARLIER_RUN, 34, 300);

    record.live = false;
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 35);
}

PROVIDER_TEST(another_daemons_lease_that_it_gave_back_is_free)
{
    struct lease_record record = remembered(ANOTHER_DAEMON, 34, 300);

    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 34, 300);
    record.live = false;
    assert_free(ask(provider, LEASE_QUERY, "", 0, &record));
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), 35);
}

PROVIDER_TEST(our_own_lease_that_another_daemon_took_away_is_free)
{
    struct lease_record record = remembered(THIS_RUN, 1, 1000);

    assert_granted(ask(provider, LEASE_GRANT, ann, 0, NULL), 1);
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &record), 1, 1000);
    record.live = false;
    assert_granted(ask(provider, LEASE_GRANT, ann, 0, &record), 2);
}

PROVIDER_TEST(a_grant_on_its_way_to_the_store_holds_against_an_older_record)
{
    struct lease_record old = remembered(THIS_RUN, 33, 300);

    old.live = false;
    assert_granted(ask(provider, LEASE_GRANT, ann, 0, &old), 34);
    assert_held(ask(provider, LEASE_GRANT, bob, 0, &old), 34, 1000);
    now_ms += 1000; /* its time is over before the store has it */
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &old), 35);
}

PROVIDER_TEST(a_lease_given_back_is_free_before_the_store_knows)
{
    struct lease_call call = ask(provider, LEASE_GRANT, ann, 0, NULL);

    assert_int_equal(call.answer, LEASE_GRANTED);
    const struct lease_record record = remembered(THIS_RUN, call.answer_token, 1000);
    assert_free(ask(provider, LEASE_RELEASE, ann, record.token, &record));
    assert_granted(ask(provider, LEASE_GRANT, bob, 0, &record), record.token + 1);
}

/* A million leases held at once, and what is left of them afterwards. */
PROVIDER_TEST(memory_follows_the_number_of_held_leases)
{
    enum { LEASES = 1000000 };
    char name[32];
    size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;

    for (int i = 0; i < LEASES; i++) {
        struct lease_call call = {.verb = LEASE_GRANT, .ttl_ms = 1000, .done = ignore_answer};
        snprintf(name, sizeof name, "inventory:%08d", i);
        memcpy(call.nonce, ann, sizeof ann);
        call.resource = bytes_of(name);
        lease_ask(provider, &call);
        assert_int_equal(call.answer, LEASE_GRANTED);
    }
    size_t each = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / LEASES;
    print_message("%zu bytes for each held lease\n", each);
    if (each == 0)
        skip(); /* an allocator that does not count (a sanitizer's) */
    assert_true(each < 160);

    now_ms += 1000;
    for (int i = 0; i < LEASES / 4 + 1; i++)
        ask(provider, LEASE_QUERY, "", 0, NULL);
    size_t left = (mallinfo2().uordblks + mallinfo2().hblkhd - before) / LEASES;
    assert_true(left < 20); /* the heap's array stays */
}
