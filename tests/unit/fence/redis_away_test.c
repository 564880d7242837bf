/* SPDX-License-Identifier: Apache-2.0 */
/* A Redis that is away: not there, silent, paused, dead, restarted. Each time, every call is
 * answered once and in time, with the reason; the provider comes back by itself, and then gives
 * back what it could not give back before. (A Redis that refuses, or is no Redis:
 * redis_refusals_test.c.) */
#include <unistd.h>

#include "fence/base/mem.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define CALLS_MAX 100000 /* the provider's */

/* Long enough for a Redis that has to wait for its turn on a busy machine. */
enum { SILENT_MS = 500 };

RIG_TEST(a_redis_that_is_not_there_yet_is_told_once_and_found_later)
{
    char text[4096];
    int firsts = 0;

    service_kill(rig->redis);
    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=5000", rig->redis->port);
    lease_on_first_attempt(rig->provider, rig_on_event, &firsts);
    assert_false(rig_up(rig));
    assert_true(rig_detail_has(rig, "connecting"));
    assert_down(rig_call(rig, LEASE_GRANT, ann, 0), "not connected yet");
    rig_until(rig, firsts == 1);
    assert_true(rig_detail_has(rig, ": connection refused, trying again in 0."));
    assert_down(rig_call(rig, LEASE_GRANT, ann, 0), "connection refused");
    struct deadline attempts = deadline_in(500); /* several */
    rig_until(rig, deadline_spent_ms(&attempts) > attempts.allowed_ms);
    rig_logged(rig, text, sizeof text);
    assert_int_equal(rig_count(text, "\n"), 1);
    assert_int_equal(rig_count(text, "is down: connection refused"), 1);

    service_start(rig->redis);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    rig_logged(rig, text, sizeof text);
    assert_int_equal(rig_count(text, "\n"), 1);
    assert_int_equal(rig_count(text, "is ready"), 1);
    lease_on_first_attempt(rig->provider, rig_on_event, &firsts);
    assert_int_equal(firsts, 2); /* at once */
}

RIG_TEST(a_unix_socket_that_is_not_there_is_told)
{
    rig_open(rig, "redis+unix:%s/nothing.sock", rig->redis->folder);
    rig_until(rig, rig_detail_has(rig, "/nothing.sock: no such file or directory"));
    assert_down(rig_call(rig, LEASE_GRANT, ann, 0), "no such file or directory");
}

RIG_TEST(a_name_without_address_is_told)
{
    rig_open(rig, "redis://no-such-host.invalid:6379?timeout_ms=300");
    rig_until(rig, rig_detail_has(rig, "resolved"));
    assert_down(rig_call(rig, LEASE_GRANT, ann, 0), "resolved");
}

RIG_TEST(a_server_that_accepts_and_stays_silent_is_noticed)
{
    int port, firsts = 0, fd = silent_server(&port);

    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=50", port);
    lease_on_first_attempt(rig->provider, rig_on_event, &firsts);
    rig_until(rig, rig_detail_has(rig, "no answer within 50 ms"));
    assert_int_equal(firsts, 1);
    close(fd);
    rig_until(rig, rig_detail_has(rig, "connection refused"));
}

RIG_TEST(the_first_attempt_counts_as_ended_after_a_second)
{
    int port, firsts = 0, fd = silent_server(&port);
    struct deadline deadline = deadline_in(HANG_MS);

    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=60000", port);
    lease_on_first_attempt(rig->provider, rig_on_event, &firsts);
    rig_until(rig, firsts == 1);
    assert_true(deadline_spent_ms(&deadline) >= 1000 - 1); /* floored clocks */
    deadline_keep(&deadline);
    close(fd);
}

RIG_TEST(a_paused_redis_answers_down_in_time_and_gets_back_what_it_granted)
{
    rig_open_redis(rig, SILENT_MS);
    struct asked calls[] = {rig_question(LEASE_GRANT, ann, 0), rig_question(LEASE_QUERY, "", 0)};

    service_pause(rig->redis);
    struct deadline deadline = deadline_in(5000); /* ten times SILENT_MS */
    for (size_t i = 0; i < 2; i++)
        rig_ask(rig, &calls[i]);
    rig_until(rig, calls[0].answered && calls[1].answered);
    assert_true(deadline_spent_ms(&deadline) >= SILENT_MS - 1); /* floored clocks */
    deadline_keep(&deadline);
    for (size_t i = 0; i < 2; i++) {
        assert_down(calls[i].call, "no answer within 500 ms");
        assert_int_equal(calls[i].times, 1);
    }
    assert_false(rig_up(rig));
    assert_down(rig_call(rig, LEASE_GRANT, bob, 0), "no answer within 500 ms"); /* at once */

    /* The grant waits in the paused server's socket; it happens now, and is given back. */
    service_resume(rig->redis);
    rig_until(rig, rig_up(rig));
    rig_until(rig, rig_is_free(rig));
    assert_true(lease_provider_health(rig->provider).reconnects >= 1);
}

RIG_TEST(a_reentry_without_answer_leaves_the_lease_alone)
{
    rig_open_redis(rig, SILENT_MS);
    struct asked again = rig_question(LEASE_GRANT, ann, 0);

    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    again.call.record = (struct lease_record){.token = 1, .live = true, .this_opening = true};
    memcpy(again.call.record.nonce, ann, sizeof ann);
    service_pause(rig->redis);
    rig_answer(rig, &again);
    assert_down(again.call, "no answer");
    service_resume(rig->redis);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD, 1);
}

static struct lease_provider *open_other(struct rig *rig, int timeout_ms)
{
    struct watched *other =
        rig_open_other(rig, "redis://127.0.0.1:%d?timeout_ms=%d", rig->redis->port, timeout_ms);

    rig_until(rig, lease_provider_health(other->provider).up);
    return other->provider;
}

RIG_TEST(a_debt_leaves_alone_what_its_owner_has_taken_at_another_daemon)
{
    rig_open_redis(rig, 100);
    struct asked here = rig_question(LEASE_GRANT, ann, 0), there = here;

    struct lease_provider *other = open_other(rig, 5000);
    service_pause(rig->redis);
    rig_answer(rig, &here);
    assert_down(here.call, "no answer");
    rig_ask_at(other, &there);
    /* Both grants happen, in whichever order; then the first one's daemon pays its debt. */
    service_resume(rig->redis);
    rig_until(rig, there.answered && rig_up(rig));
    assert_int_equal(there.call.answer_token, 1);
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD, 1);
    assert_answer(rig_call(rig, LEASE_GRANT, bob, 0), LEASE_HELD, 1);
}

RIG_TEST(what_two_daemons_owe_for_one_owner_is_let_go_when_both_have_paid)
{
    rig_open_redis(rig, 100);
    struct asked here = rig_question(LEASE_GRANT, ann, 0), there = here;

    struct lease_provider *other = open_other(rig, 100);
    service_pause(rig->redis);
    rig_ask(rig, &here);
    rig_ask_at(other, &there);
    rig_until(rig, here.answered && there.answered);
    assert_down(here.call, "no answer");
    assert_down(there.call, "no answer");
    service_resume(rig->redis);
    rig_until(rig, rig_up(rig) && lease_provider_health(other).up);
    rig_until(rig, rig_is_free(rig));
}

RIG_TEST(a_release_asked_while_redis_is_away_is_delivered_when_it_is_back)
{
    rig_open_redis(rig, SILENT_MS);

    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    service_pause(rig->redis);
    assert_down(rig_call(rig, LEASE_QUERY, "", 0), "no answer");
    assert_false(rig_up(rig));
    assert_down(rig_call(rig, LEASE_RELEASE, ann, 1), "no answer"); /* at once: it is not sent */
    service_resume(rig->redis);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_FREE, 0); /* the debt went first */
}

RIG_TEST(a_release_lost_on_its_way_is_delivered_when_redis_is_back)
{
    static const char *const durable[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct service *durable_server = redis_new(durable);
    struct asked lost = rig_question(LEASE_RELEASE, ann, 1);

    rig_open(rig, "redis://127.0.0.1:%d?timeout_ms=5000", durable_server->port);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    service_pause(durable_server);
    rig_ask(rig, &lost);
    rig_turn(rig); /* it is sent, and dies unread with the server */
    service_kill(durable_server);
    rig_until(rig, lost.answered);
    assert_int_equal(lost.call.answer, LEASE_DOWN);
    service_start(durable_server);
    redisReply *reply = redis_ask(durable_server, "GET stockade:{sku:1}:lock");
    assert_int_equal(reply->type, REDIS_REPLY_STRING); /* restored from its log */
    freeReplyObject(reply);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_FREE, 0);
    service_free(durable_server);
}

RIG_TEST(a_debt_that_is_paid_late_cannot_undo_a_newer_grant)
{
    rig_open_redis(rig, SILENT_MS);

    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    service_pause(rig->redis);
    assert_down(rig_call(rig, LEASE_RELEASE, ann, 1), "no answer");
    assert_down(rig_call(rig, LEASE_GRANT, bob, 1), "no answer");
    service_resume(rig->redis);
    rig_until(rig, rig_up(rig));
    struct lease_call next = rig_grant(rig, bob, 1);
    assert_int_equal(next.answer, LEASE_GRANTED);
    assert_true(next.answer_token >= 2);
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD, next.answer_token);
}

RIG_TEST(a_debt_is_forgotten_when_the_lease_is_over)
{
    rig_open_redis(rig, SILENT_MS);
    struct asked brief = rig_question(LEASE_RELEASE, ann, 1);

    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    service_pause(rig->redis);
    brief.call.ttl_ms = 1;
    rig_answer(rig, &brief);
    /* The server reads now what was sent before it paused, so begin with a new lock. */
    service_resume(rig->redis);
    rig_until(rig, rig_up(rig));
    redis_do(rig->redis, "SET stockade:{sku:1}:lock %b", "1 a0000000000000000000000000000001",
             (size_t)34);
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD, 1);
}

RIG_TEST(a_restarted_and_empty_redis_mints_above_the_floor)
{
    rig_open_redis(rig, 5000);

    assert_answer(rig_grant(rig, bob, 41), LEASE_GRANTED, 42);
    service_kill(rig->redis);
    rig_until(rig, !rig_up(rig));
    assert_down(rig_call(rig, LEASE_GRANT, ann, 0), "");
    service_start(rig->redis);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_grant(rig, ann, 42), LEASE_GRANTED, 43);
}

RIG_TEST(calls_under_way_when_redis_dies_are_answered_once)
{
    rig_open_redis(rig, 5000);
    struct asked calls[100];

    service_pause(rig->redis);
    for (int i = 0; i < 100; i++) {
        calls[i] = rig_question(LEASE_QUERY, "", 0);
        rig_ask(rig, &calls[i]);
        assert_false(calls[i].answered);
    }
    rig_turn(rig);
    service_kill(rig->redis);
    struct deadline deadline = deadline_in(4000); /* not by the time limit */
    rig_until(rig, calls[99].answered);
    deadline_keep(&deadline);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(calls[i].times, 1);
        assert_int_equal(calls[i].call.answer, LEASE_DOWN);
        assert_string_not_equal(calls[i].call.reason, "");
    }
    service_start(rig->redis);
    rig_until(rig, rig_up(rig));
}

RIG_TEST(too_many_calls_under_way_are_refused)
{
    rig_open_redis(rig, 5000);
    struct asked *calls = mem_zalloc((CALLS_MAX + 1) * sizeof *calls);

    service_pause(rig->redis);
    for (int i = 0; i <= CALLS_MAX; i++) {
        calls[i] = rig_question(LEASE_QUERY, "", 0);
        rig_ask(rig, &calls[i]);
        assert_int_equal(calls[i].answered, i == CALLS_MAX);
    }
    assert_down(calls[CALLS_MAX].call, "too many calls");
    service_resume(rig->redis);
    rig_until(rig, calls[CALLS_MAX - 1].answered);
    for (int i = 0; i < CALLS_MAX; i++)
        assert_int_equal(calls[i].call.answer, LEASE_FREE);
    free(calls);
}

RIG_TEST(a_pause_of_our_own_is_not_taken_for_silence)
{
    rig_open_redis(rig, SILENT_MS);
    struct asked asked = rig_question(LEASE_GRANT, ann, 0);

    rig_ask(rig, &asked);
    rig_turn(rig);                    /* it is sent */
    usleep((SILENT_MS + 200) * 1000); /* the pause itself */
    rig_until(rig, asked.answered);
    assert_answer(asked.call, LEASE_GRANTED, 1);
    assert_true(rig_up(rig));
}
