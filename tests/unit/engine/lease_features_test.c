/* SPDX-License-Identifier: Apache-2.0 */
/* IDs on lease commands, leases tied to a connection, and what is known of
 * leases that end by themselves. */
#include "proxy/engine/lease/lease.h"
#include "tests/unit/engine/says.h"

WORLD_TEST(an_acquire_repeated_with_its_id_is_not_counted_twice)
{
    assert_says(world, 1, "ACQUIRE r 1000 ID x", GRANT(1, 1000));
    assert_says(world, 1, "ACQUIRE r 1000 ID x", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE r 1000 ID x", GRANT(1, 1000)); /* another connection */
    assert_int_equal(lease_says(world, "r", "holds"), 1);
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_begins(world, 1, "ACQUIRE r 1000 ID x", "-STALE ");
    assert_says(world, 1, "ACQUIRE r 1000 ID y", GRANT(2, 1000));
}

WORLD_TEST(reentry_counts_once_for_each_id)
{
    assert_says(world, 1, "ACQUIRE r 1000 OWNER me ID x", GRANT(1, 1000));
    assert_says(world, 1, "ACQUIRE r 1000 OWNER me ID y", GRANT(1, 1000));
    assert_says(world, 1, "ACQUIRE r 1000 OWNER me ID y", GRANT(1, 1000));
    assert_int_equal(lease_says(world, "r", "holds"), 2);
    assert_begins(world, 1, "ACQUIRE r 1000 OWNER you ID y", "-ERR this ID was used");
    assert_begins(world, 1, "FENCED 1 ID y SET r 1", "-ERR this ID was used");
}

WORLD_TEST(a_release_repeated_with_its_id_is_not_counted_twice)
{
    assert_says(world, 1, "ACQUIRE r 1000 OWNER me", GRANT(1, 1000));
    assert_says(world, 1, "ACQUIRE r 1000 OWNER me", GRANT(1, 1000));
    assert_says(world, 1, "RELEASE r 1 ID a", ":1\r\n");
    assert_says(world, 1, "RELEASE r 1 ID a", ":1\r\n");
    assert_int_equal(lease_says(world, "r", "holds"), 1);
    assert_says(world, 1, "RELEASE r 1 ID b", ":0\r\n");
    assert_says(world, 2, "ACQUIRE r 1000", GRANT(2, 1000));
    assert_says(world, 1, "RELEASE r 1 ID b", ":0\r\n"); /* the other's lease is not touched */
    assert_int_equal(lease_says(world, "r", "holds"), 1);
    assert_begins(world, 1, "RELEASE r 1 ID", "-ERR ");
    assert_begins(world, 1, "FENCED 2 ID b SET r 1", "-ERR this ID was used");
}

WORLD_TEST(a_release_under_another_token_is_no_repeat)
{
    assert_says(world, 1, "ACQUIRE r 1000", GRANT(1, 1000));
    assert_says(world, 1, "RELEASE r 1 ID z", ":0\r\n");
    assert_says(world, 1, "ACQUIRE r 1000", GRANT(2, 1000));
    assert_begins(world, 1, "RELEASE r 2 ID z", "-ERR this ID was used for another command");
    assert_says(world, 1, "RELEASE r 1 ID z", ":0\r\n"); /* the repeat */
    assert_int_equal(lease_says(world, "r", "holds"), 1);
    assert_says(world, 1, "RELEASE r 2 ID y", ":0\r\n");
}

WORLD_TEST(a_repeat_finds_its_lease_though_its_lock_is_gone)
{
    assert_says(world, 1, "ACQUIRE r 1000 ID x", GRANT(1, 1000));
    world_pass(world, 2000); /* nobody took it */
    assert_says(world, 1, "ACQUIRE r 1000 ID x", GRANT(2, 1000));
}

WORLD_TEST(a_repeat_finds_its_lease_though_the_lease_service_has_lost_it)
{
    assert_says(world, 1, "ACQUIRE r 1000 ID x", GRANT(1, 1000));
    lease_service_lose_all(world->service);
    world_pass(world, 400);
    assert_says(world, 2, "ACQUIRE r 1000 ID x", GRANT(1, 1000));
    assert_int_equal(lease_says(world, "r", "holds"), 1);
    assert_says(world, 3, "ACQUIRE r 1000", NOBODY); /* its lock stands again */
    assert_says(world, 1, "FENCED 1 SET r x", "+OK\r\n");
}

WORLD_TEST(a_repeat_does_not_take_back_what_another_has)
{
    assert_says(world, 1, "ACQUIRE r 1000 ID x", GRANT(1, 1000));
    lease_service_lose_all(world->service);
    assert_says(world, 2, "ACQUIRE r 1000", GRANT(2, 1000));
    assert_begins(world, 1, "ACQUIRE r 1000 ID x", "-STALE ");
}

WORLD_TEST(two_waiting_twins_get_one_lease)
{
    assert_says(world, 1, "ACQUIRE r 1000", GRANT(1, 1000));
    world_send(world, 2, "ACQUIRE r 10000 WAIT 5000 ID x");
    world_send(world, 3, "ACQUIRE r 10000 WAIT 5000 ID x");
    assert_says(world, 1, "RELEASE r 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 10000));
    world_pass(world, 1100);
    assert_heard(world, 3, GRANT(2, 10000));
    assert_int_equal(lease_says(world, "r", "holds"), 1);
}

/* It counted nothing, so it has nothing to give back. */
WORLD_TEST(a_repeat_that_comes_too_late_leaves_the_lease_alone)
{
    assert_says(world, 1, "ACQUIRE r 10000 ID x", GRANT(1, 10000));
    lease_service_set_late(world->service, 50);
    world_send(world, 2, "ACQUIRE r 40 ID x");
    world_pass(world, 100);
    assert_heard(world, 2, NOBODY);
    lease_service_set_late(world->service, 0);
    assert_says(world, 1, "FENCED 1 SET r x", "+OK\r\n");
}

/* The first one's lease runs out on its way, and is the repeat's by then. */
WORLD_TEST(a_lease_that_was_repeated_is_not_given_back)
{
    lease_service_set_late(world->service, 50);
    world_send(world, 1, "ACQUIRE r 40 OWNER me ID x");
    world_send(world, 2, "ACQUIRE r 10000 OWNER me ID x");
    world_pass(world, 100);
    lease_service_set_late(world->service, 0);
    assert_heard(world, 1, NOBODY);
    assert_heard(world, 2, GRANT(1, 9950));
    assert_says(world, 2, "FENCED 1 SET r x", "+OK\r\n");
    assert_says(world, 2, "RELEASE r 1", ":0\r\n");
}

WORLD_TEST(an_ephemeral_lease_ends_with_its_connection)
{
    assert_says(world, 1, "ACQUIRE r 10000 EPHEMERAL", GRANT(1, 10000));
    assert_says(world, 1, "ACQUIRE plain 10000", GRANT(1, 10000));
    world_send(world, 2, "ACQUIRE r 10000 WAIT 5000");
    leave(world, 1);
    assert_heard(world, 2, GRANT(2, 10000));
    assert_begins(world, 2, "FENCED 1 SET r x", "-STALE ");
    assert_int_equal(lease_says(world, "plain", "holds"), 1);
}

WORLD_TEST(an_ephemeral_lease_of_several_holds_ends_at_once)
{
    assert_says(world, 1, "ACQUIRE r 10000 OWNER me EPHEMERAL", GRANT(1, 10000));
    assert_says(world, 1, "ACQUIRE r 10000 OWNER me EPHEMERAL", GRANT(1, 10000));
    leave(world, 1);
    assert_says(world, 2, "ACQUIRE r 10000", GRANT(2, 10000));
}

WORLD_TEST(a_repeat_moves_an_ephemeral_lease_to_its_connection)
{
    assert_says(world, 1, "ACQUIRE r 10000 EPHEMERAL ID x", GRANT(1, 10000));
    assert_says(world, 2, "ACQUIRE r 10000 EPHEMERAL ID x", GRANT(1, 10000));
    leave(world, 1);
    assert_says(world, 2, "FENCED 1 SET r x", "+OK\r\n");
    leave(world, 2);
    assert_says(world, 3, "ACQUIRE r 10000", GRANT(2, 10000));
}

WORLD_TEST(a_lease_that_ends_by_itself_is_noticed)
{
    assert_says(world, 1, "ACQUIRE r 1000", GRANT(1, 1000));
    world_pass(world, 900);
    assert_says(world, 1, "RENEW r 1 1000", ":1000\r\n");
    world_pass(world, 900);
    assert_int_equal(world_counter(world, "leases_expired"), 0);
    world_pass(world, 200);
    assert_int_equal(world_counter(world, "leases_expired"), 1);
}

/* Another daemon renews it: that is found out when it should be over here. */
WORLD_TEST(a_lease_renewed_elsewhere_ends_when_that_is_over)
{
    assert_says(world, 1, "ACQUIRE k 100 OWNER me", GRANT(1, 100));
    assert_int_equal(asked_elsewhere(world, LEASE_RENEW, "k", 1, 500), LEASE_GRANTED);
    world_pass(world, 400);
    assert_int_equal(world_counter(world, "leases_expired"), 0);
    world_pass(world, 200);
    assert_int_equal(world_counter(world, "leases_expired"), 1);
}

static void fill_with_1e(const struct chance *chance, void *bytes, size_t len)
{
    (void)chance;
    memset(bytes, 0x1e, len);
}

/* Two owners never share one by accident: all of the 128 bits count. */
WORLD_TEST(an_owners_nonce_has_all_the_bits_that_chance_gave)
{
    const struct chance chance = {.fill = fill_with_1e};
    char nonce[LEASE_NONCE_LEN + 1];

    chance_hex(&chance, nonce, LEASE_NONCE_LEN);
    assert_string_equal(nonce, "1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e1e");
}
