/* SPDX-License-Identifier: Apache-2.0 */
/* A Redis that is there but of no use: it refuses, is full, or is no Redis at all. Each case is
 * told with its reason, harms nobody, and is tried again at growing intervals. Then, a provider
 * that is closed in the middle of anything. (A Redis that is away: redis_away_test.c.) */
#include <unistd.h>

#include "fence/base/mem.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

RIG_TEST(refusals_are_down_with_the_reason_and_told_once)
{
    rig_open_redis(rig, 5000);
    struct asked other = rig_question(LEASE_GRANT, bob, 0);
    char text[4096];

    other.call.resource = BYTES_LITERAL("sku:2");
    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    rig_logged(rig, text, sizeof text);
    redis_do(rig->redis, "REPLICAOF 127.0.0.1 1");
    for (int i = 0; i < 3; i++) {
        struct asked again = other;
        rig_answer(rig, &again);
        assert_down(again.call, "READONLY");
        assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD,
                      1); /* it still answers questions */
    }
    assert_down(rig_call(rig, LEASE_RELEASE, ann, 1), "READONLY");
    assert_false(rig_up(rig));
    assert_true(rig_detail_has(rig, ": refuses: READONLY"));

    redis_do(rig->redis, "REPLICAOF NO ONE");
    rig_answer(rig, &other);
    assert_int_equal(other.call.answer, LEASE_GRANTED);
    assert_true(rig_up(rig));
    assert_true(rig_is_free(rig)); /* the release has followed */
    rig_logged(rig, text, sizeof text);
    assert_int_equal(rig_count(text, "refuses: READONLY"), 1);
    assert_int_equal(rig_count(text, "accepts again"), 1);
    assert_int_equal(rig_count(text, "\n"), 2);

    redis_do(rig->redis, "CONFIG SET maxmemory 1");
    assert_down(rig_call(rig, LEASE_GRANT, ann, 0), "OOM");
    redis_do(rig->redis, "CONFIG SET maxmemory 0");
    assert_int_equal(rig_call(rig, LEASE_GRANT, ann, 0).answer, LEASE_GRANTED);
}

RIG_TEST(a_redis_that_is_full_is_told_and_entered_later)
{
    redis_do(rig->redis, "CONFIG SET maxclients 1");
    redisContext *only = redisConnectUnix(rig->redis->socket);
    freeReplyObject(redisCommand(only, "PING"));
    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=5000", rig->redis->port);
    rig_until(rig, rig_detail_has(rig, "max number of clients reached"));
    freeReplyObject(redisCommand(only, "CONFIG SET maxclients 1000"));
    redisFree(only);
    rig_until(rig, rig_up(rig));
}

RIG_TEST(what_is_no_redis_is_told_and_harms_nobody)
{
    char *endless = mem_zalloc(2 * 1024 * 1024), many[8192];
    struct buf nested = {0};
    memset(endless, '+', 2 * 1024 * 1024);
    buf_append_text(&nested, "*40\r\n"); /* each part of it is complete */
    for (int i = 0; i < 40; i++) {
        buf_append_text(&nested, "$500000\r\n");
        memset(buf_reserve(&nested, 500000), 'x', 500000);
        nested.len += 500000;
        buf_append_text(&nested, "\r\n");
    }
    memset(many, 0, sizeof many);
    for (size_t i = 0; i < 1000; i++)
        memcpy(many + i * 5, "+OK\r\n", 5);
    const struct {
        const char *says, *reason;
        size_t len;
    } cases[] = {
        {"HTTP/1.1 400 Bad Request\r\n\r\n", "rotocol error", 28},
        {many, "SCRIPT LOAD did not answer with a SHA", 5000},
        {"*100000000\r\n", "an array of 100000000 elements", 12},
        {endless, "a reply without end", 2 * 1024 * 1024},
        {nested.data, "a reply without end", nested.len},
        {"-ERR go away\r\n-ERR\r\n-ERR\r\n-ERR\r\n-ERR\r\n-ERR\r\n", "ERR go away", 44},
        {"", "erver closed the connection", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_say(rig, cases[i].says, cases[i].len);
        rig_open(rig, "redis://127.0.0.1:%d", rig->chatterbox.port);
        rig_until(rig, rig_detail_has(rig, cases[i].reason));
        rig_until(rig, rig->chatterbox.visitors >= 3); /* and it tries again */
        assert_false(rig_up(rig));
        rig_close(rig);
    }
    free(endless);
    buf_free(&nested);
}

/* As many right answers as the greeting asks for, then more. */
RIG_TEST(an_answer_that_nobody_asked_for_ends_the_connection_only)
{
#define SHA "$40\r\n0123456789012345678901234567890123456789\r\n"
    static const char says[] = SHA SHA SHA SHA "+OK\r\n:1\r\n:2\r\n";

    rig_say(rig, says, sizeof says - 1);
    rig_open(rig, "redis://127.0.0.1:%d", rig->chatterbox.port);
    rig_until(rig, rig_detail_has(rig, "a reply that nobody asked for"));
}

static void fill_zero(const struct chance *chance, void *bytes, size_t len)
{
    (void)chance;
    memset(bytes, 0, len);
}

RIG_TEST(attempts_come_at_growing_intervals)
{
    const struct chance lowest = {.fill = fill_zero};

    rig_say(rig, "", 0);
    rig->surroundings.chance = &lowest;
    rig_open(rig, "redis://127.0.0.1:%d", rig->chatterbox.port);
    rig_until(rig, rig->chatterbox.visitors == 1);
    struct deadline deadline = deadline_in(10000);
    rig_until(rig, rig->chatterbox.visitors == 5);
    assert_true(deadline_spent_ms(&deadline) >= 50 + 100 + 200 + 400 - 10);
    deadline_keep(&deadline);
    rig_close(rig); /* before its dice are gone */
}

RIG_TEST(closing_answers_what_is_under_way)
{
    rig_open_redis(rig, 5000);
    struct asked asked = rig_question(LEASE_GRANT, ann, 0);

    service_pause(rig->redis);
    rig_ask(rig, &asked);
    rig_close(rig);
    assert_down(asked.call, "closed");
    assert_int_equal(asked.times, 1);
    service_resume(rig->redis);

    rig_open(rig, "redis://no-such-host.invalid:6379"); /* while it resolves */
    rig_turn(rig);
    rig_close(rig);
    rig_open(rig, "redis://127.0.0.1:%d", rig->redis->port); /* before it has begun */
    rig_close(rig);
    rig_open(rig, "redis://127.0.0.1:%d", rig->redis->port); /* while it connects */
    rig_turn(rig);
    rig_close(rig);
}

RIG_TEST(it_may_be_closed_from_an_answer)
{
    rig_open_redis(rig, 5000);
    struct closer closer;
    struct asked behind = rig_question(LEASE_QUERY, "", 0);

    rig_ask_and_close(rig, &closer);
    assert_int_equal(closer.asked.call.answer, LEASE_UNANSWERED);
    rig_ask(rig, &behind);
    rig_until(rig, closer.closed);
    assert_int_equal(behind.times, 1);
}
