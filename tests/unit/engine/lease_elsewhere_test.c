/* SPDX-License-Identifier: Apache-2.0 */
/* Leases that another daemon has a hand in: it lets them go, takes them over or renews them, and
 * this one hears of it early, late, or not at all. */
#include "tests/unit/engine/says.h"

#include <string.h>

#define STATE(state, token, owner)                                                                 \
    "*12\r\n$5\r\nstate\r\n$4\r\n" state "\r\n$5\r\ntoken\r\n:" #token                             \
    "\r\n$5\r\nowner\r\n$" owner "\r\n$6\r\nttl_ms\r\n"
#define FREE(token)           STATE("free", token, "-1")
#define HELD_BY(owner, token) STATE("held", token, owner)
#define HELD_BY_NOBODY(token) HELD_BY("-1", token)
#define GRANTED               "*2\r\n:"

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

/* Its token is dead, and nobody is granted it while its lock is left. */
WORLD_TEST(a_revoked_lease_whose_lock_is_left_is_held_by_nobody_known)
{
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", GRANT(1, 60000));
    lease_service_set_down(world->service, "test");
    assert_says(world, 2, "REVOKE k", ":1\r\n");
    lease_service_set_down(world->service, NULL);
    assert_says(world, 2, "ACQUIRE k 1000", NOBODY);
    assert_begins(world, 2, "LEASE k", HELD_BY_NOBODY(1));
    assert_begins(world, 1, "RENEW k 1 1000", "-STALE ");
}

/* What each command says of a lease, for each state of its row and of its lock. The lock: none, the
 * newest grant's, or one of a grant that the store never saw (its daemon has died in between). */

enum lock { LOCK_NONE, LOCK_NEWEST, LOCK_UNSEEN };

static const struct {
    const char *row; /* commands that bring it about; the token is 1, its owner "you" */
    enum lock lock;
    const char *lease, *acquire, *reenter, *write, *renew;
} told[] = {
    {"", LOCK_NONE, NIL, GRANTED, GRANTED, "-UNKNOWN ", "-UNKNOWN "},
    {"", LOCK_UNSEEN, NIL, NOBODY, NOBODY, "-UNKNOWN ", "-UNKNOWN "},
    {"held", LOCK_NEWEST, HELD_BY("3\r\nyou", 1), NOBODY, GRANT(1, 1000), "+OK", ":1000"},
    {"expired", LOCK_NONE, FREE(1), GRANT(2, 1000), GRANT(2, 1000), "+OK", ":1000"},
    {"expired", LOCK_UNSEEN, HELD_BY_NOBODY(1), NOBODY, NOBODY, "+OK", "-BUSY the lease has run"},
    {"released", LOCK_NONE, FREE(1), GRANT(2, 1000), GRANT(2, 1000), "-STALE ", "-STALE "},
    {"released", LOCK_UNSEEN, HELD_BY_NOBODY(1), NOBODY, NOBODY, "-STALE ", "-STALE "},
    {"revoked", LOCK_NEWEST, HELD_BY_NOBODY(1), NOBODY, GRANT(2, 1000), "-STALE ", "-STALE "},
};

static void bring_about(struct world *world, const char *row, enum lock lock)
{
    if (strcmp(row, "") != 0)
        assert_begins(world, 1, "ACQUIRE k 1000 OWNER you", "*2\r\n:1\r\n");
    if (strcmp(row, "expired") == 0)
        world_pass(world, 1001);
    if (strcmp(row, "revoked") == 0) {
        lease_service_set_down(world->service, "test"); /* it is to be told yet */
        assert_says(world, 2, "REVOKE k", ":1\r\n");
        lease_service_set_down(world->service, NULL);
    }
    if (strcmp(row, "released") == 0)
        assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    if (lock == LOCK_UNSEEN)
        assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "k", 0, 60000), LEASE_GRANTED);
}

WORLD_TEST(all_commands_say_the_same_of_a_lease)
{
    for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
        const struct {
            const char *line, *reply;
        } asked[] = {
            {"LEASE k", told[i].lease},
            {"FENCED 1 SET k x", told[i].write},
            {"RENEW k 1 1000", told[i].renew},
            {"ACQUIRE k 1000", told[i].acquire},
            {"ACQUIRE k 1000 OWNER you", told[i].reenter},
            {"ACQUIREALL 1000 1 k", told[i].acquire[1] == '2' ? "*1\r\n" : NOBODY},
        };
        for (size_t j = 0; j < sizeof asked / sizeof *asked; j++) {
            world_renew(world, NULL);
            bring_about(world, told[i].row, told[i].lock);
            assert_begins(world, 1, asked[j].line, asked[j].reply);
        }
        /* What is held is shown so by its owner, too. */
        world_renew(world, NULL);
        bring_about(world, told[i].row, told[i].lock);
        assert_begins(world, 1, "LEASE k OWNER you",
                      told[i].lock == LOCK_NEWEST && strcmp(told[i].row, "held") == 0 ? "*12"
                                                                                      : NIL);
    }
}

WORLD_TEST(a_lease_whose_lock_was_an_unseen_grants_is_taken_back_when_that_is_over)
{
    assert_says(world, 1, "ACQUIRE k 1000", GRANT(1, 1000));
    world_pass(world, 1001);
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "k", 0, 5000), LEASE_GRANTED);
    assert_begins(world, 1, "RENEW k 1 1000", "-BUSY ");
    assert_in_range(lease_says(world, "k", "ttl_ms"), 4000, 5000);
    world_pass(world, 5001);
    assert_says(world, 1, "RENEW k 1 1000", ":1000\r\n");
    assert_int_equal(lease_says(world, "k", "held"), 1);
}

/* Each daemon numbers its connections from 1. */
WORLD_TEST(a_lease_that_another_daemon_renews_is_no_longer_of_the_connection_it_had)
{
    assert_says(world, 1, "ACQUIRE r 10000", GRANT(1, 10000));
    store_memory_set_opening(world->store, 2);
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
    store_memory_set_opening(world->store, 2); /* so the row is not this daemon's any more */
    leave(world, 1);
    assert_says(world, 2, "FENCED 1 SET r x", "+OK\r\n");
}
