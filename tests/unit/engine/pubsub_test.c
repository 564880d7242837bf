/* SPDX-License-Identifier: Apache-2.0 */
/* SUBSCRIBE and its kin, to the byte; what is published, to whom, and within which bounds. */
#include "proxy/engine/internal.h"
#include "proxy/engine/session/events.h"
#include "proxy/engine/session/pubsub.h"
#include "tests/unit/engine/says.h"

/* The text of the last message, and nothing but messages. */
static const char *told(struct world *world, int client)
{
    static char text[2048];
    const char *all = world_received(world, client), *start = strrchr(all, '{');

    text[0] = '\0';
    if (start != NULL)
        snprintf(text, sizeof text, "%.*s", (int)strcspn(start, "\r"), start);
    return text;
}

static void publish(struct world *world, const char *resource)
{
    events_publish(world->engine, &(struct event){.kind = EVENT_RELEASED,
                                                  .resource = bytes_of(resource),
                                                  .owner = BYTES_LITERAL("o"),
                                                  .token = 1});
    world_settle(world);
}

WORLD_TEST(confirmations_are_those_of_redis)
{
    assert_says(world, 1, "SUBSCRIBE a b a",
                "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2"
                "\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:2\r\n");
    assert_says(world, 1, "PSUBSCRIBE a", "*3\r\n$10\r\npsubscribe\r\n$1\r\na\r\n:3\r\n");
    assert_says(world, 1, "UNSUBSCRIBE c b",
                "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:3\r\n*3\r\n$11\r\nunsubscribe\r\n$1\r\nb"
                "\r\n:2\r\n");
    assert_says(world, 1, "UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:1\r\n");
    assert_says(world, 1, "UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$-1\r\n:1\r\n");
    assert_says(world, 1, "PUNSUBSCRIBE", "*3\r\n$12\r\npunsubscribe\r\n$1\r\na\r\n:0\r\n");
    assert_says(world, 1, "PUNSUBSCRIBE", "*3\r\n$12\r\npunsubscribe\r\n$-1\r\n:0\r\n");
    assert_says(world, 1, "ECHO free", "$4\r\nfree\r\n");

    world_call(world, 2, "HELLO 3");
    assert_says(world, 2, "SUBSCRIBE a", ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    assert_says(world, 2, "PUNSUBSCRIBE", ">3\r\n$12\r\npunsubscribe\r\n_\r\n:1\r\n");
    assert_says(world, 2, "PSUBSCRIBE",
                "-ERR wrong number of arguments for 'psubscribe' command\r\n");
}

WORLD_TEST(a_resp2_connection_that_listens_does_nothing_else)
{
    assert_says(world, 1, "PING", "+PONG\r\n");
    world_call(world, 1, "SUBSCRIBE a");
    assert_says(world, 1, "get k",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
                "RESET are allowed in this context\r\n");
    /* One error, though its token is missing, too. */
    assert_says(world, 1, "SET k v",
                "-ERR Can't execute 'set': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
                "RESET are allowed in this context\r\n");
    assert_says(world, 1, "MULTI",
                "-ERR Can't execute 'multi': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT "
                "/ RESET are allowed in this context\r\n");
    assert_says(world, 1, "PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n");
    assert_says(world, 1, "PING hello", "*2\r\n$4\r\npong\r\n$5\r\nhello\r\n");
    assert_says(world, 1, "RESET", "+RESET\r\n");
    assert_int_equal(world_counter(world, "subscribers"), 0);
    assert_says(world, 1, "GET k", "$-1\r\n");

    world_call(world, 2, "HELLO 3");
    world_call(world, 2, "SUBSCRIBE a");
    assert_says(world, 2, "GET k", "_\r\n");
    assert_says(world, 2, "PING", "+PONG\r\n");
    assert_says(world, 2, "MULTI", "+OK\r\n");
    assert_says(world, 2, "SUBSCRIBE b", "-ERR SUBSCRIBE is no part of a transaction\r\n");
}

WORLD_TEST(every_end_of_a_lease_is_told)
{
    world_call(world, 1, "SUBSCRIBE stockade:events");
    world_call(world, 2, "ACQUIRE r 1000 OWNER ann");
    assert_string_equal(told(world, 1), "{\"event\":\"granted\",\"resource\":\"r\",\"token\":1,"
                                        "\"owner\":\"ann\",\"ttl_ms\":1000,\"time_ms\":1000000}");
    world_call(world, 2, "ACQUIRE r 1000 OWNER ann"); /* again: no news, as a renewal */
    world_call(world, 2, "RENEW r 1 1000");
    world_call(world, 2, "RELEASE r 1");
    assert_heard(world, 1, "");
    world_call(world, 2, "RELEASE r 1");
    assert_string_equal(told(world, 1), "{\"event\":\"released\",\"resource\":\"r\",\"token\":1,"
                                        "\"owner\":\"ann\",\"time_ms\":1000000}");
    world_call(world, 2, "ACQUIRE r 1000 OWNER ben");
    world_received(world, 1);
    world_call(world, 2, "REVOKE r");
    assert_string_equal(told(world, 1), "{\"event\":\"revoked\",\"resource\":\"r\",\"token\":2,"
                                        "\"owner\":\"ben\",\"time_ms\":1000000}");
    world_call(world, 2, "ACQUIRE r 1000 OWNER cas");
    world_received(world, 1);
    world_pass(world, 1010);
    assert_non_null(strstr(told(world, 1), "{\"event\":\"expired\",\"resource\":\"r\",\"token\":3,"
                                           "\"owner\":\"cas\",\"time_ms\":"));
    assert_heard(world, 1, "");
}

WORLD_TEST(a_refused_write_is_told_with_both_tokens)
{
    world_call(world, 1, "SUBSCRIBE stockade:events:b");
    for (int i = 0; i < 3; i++)
        world_call(world, 2, "ACQUIRE b 1000 OWNER ann"), world_call(world, 2, "REVOKE b");
    world_call(world, 2, "ACQUIRE b 1000 OWNER ann");
    world_call(world, 2, "ACQUIRE a 1000");
    world_received(world, 1);
    world_call(world, 2, "FENCED 2 SET b 1");
    assert_string_equal(
        told(world, 1),
        "{\"event\":\"refused\",\"time_ms\":1000000,\"resource\":\"b\",\"token\":2,"
        "\"code\":\"STALE\",\"command\":\"SET\",\"user\":\"default\",\"client\":\"\","
        "\"address\":\"test:2\",\"granted_ms\":1000000,\"late_ms\":0,\"ended\":\"revoked\","
        "\"newest\":4,\"newest_owner\":\"ann\",\"newest_address\":\"test:2\"}");
    world_call(world, 2, "FENCEDALL 2 a 1 b 9 MSET a 1 b 2");
    assert_non_null(strstr(told(world, 1), "\"token\":9,\"code\":\"UNKNOWN\""));
    world_call(world, 2, "MULTI"), world_call(world, 2, "FENCED 1 SET a 1");
    world_call(world, 2, "FENCED 3 SET b 1"), world_call(world, 2, "EXEC");
    assert_non_null(strstr(told(world, 1), "\"token\":3,\"code\":\"STALE\""));
    world_call(world, 2, "FENCED 4 SET b 1");
    assert_heard(world, 1, "");
    world_call(world, 2, "SET b 1");
    assert_non_null(strstr(told(world, 1), "\"token\":null,\"code\":\"NOTOKEN\""));
}

WORLD_TEST(names_become_json_whatever_their_bytes)
{
    static const struct {
        const char *name, *json;
    } cases[] = {
        {"plain", "plain"},
        {"a\"b\\c/d", "a\\\"b\\\\c/d"},
        {"\n\t\x01\x1f\x7f", "\\u000a\\u0009\\u0001\\u001f\\u007f"},
        {"\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xed\x9f\xbf\xf4\x8f\xbf\xbf\xee\x80\x80", "\xed\x9f\xbf\xf4\x8f\xbf\xbf\xee\x80\x80"},
        {"\xc3\xbc\xff", "\\u00c3\\u00bc\\u00ff"},
        {"a\xc3", "a\\u00c3"},                                /* cut */
        {"\xc0\x80", "\\u00c0\\u0080"},                       /* longer than needed */
        {"\xc1\xbf", "\\u00c1\\u00bf"},                       /* the same */
        {"\xe0\x9f\xbf", "\\u00e0\\u009f\\u00bf"},            /* the same */
        {"\xf0\x8f\xbf\xbf", "\\u00f0\\u008f\\u00bf\\u00bf"}, /* the same */
        {"\xed\xa0\x80", "\\u00ed\\u00a0\\u0080"},            /* a surrogate */
        {"\xf4\x90\x80\x80", "\\u00f4\\u0090\\u0080\\u0080"}, /* beyond the last character */
        {"\xf5\x80\x80\x80", "\\u00f5\\u0080\\u0080\\u0080"}, /* the same */
        {"\x80", "\\u0080"},
    };
    char expected[256];

    world_call(world, 1, "SUBSCRIBE stockade:events");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        publish(world, cases[i].name);
        snprintf(expected, sizeof expected,
                 "{\"event\":\"released\",\"resource\":\"%s\",\"token\":1,\"owner\":\"o\","
                 "\"time_ms\":1000000}",
                 cases[i].json);
        assert_string_equal(told(world, 1), expected);
    }
}

WORLD_TEST(only_those_who_asked_for_it_hear_it)
{
#define TEXT                                                                                       \
    "{\"event\":\"released\",\"resource\":\"r\",\"token\":1,\"owner\":\"o\",\"time_ms\":1000000}"
    assert_int_equal(sizeof TEXT - 1, 75);
    world_call(world, 1, "SUBSCRIBE stockade:events:r stockade:events:s other");
    world_call(world, 2, "PSUBSCRIBE stockade:e*:[r-s]");
    world_call(world, 3, "HELLO 3"), world_call(world, 3, "SUBSCRIBE stockade:events");
    world_call(world, 3, "PSUBSCRIBE *");
    world_call(world, 4, "SUBSCRIBE stockade:events:");
    publish(world, "r");
    assert_heard(world, 1,
                 "*3\r\n$7\r\nmessage\r\n$17\r\nstockade:events:r\r\n$75\r\n" TEXT "\r\n");
    assert_heard(world, 2,
                 "*4\r\n$8\r\npmessage\r\n$17\r\nstockade:e*:[r-s]\r\n$17\r\n"
                 "stockade:events:r\r\n$75\r\n" TEXT "\r\n");
    assert_heard(world, 3,
                 ">3\r\n$7\r\nmessage\r\n$15\r\nstockade:events\r\n$75\r\n" TEXT "\r\n"
                 ">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$15\r\nstockade:events\r\n$75\r\n" TEXT "\r\n"
                 ">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$17\r\nstockade:events:r\r\n$75\r\n" TEXT
                 "\r\n");
    assert_heard(world, 4, "");
    publish(world, "x");
    assert_heard(world, 1, "");
    assert_heard(world, 2, "");
    assert_int_equal(world_counter(world, "subscribers"), 4);
    assert_int_equal(world_counter(world, "subscriptions"), 7);
    assert_int_equal(world_counter(world, "events_published"), 2);
    assert_int_equal(world_counter(world, "events_delivered"), 5 + 3);
    for (int i = 1; i <= 4; i++)
        world_disconnect(world, i);
    assert_int_equal(world_counter(world, "subscriptions"), 0);
    publish(world, "r");
}

/* In RESP2 a message among replies would be taken for one. */
WORLD_TEST(a_message_never_stands_before_the_reply_to_an_earlier_command)
{
    world_send_only(world, 1, "GET k");
    world_send_only(world, 1, "SUBSCRIBE stockade:events");
    publish(world, "r");
    assert_heard_begins(world, 1, "$-1\r\n*3\r\n$9\r\nsubscribe");

    world_call(world, 2, "HELLO 3"), world_call(world, 2, "SUBSCRIBE stockade:events");
    world_send_only(world, 2, "GET k");
    world_send_only(world, 2, "HELLO 2");
    publish(world, "r"); /* before HELLO is done, or behind its reply */
    const char *all = world_received(world, 2), *replies = strstr(all, "_\r\n*14\r\n");
    const char *message = strstr(all, "3\r\n$7\r\nmessage\r\n");
    assert_non_null(replies);
    assert_in_range(message - all, 1, strlen(all));
    assert_int_equal(message[-1], message < replies ? '>' : '*');
}

/* Who hears it finds what was written. */
WORLD_TEST(a_message_comes_after_the_writes_before_it)
{
    world_call(world, 1, "ACQUIRE r 60000");
    world_call(world, 2, "SUBSCRIBE c");
    world_send_only(world, 1, "FENCED 1 SET r x");
    world_send_only(world, 1, "PUBLISH c m");
    engine_turn(world->engine);
    assert_string_equal(world_received(world, 2), "");
    assert_heard(world, 2, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
    assert_heard(world, 1, "+OK\r\n:1\r\n");
}

WORLD_TEST(a_subscriber_that_does_not_read_is_disconnected)
{
    world_call(world, 1, "SUBSCRIBE stockade:events");
    world_call(world, 2, "SUBSCRIBE stockade:events");
    session_set_unsent(world->clients[1].session, PUBSUB_UNSENT_MAX - 1000);
    publish(world, "r");
    assert_false(world->clients[1].closed);
    session_set_unsent(world->clients[1].session, PUBSUB_UNSENT_MAX - 10);
    publish(world, "r");
    assert_true(world->clients[1].closed);
    assert_false(world->clients[2].closed);
    assert_int_equal(world_counter(world, "subscribers_dropped"), 1);
    assert_int_equal(world_counter(world, "subscribers"), 1);
}

static void subscribe_many(struct world *world, int client, int from, int to, const char *prefix)
{
    struct buf line = {0};

    buf_append_text(&line, "SUBSCRIBE");
    for (int i = from; i < to; i++)
        buf_printf(&line, " %s%d", prefix, i);
    buf_append(&line, "", 1);
    world_send(world, client, line.data);
    buf_free(&line);
}

WORLD_TEST(subscriptions_are_bounded)
{
    char line[PUBSUB_NAME_MAX + 32];

    subscribe_many(world, 1, 0, PUBSUB_CONNECTION_MAX - 1, "c");
    world_received(world, 1);
    subscribe_many(world, 1, 0, PUBSUB_CONNECTION_MAX, "c"); /* all but one are there already */
    assert_heard_begins(world, 1, "*3\r\n");
    subscribe_many(world, 1, 0, PUBSUB_CONNECTION_MAX, "c");
    assert_heard_begins(world, 1, "*3\r\n");
    assert_says(world, 1, "SUBSCRIBE more",
                "-ERR at most 1024 subscriptions on one connection\r\n");
    assert_says(world, 1, "PSUBSCRIBE c1",
                "-ERR at most 1024 subscriptions on one connection; a long pattern counts as "
                "several\r\n");
    assert_int_equal(world_counter(world, "subscriptions"), PUBSUB_CONNECTION_MAX);

    memset(line, 'x', sizeof line);
    memcpy(line, "SUBSCRIBE ", 10);
    line[10 + PUBSUB_NAME_MAX] = '\0';
    assert_begins(world, 2, line, "*3\r\n");
    line[10 + PUBSUB_NAME_MAX] = 'x';
    line[11 + PUBSUB_NAME_MAX] = '\0';
    assert_says(world, 2, line, "-ERR a channel or pattern has at most 1024 bytes\r\n");
}

WORLD_TEST(subscriptions_of_all_together_are_bounded)
{
    const size_t others = PUBSUB_TOTAL_MAX - 1; /* so many connections take long */

    world->engine->pubsub.weight = others;
    assert_begins(world, 1, "SUBSCRIBE a", "*3\r\n");
    assert_begins(world, 2, "SUBSCRIBE a", "-BUSY there are too many subscriptions");
    assert_begins(world, 1, "SUBSCRIBE a", "*3\r\n"); /* which is there already */
    assert_begins(world, 1, "UNSUBSCRIBE a", "*3\r\n");
    assert_begins(world, 2, "SUBSCRIBE a", "*3\r\n");
    world->engine->pubsub.weight -= others;
}

WORLD_TEST(a_long_pattern_counts_as_several)
{
    enum { BEHIND = 11, WEIGHT = 18, MANY = PUBSUB_CONNECTION_MAX / WEIGHT };
    char line[BEHIND + PUBSUB_NAME_MAX + 1];

    memcpy(line, "PSUBSCRIBE ", BEHIND);
    memset(line + BEHIND, 'x', PUBSUB_NAME_MAX);
    line[sizeof line - 1] = '\0';
    for (int i = 0; i < MANY; i++) {
        line[BEHIND] = (char)('A' + i);
        assert_begins(world, 1, line, "*3\r\n");
        assert_begins(world, 1, line, "*3\r\n");
    }
    line[BEHIND] = '*';
    assert_begins(world, 1, line, "-ERR at most 1024 subscriptions");
    subscribe_many(world, 1, 0, PUBSUB_CONNECTION_MAX - MANY * WEIGHT, "c");
    assert_heard_begins(world, 1, "*3\r\n");
    assert_begins(world, 1, "SUBSCRIBE more", "-ERR at most 1024 subscriptions");
    assert_begins(world, 1, "PUNSUBSCRIBE", "*3\r\n");
    subscribe_many(world, 1, 0, PUBSUB_CONNECTION_MAX, "c");
    assert_heard_begins(world, 1, "*3\r\n");
}

#define LOST_R "\r\n$13\r\nstockade:lost\r\n$1\r\nr\r\n:1\r\n$7\r\nrevoked\r\n"

WORLD_TEST(a_holder_is_told_of_its_loss_in_resp3)
{
    world_call(world, 1, "HELLO 3");
    world_call(world, 1, "ACQUIRE q 1000");
    world_call(world, 3, "RELEASE q 1"); /* over another connection of its pool, perhaps */
    assert_heard(world, 1, "");
    world_call(world, 1, "ACQUIRE r 1000");
    world_call(world, 2, "ACQUIRE s 1000");
    world_call(world, 3, "REVOKE r"), world_call(world, 3, "REVOKE s");
    assert_heard(world, 1, ">4" LOST_R);
    assert_heard(world, 2, "");
}

WORLD_TEST(who_asks_for_it_with_a_renewal_is_told_in_resp2_too)
{
    world_call(world, 1, "HELLO 3");
    world_call(world, 1, "ACQUIRE r 1000");
    assert_says(world, 2, "RENEW r 1 1000 NOTIFY", ":1000\r\n");
    world_call(world, 2, "RENEW r 1 1000"); /* it has asked before */
    world_call(world, 3, "REVOKE r");
    assert_heard(world, 2, "*4" LOST_R);
    assert_heard(world, 1, ""); /* one connection is told: the last one */
    assert_begins(world, 2, "RENEW r 1 1000 NOTIFY", "-STALE ");

    world_call(world, 1, "ACQUIRE s 1000"), world_call(world, 2, "RENEW s 1 1000 notify");
    world_call(world, 1, "RELEASE s 1");
    assert_heard(world, 2, "*4\r\n$13\r\nstockade:lost\r\n$1\r\ns\r\n:1\r\n$8\r\nreleased\r\n");
    world_call(world, 1, "ACQUIRE s 1000"), world_call(world, 2, "RENEW s 2 1000 NOTIFY");
    assert_says(world, 2, "RELEASE s 2", ":0\r\n"); /* what it did itself is no news */
    assert_heard(world, 2, "");

    world_call(world, 1, "ACQUIRE t 1000"), world_call(world, 2, "RENEW t 1 1000 NOTIFY");
    world_call(world, 2, "RESET");
    world_call(world, 3, "REVOKE t");
    assert_heard(world, 2, "");
    assert_begins(world, 2, "RENEW t 1 1000 NOW", "-ERR syntax error: RENEW takes [NOTIFY]\r\n");
    assert_begins(world, 2, "RENEW t 1 1000 NOTIFY NOTIFY",
                  "-ERR syntax error: NOTIFY is given twice\r\n");
}

WORLD_TEST(who_asks_to_be_told_may_go_before_the_lease)
{
    world_call(world, 1, "ACQUIRE r 1000"), world_call(world, 2, "RENEW r 1 1000 NOTIFY");
    world_disconnect(world, 2);
    world_call(world, 3, "REVOKE r");
    assert_heard(world, 1, "");

    /* One that goes with its connection stays with it. */
    world_call(world, 1, "ACQUIRE e 1000 EPHEMERAL"), world_call(world, 3, "RENEW e 1 1000 NOTIFY");
    world_disconnect(world, 1);
    assert_says(world, 3, "ACQUIRE e 1000", GRANT(2, 1000));
}
