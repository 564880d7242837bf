/* SPDX-License-Identifier: Apache-2.0 */
/* ACQUIRE ... QUEUE: places in the line that outlive the reply, in virtual time. */
#include "tests/unit/engine/says.h"
#include "tests/unit/test.h"

#define QUEUED(place)  "*2\r\n$6\r\nqueued\r\n:" #place "\r\n"
#define GRANTED(token) "*2\r\n:" #token "\r\n:60000\r\n"
#define NOBODY         "*-1\r\n"
#define TURN(id)       ">3\r\n$13\r\nstockade:turn\r\n$1\r\nk\r\n$1\r\n" id "\r\n"
#define ASK(id)        "ACQUIRE k 60000 QUEUE ID " id

/* A client that hears pushes. */
static void speak_resp3(struct world *world, int number)
{
    world_send(world, number, "HELLO 3");
    world_received(world, number);
}

EITHER_TEST(a_free_lease_is_granted_at_once)
{
    assert_says(world, 1, ASK("a"), GRANTED(1));
    assert_says(world, 1, ASK("a"), GRANTED(1)); /* the same ask again: no second hold */
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_says(world, 1, ASK("a"), GRANTED(2)); /* its lease has ended: anew */
    assert_says(world, 1, ASK("a"), GRANTED(2));
}

EITHER_TEST(a_place_is_told_of_its_turn_and_takes_it)
{
    speak_resp3(world, 2);
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 2, ASK("b"), QUEUED(2));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 2, "PING", "+PONG\r\n"); /* nothing else is held up */
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_string_equal(world_received(world, 2), TURN("a"));
    assert_says(world, 3, "ACQUIRE k 60000", NOBODY); /* nobody else, in its turn */
    assert_says(world, 2, ASK("b"), QUEUED(2));
    assert_says(world, 2, ASK("a"), GRANTED(2));
    assert_says(world, 2, ASK("b"), QUEUED(1));
}

EITHER_TEST(places_and_waiters_stand_in_one_line)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    world_send(world, 3, "ACQUIRE k 60000 WAIT 9000");
    assert_says(world, 2, ASK("b"), QUEUED(3));
    world_send(world, 1, "RELEASE k 1");
    assert_string_equal(world_received(world, 3), "");
    assert_says(world, 2, ASK("a"), GRANTED(2));
    world_send(world, 2, "RELEASE k 2");
    assert_string_equal(world_received(world, 3), GRANTED(3));
    assert_says(world, 2, ASK("b"), ":0\r\n" QUEUED(1));
}

EITHER_TEST(a_turn_that_is_not_taken_passes_on_after_a_second)
{
    speak_resp3(world, 2);
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 2, ASK("b"), QUEUED(2));
    world_send(world, 1, "RELEASE k 1");
    assert_string_equal(world_received(world, 2), TURN("a"));
    world_pass(world, 990);
    assert_string_equal(world_received(world, 2), "");
    world_pass(world, 20);
    assert_string_equal(world_received(world, 2), TURN("b"));
    assert_says(world, 2, ASK("a"), GRANTED(2)); /* back in its place, before the other took it */
    assert_says(world, 2, ASK("b"), QUEUED(1));
}

EITHER_TEST(who_comes_back_in_anothers_turn_does_not_take_its_place)
{
    speak_resp3(world, 2);
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 2, ASK("b"), QUEUED(2));
    world_send(world, 1, "RELEASE k 1");
    world_pass(world, 1010);
    assert_string_equal(world_received(world, 2), TURN("a") TURN("b"));
    assert_says(world, 2, ASK("a"), GRANTED(2));
    world_pass(world, 1010);
    assert_says(world, 2, "RELEASE k 2", ":0\r\n" TURN("b"));
}

EITHER_TEST(a_place_without_a_word_is_dropped)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 2, "ACQUIRE k 500 QUEUE ID b", QUEUED(2)); /* no longer than its TTL */
    assert_says(world, 2, ASK("c"), QUEUED(3));
    world_pass(world, 510);
    assert_says(world, 2, ASK("c"), QUEUED(2));
    world_pass(world, 9500);
    assert_says(world, 2, ASK("c"), QUEUED(1)); /* it has spoken, the first one has not */
    world_pass(world, 10010);
    assert_says(world, 2, "DEQUEUE k c", ":0\r\n");
}

EITHER_TEST(a_place_whose_connection_has_closed_is_passed_over_and_can_be_taken_up_again)
{
    speak_resp3(world, 3);
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 3, ASK("b"), QUEUED(2));
    world_disconnect(world, 2);
    assert_says(world, 3, ASK("b"), QUEUED(1));
    assert_says(world, 4, ASK("a"), QUEUED(1)); /* by another connection */
    assert_says(world, 3, ASK("b"), QUEUED(2));
    world_disconnect(world, 4);
    world_send(world, 1, "RELEASE k 1");
    assert_string_equal(world_received(world, 3), TURN("b"));
}

EITHER_TEST(who_asked_last_is_told)
{
    speak_resp3(world, 2);
    speak_resp3(world, 3);
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 3, ASK("a"), QUEUED(1));
    world_send(world, 1, "RELEASE k 1");
    assert_string_equal(world_received(world, 2), "");
    assert_string_equal(world_received(world, 3), TURN("a"));
}

EITHER_TEST(two_asks_at_once_for_one_place_are_both_answered)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    world_send_only(world, 2, ASK("a"));
    world_send_only(world, 3, ASK("a"));
    world_send_only(world, 2, ASK("a"));
    world_settle(world);
    assert_string_equal(world_received(world, 2), QUEUED(1) QUEUED(1));
    assert_string_equal(world_received(world, 3), QUEUED(1));
    world_send(world, 1, "RELEASE k 1");
    world_send_only(world, 2, ASK("a"));
    world_send_only(world, 3, ASK("a"));
    world_settle(world);
    assert_string_equal(world_received(world, 2), GRANTED(2));
    assert_string_equal(world_received(world, 3), GRANTED(2)); /* one hold */
    assert_says(world, 3, "RELEASE k 2", ":0\r\n");
}

/* All in one pipeline: the place is left while its first ask is under way. */
EITHER_TEST(who_leaves_the_line_and_asks_again_stands_at_its_end)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a") "\r\nDEQUEUE k a\r\n" ASK("a"), NOBODY ":1\r\n" QUEUED(1));
    assert_says(world, 3, ASK("b"), QUEUED(2));
    assert_says(world, 2, ASK("a") "\r\nDEQUEUE k a\r\n" ASK("a") "\r\nDEQUEUE k a\r\n" ASK("a"),
                NOBODY ":1\r\n" NOBODY ":1\r\n" QUEUED(2));
    assert_says(world, 2, ASK("a") "\r\n" ASK("a") "\r\nDEQUEUE k a\r\nDEQUEUE k a",
                NOBODY NOBODY ":1\r\n:0\r\n");
    assert_says(world, 3, ASK("b"), QUEUED(1));
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_says(world, 2, ASK("a") "\r\nDEQUEUE k a\r\n" ASK("a"), NOBODY ":1\r\n" QUEUED(2));
    assert_says(world, 3, ASK("b"), GRANTED(2));
}

EITHER_TEST(leaving_the_line)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 3, ASK("b"), QUEUED(2));
    assert_says(world, 2, "DEQUEUE k a", ":1\r\n");
    assert_says(world, 2, "DEQUEUE k a", ":0\r\n");
    assert_says(world, 3, ASK("b"), QUEUED(1));
}

EITHER_TEST(an_ephemeral_place_ends_with_its_connection)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a") " EPHEMERAL", QUEUED(1));
    world_disconnect(world, 2);
    assert_says(world, 3, "DEQUEUE k a", ":0\r\n");
}

EITHER_TEST(the_turn_is_an_event)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    world_send(world, 3, "SUBSCRIBE stockade:events:k");
    world_received(world, 3);
    world_send(world, 1, "RELEASE k 1");
    assert_non_null(
        strstr(world_received(world, 3), "{\"event\":\"turn\",\"resource\":\"k\",\"id\":\"a\","));
}

EITHER_TEST(an_expired_lease_is_a_turn)
{
    speak_resp3(world, 2);
    assert_says(world, 1, "ACQUIRE k 3000", "*2\r\n:1\r\n:3000\r\n");
    assert_says(world, 2, ASK("a"), QUEUED(1));
    world_pass(world, 2900);
    assert_string_equal(world_received(world, 2), "");
    world_pass(world, 110);
    assert_string_equal(world_received(world, 2), TURN("a"));
}

WORLD_TEST(a_place_survives_a_lease_service_that_is_down)
{
    speak_resp3(world, 2);
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 2, ASK("b"), QUEUED(2));
    lease_service_set_down(world->service, "gone");
    assert_begins(world, 2, ASK("a"), "-LEASEDOWN ");
    lease_service_set_down(world->service, NULL);
    assert_says(world, 2, ASK("b"), QUEUED(2));
    world_send(world, 1, "RELEASE k 1");
    assert_string_equal(world_received(world, 2), TURN("a"));
}

/* Its turn comes and goes at this daemon, while it has taken the lease at another. */
WORLD_TEST(a_turn_that_was_taken_at_another_daemon_does_not_make_that_lease_last_longer)
{
    struct world *twin = world_add_twin(world);

    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 1, "RELEASE k 1", ":0\r\n");
    assert_says(twin, 2, "ACQUIRE k 1500 QUEUE ID a", "*2\r\n:2\r\n:1500\r\n");
    world_pass(world, 1600);
    assert_says(twin, 3, "ACQUIRE k 60000", GRANTED(3));
}

EITHER_TEST(a_client_that_goes_while_it_asks_gets_nothing)
{
    world_send_only(world, 2, ASK("a"));
    world_disconnect(world, 2);
    world_settle(world);
    world_pass(world, 10010); /* and its place is gone with it */
    assert_begins(world, 1, "LEASE k", "$-1");
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
}

EITHER_TEST(the_daemon_stops_and_the_line_ends)
{
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    engine_drain(world->engine);
    world_settle(world);
    assert_begins(world, 2, ASK("a"), "-BUSY ");
}

EITHER_TEST(what_is_refused)
{
    static const struct {
        const char *line, *reply;
    } cases[] = {
        {"ACQUIRE k 60000 QUEUE", "-ERR QUEUE needs an ID"},
        {"ACQUIRE k 60000 QUEUE ID a WAIT 5", "-ERR WAIT holds the reply back"},
        {"ACQUIRE k 60000 WAIT 0 QUEUE ID a", "-ERR WAIT holds the reply back"},
        {"ACQUIREALL 60000 1 k QUEUE ID a", "-ERR ACQUIREALL has no QUEUE"},
        {"ACQUIRE k 60000 QUEUE ID a OWNER other", "-ERR this ID stands in line for another owner"},
        {"DEQUEUE k", "-ERR wrong number of arguments"},
    };
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_begins(world, 2, cases[i].line, cases[i].reply);
    assert_says(world, 1, "FENCED 1 ID b SET k v", "+OK\r\n");
    assert_begins(world, 2, ASK("b"), "-ERR this ID was used for another command");
    assert_says(world, 2, ASK("a"), QUEUED(1));
}

WORLD_TEST(places_count_as_waiters)
{
    struct engine_options options = world->options;

    options.limits.things[ACCOUNT_WAITERS] = 2;
    world_renew(world, &options);
    assert_says(world, 1, "ACQUIRE k 60000", GRANTED(1));
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_says(world, 2, ASK("b"), QUEUED(2));
    assert_begins(world, 2, ASK("c"), "-BUSY too many ACQUIREs under way or waiting");
    assert_says(world, 2, ASK("a"), QUEUED(1));
    assert_non_null(strstr(world_call(world, 2, "LEASE k"), "$7\r\nwaiters\r\n:2\r\n"));
}
