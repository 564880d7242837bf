/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIREALL: baskets of leases, all or none, whoever asks again, is lost or fails meanwhile. */
#include "proxy/engine/lease/lease.h"
#include "tests/unit/engine/says.h"

WORLD_TEST(a_basket_is_taken_whole_in_the_order_asked)
{
    assert_says(world, 1, "ACQUIRE b 1000", GRANT(1, 1000));
    assert_says(world, 1, "RELEASE b 1", ":0\r\n");
    assert_says(world, 1, "ACQUIREALL 1000 3 c b a", "*3\r\n:1\r\n:2\r\n:1\r\n");
    assert_says(world, 1, "FENCEDALL 3 c 1 b 2 a 1 MSET a 1 b 2 c 3", "+OK\r\n");
}

WORLD_TEST(a_basket_with_one_taken_is_not_taken_at_all)
{
    assert_says(world, 1, "ACQUIRE b 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIREALL 1000 3 a b c", NOBODY);
    assert_says(world, 3, "ACQUIRE a 1000", GRANT(2, 1000)); /* 1 was given back */
    assert_says(world, 3, "ACQUIRE c 1000", GRANT(1, 1000));
}

WORLD_TEST(crossing_baskets_never_deadlock)
{
    assert_says(world, 9, "ACQUIRE a 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 5000 2 a b WAIT 60000");
    world_send(world, 2, "ACQUIREALL 5000 2 b a WAIT 60000");
    assert_says(world, 9, "RELEASE a 1", ":0\r\n");
    assert_heard(world, 1, "*2\r\n:2\r\n:1\r\n");
    assert_heard(world, 2, "");
    assert_says(world, 1, "RELEASE a 2", ":0\r\n");
    assert_says(world, 1, "RELEASE b 1", ":0\r\n");
    assert_heard(world, 2, "*2\r\n:2\r\n:3\r\n");
}

WORLD_TEST(what_a_waiting_basket_has_is_kept_alive)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 30000");
    world_pass(world, 10000);
    assert_says(world, 2, "ACQUIRE a 1000", NOBODY);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_heard(world, 1, "*2\r\n:1\r\n:2\r\n");
    world_pass(world, 900); /* both are fresh */
    assert_says(world, 2, "ACQUIRE a 1000", NOBODY);
}

/* It waited for less than the third of its TTL after which it renews what it has. */
WORLD_TEST(a_basket_that_took_its_time_is_fresh_when_it_is_handed_out)
{
    assert_says(world, 9, "ACQUIRE c 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 3 a b c WAIT 30000");
    world_pass(world, 300);
    assert_says(world, 9, "RELEASE c 1", ":0\r\n");
    assert_heard(world, 1, "*3\r\n:1\r\n:1\r\n:2\r\n");
    assert_in_range(lease_says(world, "a", "ttl_ms"), 990, 1000);
    assert_in_range(lease_says(world, "b", "ttl_ms"), 990, 1000);
    assert_in_range(lease_says(world, "c", "ttl_ms"), 990, 1000);
}

WORLD_TEST(a_basket_whose_time_is_up_gives_all_back)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 3000");
    world_pass(world, 3100);
    assert_heard(world, 1, NOBODY);
    assert_says(world, 2, "ACQUIRE a 1000", GRANT(2, 1000));
}

WORLD_TEST(a_basket_whose_client_is_gone_gives_all_back)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 30000");
    leave(world, 1);
    assert_says(world, 2, "ACQUIRE a 1000", GRANT(2, 1000));
}

WORLD_TEST(a_basket_whose_client_goes_while_it_is_renewed_gives_all_back)
{
    assert_says(world, 9, "ACQUIRE c 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 900 3 a b c WAIT 30000");
    world_pass(world, 200);
    lease_service_set_late(world->service, 50);
    world_send(world, 9, "RELEASE c 1");
    world_pass(world, 120); /* it has c now; a is being renewed, b is next */
    world_disconnect(world, 1);
    world_pass(world, 400);
    lease_service_set_late(world->service, 0);
    assert_says(world, 2, "ACQUIRE a 1000", GRANT(2, 1000));
    assert_says(world, 2, "ACQUIRE b 1000", GRANT(2, 1000));
}

WORLD_TEST(a_basket_that_loses_a_lease_while_it_waits_begins_anew)
{
    assert_says(world, 9, "ACQUIRE c 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 3 a b c WAIT 30000");
    assert_says(world, 9, "REVOKE a", ":1\r\n");
    world_pass(world, 400);
    assert_heard(world, 1, "");
    assert_says(world, 9, "RELEASE c 1", ":0\r\n");
    assert_heard(world, 1, "*3\r\n:2\r\n:2\r\n:2\r\n");
}

WORLD_TEST(a_basket_whose_lease_service_dies_gives_back_what_it_can)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 30000");
    lease_service_set_down(world->service, "test");
    world_pass(world, 400);
    assert_heard_begins(world, 1, "-LEASEDOWN ");
    lease_service_set_down(world->service, NULL);
    world_pass(world, 1100); /* the lock stands until its TTL, its token is retired at once */
    assert_begins(world, 1, "FENCED 1 SET a late", "-STALE ");
    assert_says(world, 2, "ACQUIRE a 1000", GRANT(2, 1000));
}

WORLD_TEST(a_basket_meets_a_daemon_that_stops)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 30000");
    engine_drain(world->engine);
    assert_heard_begins(world, 1, "-BUSY ");
    assert_true(engine_idle(world->engine));
}

WORLD_TEST(an_ephemeral_basket_ends_with_its_connection)
{
    assert_says(world, 1, "ACQUIREALL 1000 2 a b EPHEMERAL", "*2\r\n:1\r\n:1\r\n");
    leave(world, 1);
    assert_says(world, 2, "LEASES", "*0\r\n");
    assert_says(world, 2, "ACQUIREALL 1000 2 a b", "*2\r\n:2\r\n:2\r\n");
}

WORLD_TEST(a_baskets_repeat_counts_nothing)
{
    assert_says(world, 1, "ACQUIREALL 1000 2 a b ID x OWNER me", "*2\r\n:1\r\n:1\r\n");
    assert_says(world, 2, "ACQUIREALL 1000 2 a b ID x OWNER me", "*2\r\n:1\r\n:1\r\n");
    assert_int_equal(lease_says(world, "a", "holds"), 1);
    assert_int_equal(lease_says(world, "b", "holds"), 1);
}

/* Each token that a basket was answered is good at that moment, and its reply is what was said. */
static void assert_whole(struct world *world, int client, const char *reply, const char *set)
{
    assert_heard(world, client, reply);
    assert_says(world, client, set, "+OK\r\n");
}

WORLD_TEST(a_repeated_basket_is_whole_though_the_first_ones_client_is_gone)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_disconnect(world, 1);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_whole(world, 2, "*2\r\n:2\r\n:2\r\n", "FENCEDALL 2 a 2 b 2 MSET a 1 b 1");
}

WORLD_TEST(a_repeated_basket_is_whole_though_the_first_ones_time_is_up)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 1000 ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_pass(world, 1100);
    assert_heard(world, 1, NOBODY);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_whole(world, 2, "*2\r\n:2\r\n:2\r\n", "FENCEDALL 2 a 2 b 2 MSET a 1 b 1");
}

WORLD_TEST(a_basket_is_whole_though_its_repeat_was_given_up)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_disconnect(world, 2);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_whole(world, 1, "*2\r\n:1\r\n:2\r\n", "FENCEDALL 2 a 1 b 2 MSET a 1 b 1");
}

WORLD_TEST(waiting_twins_of_a_basket_get_one_basket_and_an_owners_count_once)
{
    static const char *const lines[] = {"ACQUIREALL 60000 2 a b WAIT 20000 ID x",
                                        "ACQUIREALL 60000 2 a b WAIT 20000 OWNER me ID x"};

    for (int i = 0; i < 2; i++) {
        world_renew(world, NULL);
        assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
        world_send(world, 1, lines[i]);
        world_send(world, 2, lines[i]);
        assert_says(world, 9, "RELEASE b 1", ":0\r\n");
        assert_whole(world, 1, "*2\r\n:1\r\n:2\r\n", "FENCEDALL 2 a 1 b 2 MSET a 1 b 1");
        world_pass(world, 1100);
        assert_whole(world, 2, "*2\r\n:1\r\n:2\r\n", "FENCEDALL 2 a 1 b 2 MSET a 2 b 2");
        assert_int_equal(lease_says(world, "a", "holds"), 1);
        assert_int_equal(lease_says(world, "b", "holds"), 1);
    }
}

WORLD_TEST(a_twin_whose_basket_was_released_in_part_gets_none)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 20000 OWNER me ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 20000 OWNER me ID x");
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_whole(world, 1, "*2\r\n:1\r\n:2\r\n", "FENCEDALL 2 a 1 b 2 MSET a 1 b 1");
    assert_says(world, 1, "RELEASE a 1", ":1\r\n");
    world_pass(world, 1100);
    assert_heard_begins(world, 2, "-STALE ");
    assert_says(world, 3, "ACQUIRE a 60000", GRANT(2, 60000));
    assert_int_equal(lease_says(world, "b", "holds"), 1);
}

WORLD_TEST(an_owners_other_hold_stays_when_his_basket_fails)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 20000 OWNER me ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 20000 OWNER me ID x");
    assert_says(world, 3, "ACQUIRE a 60000 OWNER me", GRANT(1, 60000));
    leave(world, 1);
    assert_int_equal(lease_says(world, "a", "holds"), 2);
    leave(world, 2);
    assert_int_equal(lease_says(world, "a", "holds"), 1);
    assert_says(world, 3, "RELEASE a 1", ":0\r\n");
}

WORLD_TEST(twins_of_a_basket_that_both_fail_leave_nothing_held)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 1000 ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 2000 ID x");
    world_pass(world, 2100);
    assert_heard(world, 1, NOBODY);
    assert_heard(world, 2, NOBODY);
    assert_says(world, 3, "ACQUIRE a 60000", GRANT(3, 60000));
}

WORLD_TEST(a_baskets_repeat_that_fails_leaves_it_alone)
{
    assert_says(world, 1, "ACQUIREALL 60000 2 a b ID x", "*2\r\n:1\r\n:1\r\n");
    lease_service_set_late(world->service, 50);
    world_send(world, 2, "ACQUIREALL 60000 2 a b ID x");
    world_pass(world, 70); /* it has entered a again, and asks for b */
    world_disconnect(world, 2);
    world_pass(world, 300);
    lease_service_set_late(world->service, 0);
    assert_says(world, 1, "FENCEDALL 2 a 1 b 1 MSET a 1 b 1", "+OK\r\n");
    assert_says(world, 3, "ACQUIRE a 60000", NOBODY);
}

WORLD_TEST(a_basket_that_lost_a_lease_just_now_begins_anew)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 20000");
    assert_says(world, 9, "REVOKE a", ":1\r\n");
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_whole(world, 1, "*2\r\n:2\r\n:3\r\n", "FENCEDALL 2 a 2 b 3 MSET a x b x");
}

WORLD_TEST(an_id_names_a_basket_with_its_resources)
{
    assert_says(world, 1, "ACQUIREALL 60000 2 a b ID x", "*2\r\n:1\r\n:1\r\n");
    assert_says(world, 1, "ACQUIREALL 60000 2 b a ID x", "*2\r\n:1\r\n:1\r\n");
    assert_begins(world, 1, "ACQUIREALL 60000 2 a c ID x", "-ERR this ID was used");
    assert_begins(world, 1, "ACQUIRE a 60000 ID x", "-ERR this ID was used");
    assert_says(world, 2, "ACQUIRE c 60000 ID x", GRANT(1, 60000)); /* nothing is left of it */
    assert_begins(world, 1, "ACQUIREALL 60000 2 c d ID x", "-ERR this ID was used");
}

WORLD_TEST(a_malformed_basket_is_an_error)
{
    static const char *const wrong[] = {
        "ACQUIREALL 1000 0 a",   "ACQUIREALL 1000 2 a",
        "ACQUIREALL 1000 2 a a", "ACQUIREALL 9 1 a",
        "ACQUIREALL 1000 257 a", "ACQUIREALL 1000 1 a WAIT",
        "ACQUIREALL 1000 1 a b", "ACQUIREALL 1000 1 a OWNER x ID",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_begins(world, 1, wrong[i], "-ERR ");
    assert_says(world, 1, "LEASES", "*0\r\n");
}
