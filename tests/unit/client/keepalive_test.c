/* SPDX-License-Identifier: Apache-2.0 */
/* The renewer, with a server that answers as the test says: what it does about replies that are
 * late, refusals, for somebody else, or not asked for. */
#include <sys/resource.h>

#include "tests/unit/client/rig.h"

/* The PING and the grant come before. */
enum { FIRST_RENEWAL = 2 };
#define TTL  "600000"
#define LOST "*4\r\n$13\r\nstockade:lost\r\n$1\r\nr\r\n:7\r\n$7\r\nrevoked\r\n"

SCRIPT_TEST(news_of_a_loss_bring_the_next_renewal_forward)
{
    struct loss loss = {0};
    char seen[256];

    stk_client *client =
        script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:" TTL "\r\n", ":" TTL "\r\n" LOST,
                    ":" TTL "\r\n" LOST, "-STALE revoked\r\n");
    stk_lease *lease = rig_acquire_watched(client, 600000, &loss);
    await(atomic_load(&loss.calls) > 0);
    assert_int_equal(atomic_load(&loss.why), STK_STALE);
    script_request(script, FIRST_RENEWAL, seen);
    assert_string_equal(seen, "RENEW r 7 " TTL " NOTIFY");
    assert_int_equal(script_used(script), FIRST_RENEWAL + 3);
    stk_lease_free(lease);
}

SCRIPT_TEST(what_nobody_asked_for_ends_the_renewers_connection_and_no_lease)
{
    struct loss loss = {0};

    stk_client *client = script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:3000\r\n",
                                     ":3000\r\n:7\r\n", ":3000\r\n");
    stk_lease *lease = rig_acquire_watched(client, 3000, &loss);
    await(script_used(script) == FIRST_RENEWAL + 2);
    assert_true(stk_lease_valid(lease));
    assert_int_equal(atomic_load(&loss.calls), 0);
    assert_int_equal(script_connections(script), 3); /* the client's, the renewer's two */
    stk_lease_free(lease);
}

/* When one renewal of a basket is refused, the replies to the others are still on their way. */
SCRIPT_TEST(a_late_reply_to_the_round_before_renews_nothing)
{
    static const char *const names[] = {"r", "s"};
    struct loss loss = {0};
    const stk_lease_options options = {.ttl_ms = 600000, .lost = rig_on_lost, .context = &loss};
    stk_lease *basket;

    stk_client *client =
        script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:8\r\n", /* the basket */
                    "-BUSY try again\r\n", "", /* the first round: r, and s not yet */
                    ":" TTL "\r\n:" TTL "\r\n", "-STALE over\r\n",
                    /* s after all; the second: r, s */);
    ok(stk_acquire_all(client, names, 2, &options, &basket));
    await(atomic_load(&loss.calls) > 0);
    assert_int_equal(atomic_load(&loss.why), STK_STALE);
    assert_int_equal(script_used(script), FIRST_RENEWAL + 4);
    stk_lease_free(basket);
}

/* The daemon counts from when it got the request, perhaps long before its answer arrives. */
SCRIPT_TEST(a_renewal_counts_from_when_it_was_asked_for)
{
    stk_client *client = script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:" TTL "\r\n",
                                     "", /* the renewal, not answered yet */
                                     "*2\r\n:8\r\n:" TTL "\r\n", ":" TTL "\r\n:" TTL "\r\n",
                                     /* both renewals */);
    stk_lease *lease = rig_acquire(client, "r", 600000);
    int64_t until_ms = rig_until_ms(lease);
    await(script_used(script) == FIRST_RENEWAL + 1);
    int64_t asked_ms = rig_now_ms(); /* or before */
    await(rig_now_ms() >= asked_ms + LATE_MS);
    stk_lease *other = rig_acquire(client, "s", 600000);
    await(rig_until_ms(lease) > until_ms + 50);
    assert_true(rig_until_ms(lease) <= asked_ms + 600000 - 6002 + 1);
    stk_lease_free(other);
    stk_lease_free(lease);
}

/* Its own renewal is forgotten; the replies stay in order. */
SCRIPT_TEST(a_lease_that_ends_takes_no_other_ones_renewal_with_it)
{
    stk_client *client = script_open(
        script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:" TTL "\r\n", "", /* the renewal, not answered yet */
        "*2\r\n:8\r\n:" TTL "\r\n", "",                         /* the same */
        "*2\r\n:9\r\n:" TTL "\r\n", ":" TTL "\r\n:" TTL "\r\n:" TTL "\r\n" /* all three */);
    stk_lease *lease = rig_acquire(client, "r", 600000);
    int64_t until_ms = rig_until_ms(lease);
    await(script_used(script) == FIRST_RENEWAL + 1);
    stk_lease *ended = rig_acquire(client, "s", 600000);
    await(script_used(script) == FIRST_RENEWAL + 3);
    stk_lease_free(ended);
    stk_lease *last = rig_acquire(client, "t", 600000);
    await(rig_until_ms(lease) > until_ms + 50);
    stk_lease_free(last);
    stk_lease_free(lease);
}

/* Its connection may lead nowhere. */
SCRIPT_TEST(a_renewal_without_an_answer_is_asked_again_on_another_connection)
{
    struct loss loss = {0};

    stk_client *client =
        script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:4000\r\n", "", /* silent */
                    ":4000\r\n");
    stk_lease *lease = rig_acquire_watched(client, 4000, &loss);
    await(script_used(script) == FIRST_RENEWAL + 2);
    assert_int_equal(atomic_load(&loss.calls), 0);
    assert_int_equal(script_connections(script), 3); /* the client's, the renewer's two */
    stk_lease_free(lease);
}

/* Nobody knows how long the grant was on its way. */
RIG_TEST(a_lease_that_was_waited_for_counts_from_a_renewal)
{
    enum { HELD_MS = 400, TTL_MS = 2000, MARGIN_MS = TTL_MS / 100 + 2 };
    const stk_lease_options held = {.ttl_ms = HELD_MS, .no_keep_alive = true};
    const stk_lease_options waited = {
        .ttl_ms = TTL_MS, .wait_ms = RIG_TIMEOUT_MS, .no_keep_alive = true};
    stk_client *other = rig_client(rig);
    stk_lease *before, *lease;

    int64_t held_ms = rig_now_ms();
    ok(stk_acquire(other, "r", &held, &before));
    ok(stk_acquire(rig->client, "r", &waited, &lease));
    int64_t until_ms = rig_until_ms(lease);
    assert_true(until_ms >= held_ms + HELD_MS + TTL_MS - MARGIN_MS - 1);
    stk_lease_free(before);
    stk_lease_free(lease);
    stk_client_close(other);
}

/* The daemon says what is left: less than the TTL where the lease service or the store was slow. */
SCRIPT_TEST(a_lease_is_good_for_as_long_as_its_renewal_told)
{
    stk_lease *lease;

    stk_client *client =
        script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:" TTL "\r\n", ":1000\r\n", ":900000\r\n");
    ok(stk_acquire(client, "r", &(stk_lease_options){.ttl_ms = 600000, .no_keep_alive = true},
                   &lease));
    ok(stk_renew(lease, 600000));
    assert_true(stk_lease_left_ms(lease) < 1000);
    ok(stk_renew(lease, 600000)); /* and never longer than it asked for */
    assert_in_range(stk_lease_left_ms(lease), 1000, 600000);
    stk_lease_free(lease);
}

/* A handle of two leases is good until the first one ends. */
SCRIPT_TEST(a_kept_basket_is_good_for_as_long_as_the_least_of_its_renewals_told)
{
    static const char *const resources[] = {"r", "s"};
    stk_lease *lease;

    stk_client *client =
        script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:8\r\n", ":" TTL "\r\n", ":300000\r\n");
    ok(stk_acquire_all(client, resources, 2, &(stk_lease_options){.ttl_ms = 600000}, &lease));
    assert_true(stk_lease_left_ms(lease) > 300000);
    await(stk_lease_left_ms(lease) < 300000);
    assert_true(stk_lease_valid(lease));
    stk_lease_free(lease);
}

/* Whether a thread still runs is read from a file. */
SCRIPT_TEST(a_program_without_descriptors_keeps_its_leases)
{
    struct loss loss = {0};
    struct rlimit before, none;

    stk_client *client = script_open(script, RIG_TIMEOUT_MS, "*2\r\n:7\r\n:3000\r\n", ":3000\r\n",
                                     ":3000\r\n", ":3000\r\n");
    stk_lease *lease = rig_acquire_watched(client, 3000, &loss);
    await(script_used(script) == FIRST_RENEWAL + 1);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    await(script_used(script) == FIRST_RENEWAL + 3 || atomic_load(&loss.calls) > 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(atomic_load(&loss.calls), 0);
    assert_true(stk_lease_valid(lease));
    stk_lease_free(lease);
}

/* Of a token that was granted elsewhere nobody here knows how long it is good for. */
SCRIPT_TEST(a_lease_from_elsewhere_is_kept_alive_after_its_first_renewal)
{
    stk_lease *lease;

    stk_client *client = script_open(script, RIG_TIMEOUT_MS, ":" TTL "\r\n", ":" TTL "\r\n");
    ok(stk_lease_use(client, "r", 7, &lease));
    assert_int_equal(stk_keep_alive(lease, true), STK_MISUSE);
    ok(stk_renew(lease, 600000));
    ok(stk_keep_alive(lease, true));
    await(script_used(script) == FIRST_RENEWAL + 1);
    assert_true(stk_lease_valid(lease));
    stk_lease_free(lease);
}
