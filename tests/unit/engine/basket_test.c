/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIREALL: baskets of leases, all or none, whoever asks again, is lost or fails meanwhile. */
#include <stdio.h>

#include "proxy/engine/lease/lease.h"
#include "tests/unit/engine/says.h"

/* Each token that a basket was answered is good at that moment, and its reply is what was said. */
static void assert_whole(struct world *world, int client, const char *reply, const char *set)
{
    assert_heard(world, client, reply);
    assert_says(world, client, set, "+OK\r\n");
}

WORLD_TEST(a_basket_is_taken_whole_in_the_order_asked)
{
    assert_says(world, 1, "ACQUIRE b 1000", GRANT(1, 1000));
    assert_says(world, 1, "RELEASE b 1", ":0\r\n");
    assert_says(world, 1, "ACQUIREALL 1000 3 c b a", "*3\r\n:1\r\n:2\r\n:1\r\n");
    assert_says(world, 1, "FENCEDALL 3 c 1 b 2 a 1 MSET a 1 b 2 c 3", "+OK\r\n");
}

EITHER_TEST(a_basket_with_one_taken_takes_nothing)
{
    assert_says(world, 1, "ACQUIRE b 1000", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIREALL 1000 3 a b c", NOBODY);
    assert_says(world, 3, "ACQUIRE a 1000", GRANT(1, 1000));
    assert_says(world, 3, "ACQUIRE c 1000", GRANT(1, 1000));
}

EITHER_TEST(a_basket_that_gets_null_fences_nobody)
{
    assert_says(world, 1, "ACQUIRE a 1000", GRANT(1, 1000));
    assert_says(world, 1, "ACQUIRE c 1000", GRANT(1, 1000));
    world_pass(world, 1100);
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIREALL 1000 3 a b c", NOBODY);
    assert_says(world, 2, "ACQUIREALL 1000 3 a b c OWNER me ID x", NOBODY);
    assert_says(world, 1, "FENCEDALL 2 a 1 c 1 MSET a 1 c 1", "+OK\r\n");
    assert_begins(world, 1, "RENEW a 1 1000", ":");
    assert_int_equal(lease_says(world, "c", "ttl_ms"), 0);
}

EITHER_TEST(a_basket_that_waits_holds_nothing)
{
    assert_says(world, 1, "ACQUIRE a 1000", GRANT(1, 1000));
    world_pass(world, 1100);
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 2, "ACQUIREALL 1000 2 a b WAIT 30000");
    assert_says(world, 1, "FENCED 1 SET a x", "+OK\r\n");
    for (int token = 2; token < 12; token++) {
        char release[32];
        snprintf(release, sizeof release, "RELEASE a %d", token);
        world_pass(world, 700);
        assert_begins(world, 3, "ACQUIRE a 1000", "*2\r\n");
        assert_says(world, 3, release, ":0\r\n");
    }
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_heard(world, 2, "*2\r\n:12\r\n:2\r\n");
}

EITHER_TEST(a_basket_that_waits_is_served_when_all_are_free_before_those_who_came_later)
{
    assert_says(world, 8, "ACQUIRE a 60000", GRANT(1, 60000));
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 30000");
    world_send(world, 2, "ACQUIRE a 60000 WAIT 30000");
    world_send(world, 3, "ACQUIRE b 60000 WAIT 30000");
    assert_says(world, 8, "RELEASE a 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 60000)); /* b is held: the basket lets it pass */
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_heard(world, 3, GRANT(2, 60000));
    world_send(world, 4, "ACQUIRE b 60000 WAIT 30000");
    assert_says(world, 2, "RELEASE a 2", ":0\r\n");
    assert_heard(world, 1, "");
    assert_says(world, 3, "RELEASE b 2", ":0\r\n");
    assert_heard(world, 1, "*2\r\n:3\r\n:3\r\n");
    assert_heard(world, 4, "");
    assert_says(world, 1, "RELEASE b 3", ":0\r\n");
    assert_heard(world, 4, GRANT(4, 60000));
}

/* Whom it lets pass in its other lines asks at once, and need not be woken by anybody. */
EITHER_TEST(a_basket_that_waits_leaves_nobody_behind_it_waiting)
{
    assert_says(world, 8, "ACQUIRE a 60000", GRANT(1, 60000));
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 30000");
    world_send(world, 2, "ACQUIREALL 60000 2 a c WAIT 30000");
    assert_says(world, 8, "RELEASE a 1", ":0\r\n");
    assert_heard(world, 2, "*2\r\n:2\r\n:1\r\n");
    assert_heard(world, 1, "");
}

WORLD_TEST(a_basket_waits_as_one_and_is_shown_where_it_waits)
{
    world->engine->options.user_limits.things[ACCOUNT_WAITERS] = 1;
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 3 a b c WAIT 30000");
    assert_int_equal(lease_says(world, "b", "waiters"), 1);
    assert_begins(world, 2, "WAITERS b", "*1\r\n");
    assert_begins(world, 2, "WAITERS a", "*0\r\n");
    assert_begins(world, 3, "ACQUIREALL 1000 2 d e", "-BUSY too many ACQUIREs");
    leave(world, 1);
    assert_begins(world, 2, "WAITERS b", "*0\r\n");
    assert_says(world, 3, "ACQUIREALL 1000 2 d e", "*2\r\n:1\r\n:1\r\n");
}

WORLD_TEST(a_basket_that_is_too_large_for_its_user_fences_nobody)
{
    assert_says(world, 1, "ACQUIRE a 1000", GRANT(1, 1000));
    world_pass(world, 1100);
    world->engine->options.user_limits.things[ACCOUNT_LEASES] = 3;
    assert_says(world, 9, "ACQUIRE x 60000 OWNER me", GRANT(1, 60000));
    assert_begins(world, 2, "ACQUIREALL 60000 3 a b c", "-BUSY too many leases");
    assert_says(world, 1, "FENCED 1 SET a x", "+OK\r\n");
    assert_says(world, 2, "ACQUIREALL 60000 3 b c x OWNER me", "*3\r\n:1\r\n:1\r\n:1\r\n");
    assert_begins(world, 2, "ACQUIREALL 60000 1 d", "-BUSY too many leases");
}

/* A daemon died between the service's grant and the store's commit, here or at a twin of it. */
WORLD_TEST(an_owners_own_lock_that_the_store_never_saw_is_free_for_his_basket)
{
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "a", 0, 60000), LEASE_GRANTED);
    assert_says(world, 1, "ACQUIREALL 1000 2 a b", NOBODY);
    assert_says(world, 1, "ACQUIREALL 1000 2 a b OWNER you", NOBODY);
    assert_says(world, 1, "ACQUIREALL 1000 2 a b OWNER me", "*2\r\n:2\r\n:1\r\n");
}

WORLD_TEST(a_basket_by_which_its_owner_enters_again_is_free)
{
    assert_says(world, 1, "ACQUIRE a 1000 OWNER me", GRANT(1, 1000));
    world_send(world, 2, "ACQUIRE a 1000 WAIT 30000");
    assert_says(world, 1, "ACQUIREALL 60000 2 a b OWNER me", "*2\r\n:1\r\n:1\r\n");
    assert_int_equal(lease_says(world, "a", "holds"), 2);
}

WORLD_TEST(a_basket_stands_behind_those_who_wait_though_its_leases_are_free)
{
    assert_says(world, 8, "ACQUIRE a 1000", GRANT(1, 1000));
    world_pass(world, 1100);
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    assert_begins(world, 5, "ACQUIRE b 60000 QUEUE ID p", "*2\r\n$6\r\nqueued");
    assert_says(world, 9, "RELEASE b 1", ":0\r\n"); /* its turn */
    assert_says(world, 1, "ACQUIREALL 1000 2 a b", NOBODY);
    assert_says(world, 8, "FENCED 1 SET a x", "+OK\r\n");
    assert_says(world, 5, "ACQUIRE b 60000 QUEUE ID p", GRANT(2, 60000));
}

WORLD_TEST(a_large_basket_is_looked_at_whole)
{
    struct buf line = {0};

    buf_append_text(&line, "ACQUIREALL 1000 256");
    for (int i = 0; i < 256; i++)
        buf_printf(&line, " n%03d", i);
    buf_append(&line, "", 1);
    assert_says(world, 9, "ACQUIRE n255 60000", GRANT(1, 60000));
    assert_says(world, 1, line.data, NOBODY);
    assert_says(world, 9, "ACQUIRE n000 60000", GRANT(1, 60000));
    assert_says(world, 9, "RELEASE n000 1", ":0\r\n");
    assert_says(world, 9, "RELEASE n255 1", ":0\r\n");
    lease_service_set_late(world->service, 1);
    world_send(world, 1, line.data);
    world_pass(world, 2000);
    lease_service_set_late(world->service, 0);
    assert_heard_begins(world, 1, "*256\r\n:2\r\n:1\r\n");
    buf_free(&line);
}

/* Another daemon has b in between: what was taken goes back, and the basket waits for b. */
WORLD_TEST(a_basket_of_which_another_takes_one_in_between_gives_all_back)
{
    lease_service_set_late(world->service, 50);
    world_send(world, 1, "ACQUIREALL 1000 2 a b");
    world_send(world, 2, "ACQUIREALL 1000 2 c d WAIT 30000");
    world_pass(world, 60); /* all are free, and the first ones are asked for */
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "b", 0, 2000), LEASE_GRANTED);
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "d", 0, 2000), LEASE_GRANTED);
    world_pass(world, 300);
    lease_service_set_late(world->service, 0);
    assert_heard(world, 1, NOBODY);
    assert_heard(world, 2, "");
    assert_says(world, 3, "ACQUIRE a 1000", GRANT(2, 1000));
    assert_says(world, 3, "ACQUIRE c 1000", GRANT(2, 1000));
    world_pass(world, 3000);
    assert_heard(world, 2, "*2\r\n:3\r\n:2\r\n");
}

EITHER_TEST(crossing_baskets_never_deadlock)
{
    assert_says(world, 9, "ACQUIRE a 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 5000 2 a b WAIT 60000");
    world_send(world, 2, "ACQUIREALL 5000 2 b a WAIT 60000");
    assert_says(world, 9, "RELEASE a 1", ":0\r\n");
    assert_heard(world, 1, "*2\r\n:2\r\n:1\r\n");
    assert_heard(world, 2, "");
    assert_says(world, 1, "RELEASE a 2", ":0\r\n");
    assert_heard(world, 2, "");
    assert_says(world, 1, "RELEASE b 1", ":0\r\n");
    assert_heard(world, 2, "*2\r\n:2\r\n:3\r\n");
}

WORLD_TEST(a_basket_that_takes_longer_than_its_ttl_is_fresh_when_it_is_handed_out)
{
    lease_service_set_late(world->service, 250);
    world_send(world, 1, "ACQUIREALL 1000 3 a b c WAIT 30000");
    world_pass(world, 1900); /* more than its TTL since it looked */
    lease_service_set_late(world->service, 0);
    assert_whole(world, 1, "*3\r\n:1\r\n:1\r\n:1\r\n", "FENCEDALL 3 a 1 b 1 c 1 MSET a x");
}

WORLD_TEST(a_basket_that_took_its_time_is_fresh_when_it_is_handed_out)
{
    lease_service_set_late(world->service, 100);
    world_send(world, 1, "ACQUIREALL 1000 2 a b");
    world_pass(world, 301);
    lease_service_set_late(world->service, 0);
    world_pass(world, 101); /* for the renewal of the first one */
    assert_heard(world, 1, "*2\r\n:1\r\n:1\r\n");
    assert_in_range(lease_says(world, "a", "ttl_ms"), 850, 1000);
    assert_in_range(lease_says(world, "b", "ttl_ms"), 850, 1000);
}

EITHER_TEST(a_basket_whose_time_is_up_has_done_nothing)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 3000");
    world_pass(world, 3100);
    assert_heard(world, 1, NOBODY);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_says(world, 2, "ACQUIREALL 1000 2 a b", "*2\r\n:1\r\n:2\r\n");
}

EITHER_TEST(a_basket_whose_client_is_gone_has_done_nothing)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 30000");
    leave(world, 1);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_says(world, 2, "ACQUIREALL 1000 2 a b", "*2\r\n:1\r\n:2\r\n");
}

WORLD_TEST(a_basket_whose_client_goes_while_it_is_taken_gives_all_back)
{
    for (int ms = 30; ms <= 900; ms += 30) { /* it looks, takes, renews, and has all */
        world_renew(world, NULL);
        lease_service_set_late(world->service, 50);
        world_send(world, 1, "ACQUIREALL 300 3 a b c WAIT 30000");
        world_pass(world, ms);
        world_disconnect(world, 1);
        world_pass(world, 400);
        lease_service_set_late(world->service, 0);
        world_pass(world, 400);
        assert_begins(world, 2, "ACQUIREALL 1000 3 a b c", "*3\r\n");
        assert_true(engine_idle(world->engine));
    }
}

WORLD_TEST(a_basket_that_loses_a_lease_while_it_is_taken_begins_anew)
{
    lease_service_set_late(world->service, 100);
    world_send(world, 1, "ACQUIREALL 60000 3 a b c WAIT 30000");
    world_pass(world, 250); /* it has a, and asks for b */
    world_send(world, 9, "REVOKE a");
    world_pass(world, 1500);
    lease_service_set_late(world->service, 0);
    assert_heard(world, 9, ":1\r\n");
    assert_whole(world, 1, "*3\r\n:2\r\n:2\r\n:2\r\n", "FENCEDALL 3 a 2 b 2 c 2 MSET a 1 b 1");
}

WORLD_TEST(a_waiting_basket_whose_lease_service_dies_is_told_so)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 30000");
    lease_service_set_down(world->service, "test");
    world_pass(world, 1100);
    assert_heard_begins(world, 1, "-LEASEDOWN ");
    assert_begins(world, 1, "ACQUIREALL 1000 2 c d", "-LEASEDOWN lease service memory: test");
    lease_service_set_down(world->service, NULL);
    assert_says(world, 2, "ACQUIREALL 1000 2 c d", "*2\r\n:1\r\n:1\r\n");
}

WORLD_TEST(a_basket_whose_lease_service_dies_gives_back_what_it_can)
{
    lease_service_set_late(world->service, 50);
    world_send(world, 1, "ACQUIREALL 1000 2 a b WAIT 30000");
    world_pass(world, 110); /* it has a, and asks for b */
    lease_service_set_down(world->service, "test");
    world_pass(world, 1100);
    assert_heard_begins(world, 1, "-LEASEDOWN ");
    lease_service_set_down(world->service, NULL);
    lease_service_set_late(world->service, 0);
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

WORLD_TEST(a_repeated_basket_is_whole_though_the_first_ones_client_is_gone)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_disconnect(world, 1);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_whole(world, 2, "*2\r\n:1\r\n:2\r\n", "FENCEDALL 2 a 1 b 2 MSET a 1 b 1");
}

WORLD_TEST(a_repeated_basket_is_whole_though_the_first_ones_time_is_up)
{
    assert_says(world, 9, "ACQUIRE b 60000", GRANT(1, 60000));
    world_send(world, 1, "ACQUIREALL 60000 2 a b WAIT 1000 ID x");
    world_send(world, 2, "ACQUIREALL 60000 2 a b WAIT 20000 ID x");
    world_pass(world, 1100);
    assert_heard(world, 1, NOBODY);
    assert_says(world, 9, "RELEASE b 1", ":0\r\n");
    assert_whole(world, 2, "*2\r\n:1\r\n:2\r\n", "FENCEDALL 2 a 1 b 2 MSET a 1 b 1");
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

/* Two of one owner that take at the same time: while the first one renews what it has, the other
 * one finds that all are its owner's, and enters a. */
static void send_twins(struct world *world)
{
    lease_service_set_late(world->service, 50);
    world_send(world, 1, "ACQUIREALL 600 3 a b c OWNER me ID x");
    world_pass(world, 205);
    world_send(world, 2, "ACQUIREALL 600 3 a b c OWNER me ID x");
    world_pass(world, 195);
    assert_heard(world, 1, "*3\r\n:1\r\n:1\r\n:1\r\n");
    assert_heard(world, 2, "");
}

WORLD_TEST(twins_of_a_basket_that_take_at_the_same_time_count_once)
{
    send_twins(world);
    world_pass(world, 200);
    lease_service_set_late(world->service, 0);
    assert_heard(world, 2, "*3\r\n:1\r\n:1\r\n:1\r\n");
    assert_int_equal(lease_says(world, "a", "holds"), 1);
    assert_int_equal(lease_says(world, "c", "holds"), 1);
}

WORLD_TEST(a_twin_whose_basket_was_released_in_part_gets_none)
{
    send_twins(world);
    assert_says(world, 1, "RELEASE a 1", ":1\r\n");
    world_pass(world, 300);
    lease_service_set_late(world->service, 0);
    assert_heard_begins(world, 2, "-STALE ");
    assert_int_equal(lease_says(world, "b", "holds"), 1);
    assert_says(world, 3, "ACQUIRE a 60000", GRANT(2, 60000));
}

WORLD_TEST(an_owners_other_hold_stays_when_his_basket_fails)
{
    assert_says(world, 3, "ACQUIRE a 60000 OWNER me", GRANT(1, 60000));
    lease_service_set_late(world->service, 50);
    world_send(world, 1, "ACQUIREALL 60000 2 a b OWNER me ID x");
    world_pass(world, 110); /* it has entered a again, and asks for b */
    world_disconnect(world, 1);
    world_pass(world, 400);
    lease_service_set_late(world->service, 0);
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
    assert_says(world, 3, "ACQUIRE a 60000", GRANT(1, 60000));
}

WORLD_TEST(a_baskets_repeat_that_fails_leaves_it_alone)
{
    assert_says(world, 1, "ACQUIREALL 60000 2 a b ID x", "*2\r\n:1\r\n:1\r\n");
    lease_service_set_late(world->service, 50);
    world_send(world, 2, "ACQUIREALL 60000 2 a b ID x");
    world_pass(world, 110); /* it has entered a again, and asks for b */
    world_disconnect(world, 2);
    world_pass(world, 300);
    lease_service_set_late(world->service, 0);
    assert_says(world, 1, "FENCEDALL 2 a 1 b 1 MSET a 1 b 1", "+OK\r\n");
    assert_says(world, 3, "ACQUIRE a 60000", NOBODY);
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
