/* SPDX-License-Identifier: Apache-2.0 */
/* Redlock on real Redises: its timer, its start and its end. (What it decides: redlock_test.c.) */
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define SERVERS 3
#define LOCK    "stockade:{sku:1}:lock"

static struct service *servers[SERVERS];

static int setup(void **state)
{
    static struct rig rig;

    for (int i = 0; i < SERVERS; i++)
        servers[i] = redis_shared(i);
    rig_init(&rig);
    rig_open(&rig, "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?timeout_ms=5000",
             servers[0]->port, servers[1]->port, servers[2]->port);
    *state = &rig;
    return 0;
}

#define MASTERS_TEST(name) TEST_WITH(setup, rig_teardown, struct rig *rig, name)

static void await_masters(struct rig *rig)
{
    rig_until(rig, rig_detail_has(rig, "3 masters, 3 ready"));
}

/* Lock two of the three masters for two other owners, which no store has recorded. */
static struct asked split(int64_t ttl_ms)
{
    for (int i = 0; i < 2; i++)
        redis_do(servers[i], "SET %s %b PX %lld", LOCK, i == 0 ? "6 someone" : "7 another",
                 (size_t)9, (long long)ttl_ms);
    struct asked asked = rig_question(LEASE_GRANT, ann, 0);
    asked.call.floor = 5;
    return asked;
}

MASTERS_TEST(a_split_is_tried_again_until_it_counts_as_held)
{
    await_masters(rig);
    struct asked asked = split(60000);

    rig_answer(rig, &asked);
    assert_answer(asked.call, LEASE_HELD, 7);
    assert_in_range(asked.call.answer_ttl_ms, 1, 1000); /* it is soon asked again */
    redisReply *reply = redis_ask(servers[2], "GET stockade:{sku:1}:token");
    assert_true(atoi(reply->str) > 6); /* it was asked more than once */
    freeReplyObject(reply);
}

MASTERS_TEST(a_split_that_ends_in_time_is_granted)
{
    await_masters(rig);
    struct asked asked = split(5);

    rig_answer(rig, &asked);
    while (asked.call.answer == LEASE_HELD) { /* by a busy machine */
        asked.call.answer = LEASE_UNANSWERED;
        rig_answer(rig, &asked);
    }
    assert_int_equal(asked.call.answer, LEASE_GRANTED);
    assert_true(asked.call.answer_token > 5);
}

MASTERS_TEST(the_first_attempt_has_ended_when_that_of_each_master_has)
{
    int ended = 0;

    service_kill(servers[1]);
    lease_on_first_attempt(rig->provider, rig_on_event, &ended);
    rig_until(rig, ended > 0);
    assert_int_equal(ended, 1);
    rig_until(rig, rig_detail_has(rig, "3 masters, 2 ready; redis 127.0.0.1:"));
}

MASTERS_TEST(it_can_be_closed_while_it_waits)
{
    await_masters(rig);
    struct asked pausing = split(60000), silent = rig_question(LEASE_QUERY, "", 0);

    rig_ask(rig, &pausing);
    for (int i = 0; i < 2; i++)
        service_pause(servers[i]);
    silent.call.resource = BYTES_LITERAL("sku:2");
    rig_ask(rig, &silent);
    rig_turn(rig);
    rig_close(rig);
    assert_int_equal(pausing.times, 1);
    assert_int_equal(silent.times, 1);
    assert_down(silent.call, "being closed");
}
