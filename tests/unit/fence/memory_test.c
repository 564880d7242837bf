/* SPDX-License-Identifier: Apache-2.0 */
/* The faults of the in-memory lease service: what it loses, and when it answers. (What every
 * provider must do: conformance_test.c.) */
#include "tests/twins/memory_lease.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

static int64_t held_still(const struct clock *clock)
{
    return *(const int64_t *)clock->context;
}

struct world {
    int64_t now_ms;
    struct clock clock;
    struct lease_service *service;
    struct lease_provider *daemons[2]; /* that share the service */
    bool closed;                       /* of the last one that was */
};

static int setup(void **state)
{
    static struct world world;

    world.now_ms = 5000;
    world.clock = (struct clock){.now_ms = held_still, .context = &world.now_ms};
    world.service = lease_service_new(&world.clock);
    world.daemons[0] = lease_memory_new(world.service);
    world.daemons[1] = lease_memory_new(world.service);
    *state = &world;
    return 0;
}

static int teardown(void **state)
{
    struct world *world = *state;

    for (int i = 0; i < 2; i++)
        if (world->daemons[i] != NULL)
            lease_provider_close(world->daemons[i], rig_on_closed, &world->closed);
    lease_service_free(world->service);
    return 0;
}

#define WORLD_TEST(name) TEST_WITH(setup, teardown, struct world *world, name)

static struct asked grant(const char *nonce, int64_t floor)
{
    struct asked asked = rig_question(LEASE_GRANT, nonce, 0);

    asked.call.ttl_ms = 1000;
    asked.call.floor = floor;
    return asked;
}

/* Ask, and have the answer at once. */
static struct lease_call answer(struct lease_provider *daemon, struct asked asked)
{
    rig_ask_at(daemon, &asked);
    assert_int_equal(asked.times, 1);
    return asked.call;
}

static struct lease_call granted(struct lease_provider *daemon, const char *nonce, int64_t floor)
{
    return answer(daemon, grant(nonce, floor));
}

WORLD_TEST(daemons_share_one_service)
{
    assert_int_equal(granted(world->daemons[0], ann, 0).answer_token, 1);
    struct lease_call call = granted(world->daemons[1], bob, 0);
    assert_int_equal(call.answer, LEASE_HELD);
    assert_int_equal(call.answer_ttl_ms, 1000);
    world->now_ms += 999;
    assert_int_equal(granted(world->daemons[1], bob, 0).answer_ttl_ms, 1);
    world->now_ms += 1;
    assert_int_equal(granted(world->daemons[1], bob, 0).answer_token, 2);
}

WORLD_TEST(it_loses_everything_when_told)
{
    granted(world->daemons[0], ann, 40);
    lease_service_lose_all(world->service);
    struct lease_call call = granted(world->daemons[1], bob, 0);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_int_equal(call.answer_token, 1); /* the counter went too */
}

WORLD_TEST(it_loses_what_came_after_the_mark)
{
    granted(world->daemons[0], ann, 40);
    lease_service_mark(world->service);
    world->now_ms += 1000;
    assert_int_equal(granted(world->daemons[1], bob, 0).answer_token, 42);
    world->now_ms += 1000;
    lease_service_lose_tail(world->service);
    assert_int_equal(granted(world->daemons[1], bob, 0).answer_token, 42); /* again! */
}

WORLD_TEST(it_is_down_when_told)
{
    lease_service_set_down(world->service, "the cable is out");
    struct lease_call call = granted(world->daemons[0], ann, 0);
    assert_int_equal(call.answer, LEASE_DOWN);
    assert_string_equal(call.reason, "the cable is out");
    struct lease_health health = lease_provider_health(world->daemons[0]);
    assert_false(health.up);
    assert_string_equal(health.detail, "memory: the cable is out");
    assert_int_equal(health.failures, 1);
    lease_service_set_down(world->service, NULL);
    assert_int_equal(granted(world->daemons[0], ann, 0).answer, LEASE_GRANTED);
    assert_true(lease_provider_health(world->daemons[0]).up);
}

WORLD_TEST(it_answers_late_when_told)
{
    struct asked a = grant(ann, 0), b = grant(bob, 0);

    assert_int_equal(lease_service_next_ms(world->service), -1);
    lease_service_set_late(world->service, 20);
    rig_ask_at(world->daemons[0], &a);
    assert_false(a.answered);
    world->now_ms += 5;
    rig_ask_at(world->daemons[1], &b);
    assert_false(a.answered || b.answered);
    assert_int_equal(lease_service_next_ms(world->service), 5020);
    world->now_ms = 5019;
    assert_int_equal(lease_service_step(world->service), 0);
    world->now_ms = 5020;
    assert_int_equal(lease_service_step(world->service), 1);
    assert_false(b.answered);
    assert_int_equal(a.call.answer, LEASE_GRANTED);
    world->now_ms = 5025;
    assert_int_equal(lease_service_step(world->service), 1);
    assert_int_equal(b.call.answer, LEASE_HELD);
    assert_int_equal(lease_service_step(world->service), 0);
}

WORLD_TEST(an_answer_on_its_way_is_lost_when_it_goes_down)
{
    struct asked a = grant(ann, 0);

    lease_service_set_late(world->service, -1);
    rig_ask_at(world->daemons[0], &a);
    assert_false(a.answered);
    world->now_ms += 100;
    assert_int_equal(lease_service_step(world->service), 0);
    lease_service_set_down(world->service, "gone");
    assert_int_equal(a.times, 1);
    assert_int_equal(a.call.answer, LEASE_DOWN);
    lease_service_set_down(world->service, NULL);
    lease_service_set_late(world->service, 0);
    assert_int_equal(granted(world->daemons[1], bob, 0).answer, LEASE_HELD); /* it happened */
}

WORLD_TEST(closing_answers_what_is_under_way)
{
    struct asked a = grant(ann, 0);

    lease_service_set_late(world->service, -1);
    rig_ask_at(world->daemons[0], &a);
    assert_false(a.answered);
    lease_provider_close(world->daemons[0], rig_on_closed, &world->closed);
    world->daemons[0] = NULL;
    assert_int_equal(a.times, 1);
    assert_int_equal(a.call.answer, LEASE_DOWN);
}

struct heard {
    int count;
    struct lease_news last;
};

static void on_news(void *context, const struct lease_news *news)
{
    struct heard *heard = context;

    heard->count++;
    heard->last = *news;
}

static void give_back(struct lease_provider *daemon, int64_t token, bool revoked)
{
    struct asked asked = rig_question(LEASE_RELEASE, ann, token);

    asked.call.revoked = revoked;
    answer(daemon, asked);
}

WORLD_TEST(others_hear_of_an_end_unless_the_news_is_lost)
{
    struct heard heard = {.count = 0}, own = {.count = 0};

    lease_provider_watch(world->daemons[0], on_news, &own);
    lease_provider_watch(world->daemons[1], on_news, &heard);
    (void)granted(world->daemons[0], ann, 0);
    assert_int_equal(heard.count, 0);
    give_back(world->daemons[0], 1, false);
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.last.token, 1);
    assert_false(heard.last.revoked);
    lease_service_lose_news(world->service, true);
    (void)granted(world->daemons[0], ann, 0);
    give_back(world->daemons[0], 2, false);
    assert_int_equal(heard.count, 1);
    lease_service_lose_news(world->service, false);
    (void)granted(world->daemons[0], ann, 0);
    give_back(world->daemons[0], 3, true);
    assert_int_equal(heard.count, 2);
    assert_true(heard.last.revoked);
    assert_int_equal(own.count, 0);
    assert_int_equal(lease_provider_health(world->daemons[1]).news, 2);
}
