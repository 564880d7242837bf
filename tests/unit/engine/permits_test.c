/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE ... PERMITS n: never more than n holders, one line of waiters, and a bounded number of
 * questions. */
#include <stdio.h>
#include <string.h>

#include "proxy/engine/lease/permits.h"
#include "tests/unit/engine/says.h"

struct got {
    long token, ttl_ms, permit; /* token 0: nobody was granted anything */
};

static struct got got_of(const char *reply)
{
    struct got got = {0};

    if (strcmp(reply, NOBODY) != 0 &&
        sscanf(reply, "*3\r\n:%ld\r\n:%ld\r\n:%ld\r\n", &got.token, &got.ttl_ms, &got.permit) != 3)
        fail_msg("not a permit: %s", reply);
    return got;
}

static struct got take(struct world *world, int client, const char *line)
{
    return got_of(world_call(world, client, line));
}

static struct got heard(struct world *world, int client)
{
    world_settle(world);
    return got_of(world_received(world, client));
}

static void release(struct world *world, int client, struct got got)
{
    char line[64];

    snprintf(line, sizeof line, "RELEASE p#%ld %ld", got.permit, got.token);
    assert_says(world, client, line, ":0\r\n");
}

static void take_all(struct world *world, struct got *got, int count, const char *line)
{
    unsigned seen = 0;

    for (int i = 0; i < count; i++) {
        got[i] = take(world, 1, line);
        assert_in_range(got[i].permit, 1, count);
        assert_false(seen & 1U << got[i].permit);
        seen |= 1U << got[i].permit;
    }
}

EITHER_TEST(each_permit_is_one_lease_and_there_are_no_more_than_n)
{
    struct got got[5];

    take_all(world, got, 5, "ACQUIRE p 60000 PERMITS 5");
    assert_int_equal(got[0].ttl_ms, 60000);
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 5", NOBODY);
    release(world, 1, got[2]);
    assert_int_equal(take(world, 2, "ACQUIRE p 60000 PERMITS 5").permit, got[2].permit);
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 5", NOBODY);
}

EITHER_TEST(a_permits_token_fences_its_own_key)
{
    struct got old = take(world, 1, "ACQUIRE p 1000 PERMITS 1"), new;

    assert_says(world, 1, "FENCED 1 SET p#1 x", "+OK\r\n");
    world_pass(world, 1100);
    new = take(world, 2, "ACQUIRE p 1000 PERMITS 1");
    assert_true(new.permit == 1 && old.permit == 1 && new.token > old.token);
    assert_begins(world, 1, "FENCED 1 SET p#1 late", "-STALE ");
}

EITHER_TEST(the_same_owner_gets_its_permit_again)
{
    struct got first = take(world, 1, "ACQUIRE p 60000 PERMITS 9 OWNER me");

    for (int i = 0; i < 20; i++) {
        struct got again = take(world, 2, "ACQUIRE p 60000 PERMITS 9 OWNER me");
        assert_true(again.token == first.token && again.permit == first.permit);
    }
    assert_int_not_equal(take(world, 2, "ACQUIRE p 60000 PERMITS 9 OWNER you").permit,
                         first.permit);
}

EITHER_TEST(the_same_owner_gets_it_again_though_all_are_taken_and_others_wait)
{
    struct got first = take(world, 1, "ACQUIRE p 60000 PERMITS 2 OWNER me");

    take(world, 1, "ACQUIRE p 60000 PERMITS 2");
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 2 WAIT 60000", "");
    assert_int_equal(take(world, 3, "ACQUIRE p 60000 PERMITS 2 OWNER me").token, first.token);
    assert_heard(world, 2, "");
}

/* So it is, too, where it takes several looks to find that. */
EITHER_TEST(an_owner_is_found_among_very_many)
{
    struct got first = take(world, 1, "ACQUIRE p 60000 PERMITS 10000 OWNER me");

    for (int i = 0; i < 4; i++)
        assert_int_equal(take(world, 2, "ACQUIRE p 60000 PERMITS 10000 OWNER me").permit,
                         first.permit);
}

EITHER_TEST(an_id_repeated_gets_the_first_permit)
{
    struct got first = take(world, 1, "ACQUIRE p 60000 PERMITS 9 ID x"), again;

    for (int i = 0; i < 20; i++) {
        again = take(world, 2, "ACQUIRE p 60000 PERMITS 9 ID x");
        assert_true(again.token == first.token && again.permit == first.permit);
    }
    assert_int_not_equal(take(world, 2, "ACQUIRE p 60000 PERMITS 9 ID y").permit, first.permit);
    assert_begins(world, 2, "RECEIPT p 1 x", "*2\r\n:1\r\n*3\r\n");
    release(world, 1, first); /* it was counted once */
    assert_begins(world, 2, "ACQUIRE p 60000 PERMITS 9 ID x", "-STALE ");
}

EITHER_TEST(an_id_is_of_one_command_and_one_owner)
{
    take(world, 1, "ACQUIRE p 60000 PERMITS 9 ID x OWNER me");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 9 ID x OWNER you", "-ERR ");
    assert_begins(world, 1, "ACQUIRE p 60000 ID x OWNER me", "-ERR ");
    assert_begins(world, 1, "ACQUIRE q 60000 ID z", "*2\r\n");
    assert_begins(world, 1, "ACQUIRE q 60000 PERMITS 9 ID z", "-ERR ");
}

/* They ask for their own permits, and the one that is slower gives its own back. */
EITHER_TEST(two_with_one_id_at_once_get_one_permit)
{
    struct got one, other, rest[4];

    world_connect(world, 1);
    world_connect(world, 2);
    world_send_only(world, 1, "ACQUIRE p 60000 PERMITS 5 ID x");
    world_send_only(world, 2, "ACQUIRE p 60000 PERMITS 5 ID x");
    world_settle(world);
    one = got_of(world_received(world, 1));
    other = got_of(world_received(world, 2));
    assert_true(one.token != 0 && one.token == other.token && one.permit == other.permit);
    for (int i = 0; i < 4; i++)
        rest[i] = take(world, 3, "ACQUIRE p 60000 PERMITS 5");
    assert_true(rest[3].token != 0);
    assert_says(world, 3, "ACQUIRE p 60000 PERMITS 5", NOBODY);
}

/* What is remembered of an ID is not what the resource's own lease goes by. */
EITHER_TEST(a_lease_on_the_resource_itself_goes_on)
{
    assert_says(world, 1, "ACQUIRE p 60000", GRANT(1, 60000));
    take(world, 2, "ACQUIRE p 60000 PERMITS 2 ID x");
    assert_says(world, 1, "FENCED 1 SET p x", "+OK\r\n");
    assert_says(world, 1, "RELEASE p 1", ":0\r\n");
    take(world, 2, "ACQUIRE p 60000 PERMITS 2 ID y");
    assert_begins(world, 1, "FENCED 1 SET p x", "-STALE ");
    assert_begins(world, 1, "ACQUIRE p 60000", "*2\r\n");
}

EITHER_TEST(those_who_wait_are_served_in_their_order_whichever_is_released)
{
    struct got got[3];

    take_all(world, got, 3, "ACQUIRE p 60000 PERMITS 3");
    for (int client = 2; client < 6; client++)
        assert_says(world, client, "ACQUIRE p 60000 PERMITS 3 WAIT 60000", "");
    release(world, 1, got[1]);
    assert_int_equal(heard(world, 2).permit, got[1].permit);
    release(world, 1, got[0]);
    assert_int_equal(heard(world, 3).permit, got[0].permit);
    assert_says(world, 7, "ACQUIRE p 60000 PERMITS 3", NOBODY);
    release(world, 1, got[2]);
    assert_int_equal(heard(world, 4).permit, got[2].permit);
    assert_heard(world, 5, "");
}

/* Two are given back at once: the second one in line need not wait for the next look. */
EITHER_TEST(who_is_served_wakes_the_next)
{
    struct got got[2];

    take_all(world, got, 2, "ACQUIRE p 60000 PERMITS 2");
    for (int client = 2; client < 5; client++)
        assert_says(world, client, "ACQUIRE p 60000 PERMITS 2 WAIT 60000", "");
    for (int i = 0; i < 2; i++) {
        char line[64];
        snprintf(line, sizeof line, "RELEASE p#%ld %ld", got[i].permit, got[i].token);
        world_send_only(world, 1, line);
    }
    world_settle(world);
    assert_int_not_equal(heard(world, 2).token, 0);
    assert_int_not_equal(heard(world, 3).token, 0);
    assert_heard(world, 4, "");
}

EITHER_TEST(who_comes_later_does_not_pass_who_waits)
{
    struct got got = take(world, 1, "ACQUIRE p 60000 PERMITS 1"), next;

    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 1 WAIT 60000", "");
    assert_says(world, 3, "ACQUIRE p 60000 PERMITS 2", NOBODY);
    release(world, 1, got);
    next = heard(world, 2);
    assert_int_equal(next.permit, 1);
}

EITHER_TEST(a_dead_holder_delays_who_waits_by_its_ttl)
{
    take(world, 1, "ACQUIRE p 300 PERMITS 2");
    take(world, 1, "ACQUIRE p 60000 PERMITS 2");
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 2 WAIT 60000", "");
    world_pass(world, 290);
    assert_heard(world, 2, "");
    world_pass(world, 60);
    assert_int_not_equal(heard(world, 2).token, 0);
}

EITHER_TEST(two_that_run_out_together_serve_two)
{
    take(world, 1, "ACQUIRE p 300 PERMITS 2");
    take(world, 1, "ACQUIRE p 300 PERMITS 2");
    for (int client = 2; client < 5; client++)
        assert_says(world, client, "ACQUIRE p 60000 PERMITS 2 WAIT 60000", "");
    world_pass(world, 350);
    assert_int_not_equal(heard(world, 2).token, 0);
    assert_int_not_equal(heard(world, 3).token, 0);
    assert_heard(world, 4, "");
}

EITHER_TEST(a_wait_ends_with_null_at_its_deadline)
{
    take(world, 1, "ACQUIRE p 60000 PERMITS 1");
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 1 WAIT 500", "");
    world_pass(world, 490);
    assert_heard(world, 2, "");
    world_pass(world, 20);
    assert_heard(world, 2, NOBODY);
}

EITHER_TEST(who_goes_leaves_the_line_and_holds_nothing)
{
    struct got got = take(world, 1, "ACQUIRE p 60000 PERMITS 1");

    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 1 WAIT 60000", "");
    assert_says(world, 3, "ACQUIRE p 60000 PERMITS 1 WAIT 60000", "");
    leave(world, 2);
    release(world, 1, got);
    assert_int_equal(heard(world, 3).permit, 1);
}

WORLD_TEST(a_grant_that_nobody_can_be_told_of_is_given_back)
{
    world_connect(world, 1);
    lease_service_set_late(world->service, -1);
    world_send(world, 1, "ACQUIRE p 60000 PERMITS 1");
    leave(world, 1);
    lease_service_set_late(world->service, 0);
    world_settle(world);
    assert_int_equal(take(world, 2, "ACQUIRE p 60000 PERMITS 1").permit, 1);
}

EITHER_TEST(with_a_smaller_n_none_above_it_is_granted)
{
    struct got got[5];

    take_all(world, got, 5, "ACQUIRE p 60000 PERMITS 5");
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 2", NOBODY);
    for (int i = 0; i < 5; i++) {
        char line[64]; /* nobody is thrown out */
        snprintf(line, sizeof line, "FENCED %ld SET p#%ld x", got[i].token, got[i].permit);
        assert_says(world, 1, line, "+OK\r\n");
    }
    for (int i = 0; i < 5; i++)
        release(world, 1, got[i]);
    take(world, 2, "ACQUIRE p 60000 PERMITS 2");
    assert_in_range(take(world, 2, "ACQUIRE p 60000 PERMITS 2").permit, 1, 2);
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 2", NOBODY);
}

EITHER_TEST(many_who_ask_at_once_get_as_many_as_there_are)
{
    int granted = 0;

    for (int client = 1; client <= 40; client++)
        world_connect(world, client);
    for (int client = 1; client <= 40; client++)
        world_send_only(world, client, "ACQUIRE p 60000 PERMITS 7");
    world_settle(world);
    for (int client = 1; client <= 40; client++)
        granted += got_of(world_received(world, client)).token != 0;
    assert_in_range(granted, 4, 7); /* some may have asked for the same ones */
    for (; granted < 7; granted++)
        assert_int_not_equal(take(world, 41, "ACQUIRE p 60000 PERMITS 7").token, 0);
    assert_says(world, 41, "ACQUIRE p 60000 PERMITS 7", NOBODY);
}

EITHER_TEST(an_ephemeral_permit_ends_with_its_connection)
{
    take(world, 1, "ACQUIRE p 60000 PERMITS 1 EPHEMERAL");
    leave(world, 1);
    assert_int_equal(take(world, 2, "ACQUIRE p 60000 PERMITS 1").permit, 1);
}

/* Of a service that others hold all of, and of which this store knows nothing. */
WORLD_TEST(a_try_asks_the_lease_service_a_bounded_number_of_questions)
{
    for (int permit = 1; permit <= 20; permit++) {
        char name[16];
        snprintf(name, sizeof name, "p#%d", permit);
        assert_int_equal(asked_elsewhere(world, LEASE_GRANT, name, 0, 60000), LEASE_GRANTED);
    }
    long before = world_counter(world, "lease_service_calls");
    assert_says(world, 1, "ACQUIRE p 60000 PERMITS 20", NOBODY);
    assert_int_equal(world_counter(world, "lease_service_calls") - before, PERMIT_QUESTIONS_MAX);
}

/* It asks for the others soon, and finds the one that is free. */
WORLD_TEST(who_waits_comes_to_all_that_may_be_free)
{
    for (int permit = 1; permit < 20; permit++) {
        char name[16];
        snprintf(name, sizeof name, "p#%d", permit);
        assert_int_equal(asked_elsewhere(world, LEASE_GRANT, name, 0, 60000), LEASE_GRANTED);
    }
    world_send(world, 1, "ACQUIRE p 60000 PERMITS 20 WAIT 60000");
    world_pass(world, 150);
    assert_int_equal(heard(world, 1).permit, 20);
}

/* Its renewals are known to the lease service only. */
WORLD_TEST(what_is_held_here_is_not_asked_for)
{
    struct got got = take(world, 1, "ACQUIRE p 1000 PERMITS 1");
    char line[64];

    snprintf(line, sizeof line, "RENEW p#1 %ld 1000", got.token);
    for (int i = 0; i < 3; i++) {
        world_pass(world, 700);
        assert_begins(world, 1, line, ":");
    }
    long before = world_counter(world, "lease_service_calls");
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 1", NOBODY);
    assert_int_equal(world_counter(world, "lease_service_calls"), before);
}

WORLD_TEST(two_daemons_have_one_set_of_permits)
{
    struct world *twin = world_add_twin(world);
    struct got got[4];

    for (int i = 0; i < 4; i++)
        got[i] = take(i % 2 ? twin : world, 1, "ACQUIRE p 60000 PERMITS 4");
    assert_true(got[3].token != 0);
    assert_says(twin, 2, "ACQUIRE p 60000 PERMITS 4", NOBODY);
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 4 WAIT 60000", "");
    release(twin, 1, got[1]);
    assert_int_equal(heard(world, 2).permit, got[1].permit);
}

LOCAL_TEST(two_daemons_on_one_store_have_one_set_of_permits)
{
    struct world *twin = world_add_twin(world);
    struct got got[4];

    for (int i = 0; i < 4; i++)
        got[i] = take(i % 2 ? twin : world, 1, "ACQUIRE p 60000 PERMITS 4");
    assert_true(got[3].token != 0);
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 4 WAIT 60000", "");
    release(twin, 1, got[1]);
    world_pass(world, 100);
    assert_int_equal(heard(world, 2).permit, got[1].permit);
}

EITHER_TEST(a_name_of_a_permit_has_room)
{
    char name[PERMIT_RESOURCE_MAX + 2], line[PERMIT_RESOURCE_MAX + 64];

    for (int len = PERMIT_RESOURCE_MAX - 1; len <= PERMIT_RESOURCE_MAX + 1; len++) {
        memset(name, 'n', (size_t)len);
        name[len] = '\0';
        snprintf(line, sizeof line, "ACQUIRE %s 60000 PERMITS 10000", name);
        assert_begins(world, 1, line, len <= PERMIT_RESOURCE_MAX ? "*3\r\n" : "-ERR ");
    }
}

WORLD_TEST(what_cannot_go_together_is_refused_by_name)
{
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS", "-ERR syntax error: ACQUIRE takes");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 3 PERMITS 3", "-ERR syntax error: PERMITS");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 0", "-ERR ");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 10001", "-ERR ");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 10000", "*3\r\n");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 9999", "*3\r\n");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 1", "*");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS x", "-ERR ");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 3 QUEUE ID x", "-ERR PERMITS has no QUEUE");
    assert_begins(world, 1, "ACQUIREALL 60000 1 p PERMITS 3", "-ERR ");
}

EITHER_TEST(who_waits_is_told_when_the_daemon_stops)
{
    take(world, 1, "ACQUIRE p 60000 PERMITS 1");
    assert_says(world, 2, "ACQUIRE p 60000 PERMITS 1 WAIT 60000", "");
    engine_drain(world->engine);
    assert_heard_begins(world, 2, "-BUSY ");
}

WORLD_TEST(a_service_that_is_down_is_told_at_once)
{
    lease_service_set_down(world->service, "test");
    assert_begins(world, 1, "ACQUIRE p 60000 PERMITS 3 WAIT 60000", "-LEASEDOWN ");
}

TEST(the_name_of_a_permit_is_told_from_others)
{
    static const struct {
        const char *name;
        int64_t permit; /* 0: it is none */
    } names[] = {{"p#1", 1},  {"p#10000", 10000}, {"p#10001", 0}, {"p#0", 0},
                 {"p#01", 0}, {"p#", 0},          {"#1", 0},      {"p#1x", 0},
                 {"p", 0},    {"a#2#3", 3},       {"p#-1", 0},    {"", 0}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct bytes resource;
        int64_t permit = 0;
        bool is = lease_is_permit(bytes_of(names[i].name), &resource, &permit);
        assert_int_equal(is, names[i].permit != 0);
        if (is)
            assert_int_equal(permit, names[i].permit);
    }
}
