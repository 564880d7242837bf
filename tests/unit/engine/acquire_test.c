/* SPDX-License-Identifier: Apache-2.0 */
/* The grant protocol over the in-memory twins: every way in which the steps between a lease service
 * and a store can go wrong, one at a time, in virtual time. */
#include "tests/unit/engine/says.h"

WORLD_TEST(a_grant_fences_the_older_token_before_the_new_holder_writes)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    world_pass(world, 101);
    assert_says(world, 2, "ACQUIRE k 100", GRANT(2, 100));
    assert_begins(world, 1, "FENCED 1 SET k old", "-STALE ");
    assert_says(world, 2, "GET k", "$-1\r\n");
    assert_says(world, 2, "FENCED 2 SET k new", "+OK\r\n");
}

/* Two grants, one after the other, recorded in one batch. The store may try the second one first,
 * and find that the first one is missing: nothing of that may stay. */
WORLD_TEST(a_grant_that_was_tried_too_early_keeps_nothing_of_it)
{
    struct world *twin = world_add_twin(world);

    for (int i = 0; i < 8; i++) {
        char line[40];
        snprintf(line, sizeof line, "ACQUIRE k%d 10", i);
        store_memory_hold_writes(world->store, true);
        world_send(world, 1, line);
        world_pass(world, 11);
        snprintf(line, sizeof line, "ACQUIRE k%d 100", i);
        world_send(twin, 2, line);
        store_memory_hold_writes(world->store, false);
        world_settle(world);
        assert_string_equal(world_received(twin, 2), GRANT(2, 100));
    }
    assert_int_equal(world_counter(twin, "grants_behind"), 0);
}

WORLD_TEST(an_expired_holder_without_a_successor_may_write)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    world_pass(world, 500);
    assert_says(world, 1, "FENCED 1 SET k v", "+OK\r\n");
}

WORLD_TEST(tokens_rise_where_the_lease_service_lost_everything)
{
    for (int token = 1; token <= 5; token++) {
        char reply[40];
        snprintf(reply, sizeof reply, "*2\r\n:%d\r\n:100\r\n", token);
        assert_says(world, 1, "ACQUIRE k 100", reply);
        lease_service_lose_all(world->service);
    }
}

/* P6: once is once, whatever the lease service forgets meanwhile. */
WORLD_TEST(a_repeat_gets_its_lease_where_the_lease_service_has_lost_the_lock)
{
    assert_says(world, 1, "ACQUIRE k 100 ID a", GRANT(1, 100));
    lease_service_lose_all(world->service);
    assert_says(world, 2, "ACQUIRE k 100 ID a", GRANT(1, 100));
    assert_says(world, 1, "FENCED 1 SET k v", "+OK\r\n");
}

/* Nobody else has the lease: null would say so. */
WORLD_TEST(a_repeat_that_comes_while_the_first_is_given_back_is_to_ask_again)
{
    enum { LATE_MS = 50 };

    for (int passed_ms = 0; passed_ms < 3 * LATE_MS; passed_ms += LATE_MS / 2) {
        world_renew(world, NULL);
        lease_service_set_late(world->service, LATE_MS);
        world_send(world, 1, "ACQUIRE k 60000 ID a");
        world_disconnect(world, 1);
        world_pass(world, passed_ms);
        world_send(world, 2, "ACQUIRE k 60000 ID a");
        world_pass(world, 4 * LATE_MS);
        lease_service_set_late(world->service, 0);
        const char *reply = world_received(world, 2);
        if (strncmp(reply, "-BUSY the first ", 16) == 0)
            assert_begins(world, 2, "ACQUIRE k 60000 ID a", "*2\r\n:");
        else if (strncmp(reply, "*2\r\n:", 5) != 0)
            fail_msg("after %d ms: %s", passed_ms, reply);
    }
}

/* Its own grant is being recorded, and nobody waits for it any more. */
EITHER_TEST(a_repeat_that_comes_while_the_first_is_recorded_is_to_ask_again)
{
    store_memory_hold_writes(world->store, true);
    world_send(world, 1, "ACQUIRE k 60000 ID a");
    world_disconnect(world, 1);
    assert_begins(world, 2, "ACQUIRE k 60000 ID a", "-BUSY the first ");
    assert_says(world, 3, "ACQUIRE k 60000 ID b", NOBODY);
    assert_says(world, 4, "ACQUIRE k 60000", NOBODY);
    store_memory_hold_writes(world->store, false);
    world_settle(world);
    assert_begins(world, 2, "ACQUIRE k 60000 ID a", "*2\r\n:");
    assert_says(world, 3, "ACQUIRE k 60000 ID b", NOBODY);
}

WORLD_TEST(state_lost_after_the_floor_was_read_costs_a_round_and_no_token)
{
    lease_service_mark(world->service);
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    /* The second grant of another daemon: as far as this engine's floor read goes, it came later.
     */
    world_send_only(world, 2, "ACQUIRE k 100");
    lease_service_lose_all(world->service);
    assert_heard(world, 2, GRANT(2, 100));
}

/* The service grants the next token, the answer never arrives: the daemon dies in between, and the
 * lock stands. */
static void die_while_granted(struct world *world)
{
    lease_service_set_late(world->service, -1);
    world_send(world, 1, "ACQUIRE k 60000 OWNER me");
    lease_service_mark(world->service);
    lease_service_set_down(world->service, "gone");
    world_settle(world);
    lease_service_set_down(world->service, NULL);
    lease_service_set_late(world->service, 0);
    lease_service_lose_tail(world->service);
    world_restart_engine(world, 0);
}

WORLD_TEST(a_lock_whose_token_the_store_never_saw_is_not_entered_again)
{
    die_while_granted(world);
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", GRANT(2, 60000));
    assert_begins(world, 1, "FENCED 1 SET k v", "-STALE ");
    assert_says(world, 1, "FENCED 2 SET k v", "+OK\r\n");
}

/* The store knows this owner, by an older token that lives still. */
WORLD_TEST(an_owner_does_not_enter_again_by_a_token_that_the_store_never_saw)
{
    assert_says(world, 1, "ACQUIRE k 100 OWNER me", GRANT(1, 100));
    world_pass(world, 101);
    die_while_granted(world);
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", GRANT(3, 60000));
    assert_begins(world, 1, "FENCED 1 SET k v", "-STALE ");
    assert_says(world, 1, "FENCED 3 SET k v", "+OK\r\n");
}

/* The first one is granted it; the other one enters it before the store has it, and gets there
 * first. Nobody is told of a token that is dead. */
WORLD_TEST(an_owner_at_two_daemons_at_once_gets_one_lease)
{
    struct world *twin = world_add_twin(world);
    lease_service_set_late(world->service, -1);
    world_send(twin, 1, "ACQUIRE k 60000 OWNER me");
    world_send(world, 1, "ACQUIRE k 60000 OWNER me");
    lease_service_set_late(world->service, 0);
    assert_heard(world, 1, GRANT(2, 60000));
    assert_heard(twin, 1, GRANT(2, 60000));
    assert_int_equal(lease_says(world, "k", "holds"), 2);
    assert_says(twin, 1, "FENCED 2 SET k v", "+OK\r\n");
    assert_int_equal(world_counter(world, "leases_granted"), 1);
    assert_int_equal(world_counter(twin, "leases_reentered"), 1);
}

/* The service mints the same token for him twice, as it loses state in between. */
WORLD_TEST(an_owner_who_is_granted_one_token_twice_has_one_lease)
{
    struct world *twin = world_add_twin(world);
    lease_service_set_late(world->service, -1);
    world_send(world, 1, "ACQUIRE k 60000 OWNER me");
    lease_service_lose_all(world->service);
    world_send(twin, 1, "ACQUIRE k 60000 OWNER me");
    lease_service_set_late(world->service, 0);
    assert_heard(world, 1, GRANT(1, 60000));
    assert_heard(twin, 1, GRANT(1, 60000));
    assert_int_equal(lease_says(world, "k", "holds"), 2);
    assert_says(world, 1, "FENCED 1 SET k v", "+OK\r\n");
    assert_int_equal(world_counter(twin, "leases_reentered"), 1);
}

WORLD_TEST(the_same_owner_enters_again_and_leaves_as_often)
{
    assert_says(world, 1, "ACQUIRE k 100 OWNER me", GRANT(1, 100));
    world_pass(world, 50);
    assert_says(world, 2, "ACQUIRE k 100 OWNER me", GRANT(1, 100));
    assert_says(world, 1, "RELEASE k 1", ":1\r\n");
    assert_says(world, 3, "ACQUIRE k 100 OWNER other", "*-1\r\n");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_says(world, 3, "ACQUIRE k 100 OWNER other", GRANT(2, 100));
    assert_begins(world, 1, "RELEASE k 1", "-STALE ");
}

WORLD_TEST(an_owner_enters_again_past_those_who_wait)
{
    assert_says(world, 1, "ACQUIRE k 1000 OWNER me", GRANT(1, 1000));
    assert_says(world, 2, "ACQUIRE k 1000 WAIT 500", "");
    assert_says(world, 3, "ACQUIRE k 1000 WAIT 500 OWNER me", GRANT(1, 1000));
    assert_says(world, 1, "RELEASE k 1", ":1\r\n");
    assert_heard(world, 2, "");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_heard(world, 2, GRANT(2, 1000));
}

WORLD_TEST(waiters_are_served_in_order_of_arrival)
{
    char line[64], reply[64];
    assert_says(world, 0, "ACQUIRE k 60000", GRANT(1, 60000));
    for (int i = 1; i < 40; i++)
        assert_says(world, i, "ACQUIRE k 60000 WAIT 50000", "");
    assert_int_equal(world_counter(world, "leases_waited"), 39);
    for (int i = 1; i < 40; i++) {
        snprintf(line, sizeof line, "RELEASE k %d", i);
        assert_says(world, i - 1, line, ":0\r\n");
        snprintf(reply, sizeof reply, "*2\r\n:%d\r\n:60000\r\n", i + 1);
        assert_heard(world, i, reply);
    }
}

WORLD_TEST(a_try_does_not_take_the_lease_from_those_who_wait)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIRE k 60000 WAIT 50000", "");
    world_send_only(world, 1, "RELEASE k 1");
    world_send_only(world, 3, "ACQUIRE k 60000");
    assert_heard(world, 3, "*-1\r\n");
    assert_heard(world, 2, GRANT(2, 60000));
}

WORLD_TEST(expiry_wakes_the_first_in_line)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    assert_says(world, 2, "ACQUIRE k 100 WAIT 5000", "");
    world_pass(world, 99);
    assert_heard(world, 2, "");
    world_pass(world, 3);
    assert_heard(world, 2, GRANT(2, 100));
}

WORLD_TEST(a_release_at_another_daemon_is_seen_within_a_second)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIRE k 60000 WAIT 50000", "");
    lease_service_lose_all(world->service); /* nobody tells this daemon */
    world_pass(world, 999);
    assert_heard(world, 2, "");
    world_pass(world, 3);
    assert_heard(world, 2, GRANT(2, 60000));
}

WORLD_TEST(waiting_ends_with_null_at_its_deadline)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIRE k 60000 WAIT 300", "");
    world_pass(world, 299);
    assert_heard(world, 2, "");
    world_pass(world, 1);
    assert_heard(world, 2, "*-1\r\n");
}

WORLD_TEST(a_waiter_that_vanished_leaves_the_line)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIRE k 60000 WAIT 50000", "");
    assert_says(world, 3, "ACQUIRE k 60000 WAIT 50000", "");
    world_disconnect(world, 2);
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_heard(world, 3, GRANT(2, 60000));
}

WORLD_TEST(a_grant_that_nobody_can_receive_is_given_back_and_retired)
{
    lease_service_set_late(world->service, 0);
    world_send_only(world, 1, "ACQUIRE k 60000");
    store_step(world->store); /* the floor is read; the grant is asked for and recorded next */
    store_collect(world->store);
    leave(world, 1);
    assert_int_equal(world_counter(world, "leases_given_back"), 1);
    assert_begins(world, 2, "FENCED 1 SET k v", "-STALE ");
    assert_says(world, 2, "ACQUIRE k 60000", GRANT(2, 60000));
}

WORLD_TEST(a_lease_that_ran_out_on_the_way_is_not_handed_out)
{
    lease_service_set_late(world->service, 60);
    world_send(world, 1, "ACQUIRE k 50");
    world_pass(world, 59);
    assert_heard(world, 1, "");
    lease_service_set_late(world->service, 0);
    world_pass(world, 10);
    assert_heard(world, 1, "*-1\r\n");
    assert_begins(world, 2, "FENCED 1 SET k v", "-STALE ");
}

WORLD_TEST(a_commit_that_fails_gives_the_lock_back)
{
    store_memory_fail(world->store, MEMORY_COMMIT_FAILS);
    assert_begins(world, 1, "ACQUIRE k 60000", "-STORE ");
    assert_says(world, 1, "GET k", "$-1\r\n");
    assert_begins(world, 1, "FENCED 1 SET k v", "-UNKNOWN ");
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(2, 60000));
}

EITHER_TEST(a_second_entry_that_fails_leaves_the_first_its_lock)
{
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", GRANT(1, 60000));
    store_memory_fail(world->store, MEMORY_COMMIT_FAILS);
    assert_begins(world, 1, "ACQUIRE k 60000 OWNER me", "-STORE ");
    assert_says(world, 2, "ACQUIRE k 60000", "*-1\r\n");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
}

WORLD_TEST(a_dead_lease_service_stops_grants_at_once_and_no_writes)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIRE k 60000 WAIT 50000", "");
    lease_service_set_down(world->service, "connection refused");
    assert_begins(world, 3, "ACQUIRE j 1000",
                  "-LEASEDOWN lease service memory: connection refused");
    assert_says(world, 1, "FENCED 1 SET k v", "+OK\r\n");
    world_pass(world, 1001);
    assert_heard_begins(world, 2, "-LEASEDOWN ");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_begins(world, 1, "FENCED 1 SET k v", "-STALE ");
}

WORLD_TEST(a_revoked_holder_is_fenced_and_the_next_is_served)
{
    assert_says(world, 1, "REVOKE k", "$-1\r\n");
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIRE k 60000 WAIT 50000", "");
    assert_says(world, 3, "REVOKE k", ":1\r\n");
    assert_begins(world, 1, "FENCED 1 SET k v", "-STALE ");
    assert_begins(world, 1, "RELEASE k 1", "-STALE ");
    assert_begins(world, 1, "RENEW k 1 100", "-STALE ");
    assert_heard(world, 2, GRANT(2, 60000));
}

WORLD_TEST(renewing_takes_back_what_nobody_took)
{
    assert_says(world, 1, "ACQUIRE k 100", GRANT(1, 100));
    world_pass(world, 500);
    assert_says(world, 1, "RENEW k 1 200", ":200\r\n");
    assert_says(world, 2, "ACQUIRE k 100", "*-1\r\n");
    world_pass(world, 500);
    assert_says(world, 2, "ACQUIRE k 100", GRANT(2, 100));
    assert_begins(world, 1, "RENEW k 1 200", "-STALE ");
    assert_begins(world, 1, "RENEW k 3 200", "-UNKNOWN ");
    assert_begins(world, 1, "RENEW never 1 200", "-UNKNOWN ");
}

WORLD_TEST(a_release_that_overtakes_a_renewal_leaves_no_lock_behind)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    lease_service_set_late(world->service, -1);
    world_send(world, 1, "RENEW k 1 60000"); /* its answer is held back */
    lease_service_lose_all(world->service);
    world_send(world, 2, "REVOKE k");
    lease_service_set_late(world->service, 0);
    assert_heard_begins(world, 1, "-STALE ");
    assert_says(world, 3, "ACQUIRE k 100", GRANT(2, 100));
}

/* Of the other daemon's REVOKE this one hears nothing, and knows only what the store says. */
WORLD_TEST(a_renewal_that_another_daemon_has_overtaken_is_not_confirmed)
{
    struct world *twin = world_add_twin(world);

    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    lease_service_lose_news(world->service, true);
    lease_service_set_late(world->service, -1);
    world_send(world, 1, "RENEW k 1 60000"); /* its answer is held back */
    world_send(twin, 1, "REVOKE k");
    lease_service_set_late(world->service, 0);
    world_settle(world);
    assert_heard_begins(world, 1, "-STALE ");
    assert_says(world, 3, "ACQUIRE k 100", GRANT(2, 100));
}

WORLD_TEST(too_many_waiters_are_told_busy)
{
    world_renew(world, &(struct engine_options){.limits = {.things = {[ACCOUNT_WAITERS] = 2}}});
    assert_says(world, 0, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 1, "ACQUIRE k 60000 WAIT 50000", "");
    assert_says(world, 2, "ACQUIRE k 60000 WAIT 50000", "");
    assert_begins(world, 3, "ACQUIRE k 60000 WAIT 50000", "-BUSY ");
}

/* It is the head, and may not take it: the first answer is the last. */
WORLD_TEST(who_may_have_no_more_leases_is_denied_what_another_has)
{
    world_renew(world, &(struct engine_options){.limits = {.things = {[ACCOUNT_LEASES] = 1}}});
    assert_says(world, 1, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "ACQUIRE k 60000", "*-1\r\n");
    assert_begins(world, 2, "ACQUIRE j 60000", "-BUSY ");
}

WORLD_TEST(draining_answers_those_who_wait)
{
    assert_says(world, 0, "ACQUIRE k 60000", GRANT(1, 60000));
    for (int i = 1; i < 5; i++)
        assert_says(world, i, "ACQUIRE k 60000 WAIT 50000", "");
    engine_drain(world->engine);
    world_settle(world);
    assert_true(engine_idle(world->engine));
    for (int i = 1; i < 5; i++)
        assert_heard_begins(world, i, "-BUSY ");
    assert_begins(world, 0, "GET k", "-BUSY ");
    assert_says(world, 0, "PING", "+PONG\r\n");
}

WORLD_TEST(lease_shows_who_holds)
{
    assert_says(world, 1, "LEASE k", "$-1\r\n");
    assert_says(world, 1, "ACQUIRE k 100 OWNER me", GRANT(1, 100));
    assert_says(world, 2, "ACQUIRE k 100 WAIT 90", "");
    assert_says(
        world, 1, "LEASE k",
        "*12\r\n$5\r\nstate\r\n$4\r\nheld\r\n$5\r\ntoken\r\n:1\r\n$5\r\nowner\r\n$2\r\nme\r\n"
        "$6\r\nttl_ms\r\n:100\r\n$5\r\nholds\r\n:1\r\n$7\r\nwaiters\r\n:1\r\n");
    world_pass(world, 150);
    assert_says(world, 1, "LEASE k",
                "*12\r\n$5\r\nstate\r\n$4\r\nfree\r\n$5\r\ntoken\r\n:1\r\n$5\r\nowner\r\n$-1\r\n"
                "$6\r\nttl_ms\r\n:0\r\n$5\r\nholds\r\n:0\r\n$7\r\nwaiters\r\n:0\r\n");
    assert_says(world, 1, "LEASES", "*1\r\n$1\r\nk\r\n");
    assert_says(world, 1, "LEASES MATCH x*", "*0\r\n");
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_says(world, 1, "LEASES", "*0\r\n");
}
