/* SPDX-License-Identifier: Apache-2.0 */
/* Leases that another daemon has a hand in: it lets them go, takes them over or renews them, and
 * this one hears of it early, late, or not at all. */
#include "tests/unit/engine/says.h"

WORLD_TEST(news_of_a_release_elsewhere_wakes_who_waits)
{
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "k", 0, 60000), LEASE_GRANTED);
    assert_says(world, 1, "ACQUIRE k 1000 WAIT 30000", "");
    assert_int_equal(asked_elsewhere(world, LEASE_RELEASE, "k", 1, 60000), LEASE_FREE);
    world_settle(world); /* no time has passed */
    assert_heard(world, 1, GRANT(2, 1000));
}

/* It hears of the release before the answer, which says that the lease is held. */
WORLD_TEST(news_that_overtake_an_answer_are_not_forgotten)
{
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "k", 0, 60000), LEASE_GRANTED);
    lease_service_set_late(world->service, -1);
    assert_says(world, 1, "ACQUIRE k 1000 WAIT 30000", "");
    assert_int_equal(asked_elsewhere(world, LEASE_RELEASE, "k", 1, 0), LEASE_FREE);
    assert_says(world, 1, "", "");
    lease_service_set_late(world->service, 0);
    assert_heard(world, 1, GRANT(2, 1000));
}

/* Its holder was not told before: another daemon let it go. */
WORLD_TEST(a_lease_that_passed_to_another_unseen_is_told_as_lost)
{
    world_call(world, 1, "HELLO 3");
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", GRANT(1, 60000));
    lease_service_lose_news(world->service, true);
    assert_int_equal(asked_elsewhere(world, LEASE_RELEASE, "k", 1, 60000), LEASE_FREE);
    assert_says(world, 2, "ACQUIRE k 1000", GRANT(2, 1000));
    assert_heard(world, 1, ">4\r\n$13\r\nstockade:lost\r\n$1\r\nk\r\n:1\r\n$5\r\ntaken\r\n");
    assert_int_equal(world_counter(world, "leases_expired"), 1);
}

/* Its token is dead, whatever lock is left. */
WORLD_TEST(a_revoked_lease_whose_lock_is_left_is_shown_as_free)
{
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", GRANT(1, 60000));
    lease_service_set_down(world->service, "test");
    assert_says(world, 2, "REVOKE k", ":1\r\n");
    lease_service_set_down(world->service, NULL);
    assert_says(world, 2, "ACQUIRE k 1000", NOBODY);
    assert_begins(world, 2, "LEASE k", "*12\r\n$5\r\nstate\r\n$4\r\nfree\r\n");
}

/* Each daemon numbers its connections from 1. */
WORLD_TEST(a_lease_that_another_daemon_renews_is_no_longer_of_the_connection_it_had)
{
    assert_says(world, 1, "ACQUIRE r 10000", GRANT(1, 10000));
    store_memory_set_session(world->store, 2);
    world_restart_engine(world, 0);
    assert_begins(world, 1, "RENEW r 1 10000", ":");
    world_send(world, 1, "ACQUIRE r 1000 WAIT 100"); /* it waits for another, not for itself */
    world_pass(world, 200);
    assert_heard(world, 1, NOBODY);
}

/* Its connection has the number that the new holder's has at the other daemon. */
WORLD_TEST(an_ephemeral_lease_that_moved_to_another_daemon_outlives_its_connection)
{
    assert_says(world, 1, "ACQUIRE r 10000 EPHEMERAL", GRANT(1, 10000));
    store_memory_set_session(world->store, 2); /* so the row is not this daemon's any more */
    leave(world, 1);
    assert_says(world, 2, "FENCED 1 SET r x", "+OK\r\n");
}
