/* SPDX-License-Identifier: Apache-2.0 */
/* What shows only between two daemons on a real ZooKeeper, or when it goes away: when a lease is
 * taken for dead, what happens when somebody else changes a node, and a release that is owed. (What
 * every provider must do: conformance_test.c.) */
#define THREADED /* for the client's blocking calls */
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/mem.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define TTL_MS 60000 /* rig_question's */

static struct service *zookeeper;
static int folders; /* each test has its own */

/* Two daemons. The test can set the second one's clock forward. */
struct pair {
    struct rig here, there;
    struct clock ahead;
    int64_t ahead_ms;
};

static int64_t ahead_now_ms(const struct clock *clock)
{
    return clock_now_ms(&clock_monotonic) + ((const struct pair *)clock->context)->ahead_ms;
}

static void open_rig(struct rig *rig, int timeout_ms)
{
    rig_open(rig, "zookeeper://127.0.0.1:%d/t%d?timeout_ms=%d&session_ms=30000", zookeeper->port,
             folders, timeout_ms);
    rig_until(rig, rig_up(rig));
}

static int setup(void **state)
{
    struct pair *pair;

    zookeeper = zookeeper_shared();
    if (zookeeper == NULL)
        return 0;
    pair = mem_zalloc(sizeof *pair);
    folders++;
    pair->ahead = (struct clock){.now_ms = ahead_now_ms, .context = pair};
    rig_init(&pair->here);
    rig_init(&pair->there);
    pair->there.surroundings.clock = &pair->ahead;
    open_rig(&pair->here, 10000);
    *state = pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;

    if (pair == NULL)
        return 0;
    rig_free(&pair->here);
    rig_free(&pair->there);
    free(pair);
    return 0;
}

#define PAIR_TEST(name) TEST_WITH(setup, teardown, struct pair *pair, name)

/* Ask as a waiter does: the daemon keeps a place in line, and remembers what it has seen. */
static struct lease_call ask_in_line(struct rig *rig)
{
    struct asked asked = rig_question(LEASE_GRANT, bob, 0);

    asked.call.waits = true;
    rig_answer(rig, &asked);
    return asked.call;
}

/* A daemon takes another one's lease for dead when it has not changed for its TTL, by its own
 * clock.
 */
PAIR_TEST(a_lease_that_is_renewed_is_not_taken_for_dead_elsewhere)
{
    struct rig *here = &pair->here, *there = &pair->there;

    open_rig(there, 10000);
    struct lease_call call = rig_call(here, LEASE_GRANT, ann, 0);
    int64_t token = call.answer_token;
    assert_answer(call, LEASE_GRANTED, token);
    assert_answer(ask_in_line(there), LEASE_HELD, token); /* sees it first */
    for (int i = 0; i < 3; i++) {
        assert_answer(rig_call(here, LEASE_RENEW, ann, token), LEASE_GRANTED, token);
        pair->ahead_ms += TTL_MS + 1;
        assert_answer(ask_in_line(there), LEASE_HELD, token);
    }
    pair->ahead_ms += TTL_MS + 1; /* its daemon has not renewed it since: it is dead or asleep */
    call = ask_in_line(there);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_true(call.answer_token > token);
}

/* Write the resource's only node, as a daemon does that takes the lease away by force. */
static void mark_as_taken(void)
{
    struct String_vector names = {0};
    char host[64], parent[64], path[160];

    zoo_set_debug_level((ZooLogLevel)0);
    snprintf(host, sizeof host, "127.0.0.1:%d", zookeeper->port);
    snprintf(parent, sizeof parent, "/t%d/stockade/sku:1", folders);
    zhandle_t *client = zookeeper_init(host, NULL, 30000, NULL, NULL, 0);
    assert_non_null(client);
    assert_int_equal(zoo_get_children(client, parent, 0, &names), ZOK);
    assert_int_equal(names.count, 1);
    snprintf(path, sizeof path, "%s/%s", parent, names.data[0]);
    assert_int_equal(zoo_set(client, path, "x", 1, -1), ZOK);
    deallocate_String_vector(&names);
    assert_int_equal(zookeeper_close(client), ZOK);
}

/* What the daemon knows of it is out of date: it reads it again and does not write over and over.
 */
PAIR_TEST(a_renewal_of_a_lease_that_somebody_has_written_reads_it_again)
{
    struct rig *here = &pair->here;

    int64_t token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    mark_as_taken();
    assert_answer(rig_call(here, LEASE_RENEW, ann, token), LEASE_HELD, 0);
}

/* Grant a lease; its release dies unread with the server. */
static void lose_release(struct rig *here)
{
    struct asked lost = rig_question(LEASE_RELEASE, ann, 0);

    lost.call.token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    service_pause(zookeeper);
    rig_ask(here, &lost);
    rig_turn(here);
    service_kill(zookeeper);
    rig_until(here, lost.answered);
    assert_int_equal(lost.call.answer, LEASE_DOWN);
}

PAIR_TEST(a_release_lost_on_its_way_ends_the_lease_when_zookeeper_is_back)
{
    struct rig *here = &pair->here;

    lose_release(here);
    service_start(zookeeper);
    rig_until(here, rig_up(here));
    /* A question may come before the timer that ends the lease. */
    rig_until(here, rig_call(here, LEASE_QUERY, "", 0).answer == LEASE_FREE);
}

/* A call may come before the timer that would end the lease. */
PAIR_TEST(who_asks_first_when_zookeeper_is_back_does_not_revive_a_lease)
{
    struct rig *here = &pair->here;

    lose_release(here);
    service_start(zookeeper);
    while (!rig_up(here))
        uv_run(&here->loop, UV_RUN_NOWAIT); /* the turn ends after the network; timers come next */
    rig_call(here, LEASE_QUERY, "", 0);
    assert_answer(rig_call(here, LEASE_QUERY, "", 0), LEASE_FREE, 0);
}

PAIR_TEST(a_release_asked_while_zookeeper_is_away_ends_the_lease_when_it_is_back)
{
    struct rig *here = &pair->here;

    int64_t token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    service_kill(zookeeper);
    rig_until(here, !rig_up(here));
    assert_int_equal(rig_call(here, LEASE_RELEASE, ann, token).answer, LEASE_DOWN);
    service_start(zookeeper);
    rig_until(here, rig_up(here));
    assert_answer(rig_call(here, LEASE_QUERY, "", 0), LEASE_FREE, 0);
}

/* Its caller was told that ZooKeeper does not answer, and knows no token. */
PAIR_TEST(a_grant_that_comes_too_late_is_given_back)
{
    struct rig *here = &pair->here, *there = &pair->there;

    open_rig(there, 100);
    service_pause(zookeeper);
    struct lease_call late = rig_call(there, LEASE_GRANT, bob, 0);
    service_resume(zookeeper);
    assert_down(late, "no answer within 100 ms");
    rig_until(there, rig_up(there));
    rig_until(there, rig_call(there, LEASE_QUERY, "", 0).answer == LEASE_FREE);
    int64_t token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    struct lease_call held; /* 100 ms are little on a busy machine */
    rig_until(there, (held = rig_call(there, LEASE_QUERY, "", 0)).answer != LEASE_DOWN);
    assert_answer(held, LEASE_HELD, token);
}

PAIR_TEST(a_token_is_the_number_of_the_transaction_that_made_the_node)
{
    struct rig *here = &pair->here;
    struct asked other = rig_question(LEASE_GRANT, ann, 0);

    struct lease_call first = rig_call(here, LEASE_GRANT, ann, 0);
    assert_int_equal(first.answer, LEASE_GRANTED);
    assert_true(first.answer_token > 1);
    other.call.resource = BYTES_LITERAL("sku:2");
    rig_answer(here, &other);
    assert_int_equal(other.call.answer, LEASE_GRANTED);
    assert_true(other.call.answer_token > first.answer_token);
    assert_answer(rig_call(here, LEASE_QUERY, "", 0), LEASE_HELD, first.answer_token);
}
