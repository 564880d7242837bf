/* SPDX-License-Identifier: Apache-2.0 */
/* What shows only between two daemons on a real ZooKeeper, or when it goes away: whose lease is
 * taken for dead, what is done about a change by somebody else, and a release that is owed. */
#define THREADED /* the client calls that wait */
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#include "fence/base/mem.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/fence/zookeeper_server.h"
#include "tests/unit/test.h"

#define TTL_MS 60000 /* rig_question's */

static const char ann[] = "a0000000000000000000000000000001";
static const char bob[] = "b0000000000000000000000000000002";

static struct zookeeper_server *server; /* one for all; a test's program is one process */
static int folders;

/* Two daemons. The second one's clock is the test's to set forward. */
struct pair {
    struct rig here, there;
    struct clock ahead;
    int64_t ahead_ms;
};

static int64_t ahead_now_ms(const struct clock *clock)
{
    return clock_now_ms(&clock_monotonic) + ((const struct pair *)clock->context)->ahead_ms;
}

static void open_rig(struct rig *rig)
{
    rig_open(rig, "zookeeper://127.0.0.1:%d/t%d?timeout_ms=10000&session_ms=30000", server->port,
             folders);
    rig_until(rig, rig_up(rig));
}

static int setup(void **state)
{
    struct pair *pair = mem_zalloc(sizeof *pair);

    folders++;
    pair->ahead = (struct clock){.now_ms = ahead_now_ms, .context = pair};
    rig_init(&pair->here);
    rig_init(&pair->there);
    pair->there.surroundings.clock = &pair->ahead;
    open_rig(&pair->here);
    *state = pair;
    return 0;
}

static int teardown(void **state)
{
    struct pair *pair = *state;

    rig_free(&pair->here);
    rig_free(&pair->there);
    free(pair);
    return 0;
}

#define PAIR_TEST(name) TEST_WITH(setup, teardown, struct pair *pair, name)

/* As who waits does: the daemon keeps a place in line, and remembers what it has seen. */
static struct lease_call ask_in_line(struct rig *rig)
{
    struct asked asked = rig_question(LEASE_GRANT, bob, 0);

    asked.call.waits = true;
    rig_answer(rig, &asked);
    return asked.call;
}

/* Another daemon's lease is dead when it has not changed for its TTL, by one's own clock. */
PAIR_TEST(a_lease_that_is_renewed_is_not_taken_for_dead_elsewhere)
{
    struct rig *here = &pair->here, *there = &pair->there;

    open_rig(there);
    struct lease_call call = rig_call(here, LEASE_GRANT, ann, 0);
    int64_t token = call.answer_token;
    assert_answer(call, LEASE_GRANTED, token);
    assert_answer(ask_in_line(there), LEASE_HELD, token); /* sees it first */
    for (int i = 0; i < 3; i++) {
        assert_answer(rig_call(here, LEASE_RENEW, ann, token), LEASE_GRANTED, token);
        pair->ahead_ms += TTL_MS + 1;
        assert_answer(ask_in_line(there), LEASE_HELD, token);
    }
    pair->ahead_ms += TTL_MS + 1; /* not renewed since: its daemon is dead or asleep */
    call = ask_in_line(there);
    assert_int_equal(call.answer, LEASE_GRANTED);
    assert_true(call.answer_token > token);
}

/* Writes the one node of the resource, as a daemon does that takes the lease away by force. */
static void mark_as_taken(void)
{
    struct String_vector names = {0};
    char host[64], parent[64], path[160];

    zoo_set_debug_level((ZooLogLevel)0);
    snprintf(host, sizeof host, "127.0.0.1:%d", server->port);
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

/* What is known of it is out of date then: it is read again, not written over and over. */
PAIR_TEST(a_renewal_of_a_lease_that_somebody_has_written_reads_it_again)
{
    struct rig *here = &((struct pair *)pair)->here;

    int64_t token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    mark_as_taken();
    assert_answer(rig_call(here, LEASE_RENEW, ann, token), LEASE_HELD, 0);
}

PAIR_TEST(a_release_lost_on_its_way_ends_the_lease_when_zookeeper_is_back)
{
    struct rig *here = &((struct pair *)pair)->here;
    struct asked lost = rig_question(LEASE_RELEASE, ann, 0);

    lost.call.token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    zookeeper_server_pause(server);
    rig_ask(here, &lost);
    rig_turn(here); /* it dies unread with the server */
    zookeeper_server_kill(server);
    rig_until(here, lost.answered);
    assert_int_equal(lost.call.answer, LEASE_DOWN);
    zookeeper_server_start(server);
    rig_until(here, rig_up(here));
    assert_answer(rig_call(here, LEASE_QUERY, "", 0), LEASE_FREE, 0);
}

/* A call may come before the timer that would end the lease. */
PAIR_TEST(who_asks_first_when_zookeeper_is_back_does_not_revive_a_lease)
{
    struct rig *here = &((struct pair *)pair)->here;
    struct asked lost = rig_question(LEASE_RELEASE, ann, 0);

    lost.call.token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    zookeeper_server_pause(server);
    rig_ask(here, &lost);
    rig_turn(here);
    zookeeper_server_kill(server);
    rig_until(here, lost.answered);
    zookeeper_server_start(server);
    while (!rig_up(here))
        uv_run(&here->loop, UV_RUN_NOWAIT); /* ends behind its network, timers come next */
    rig_call(here, LEASE_QUERY, "", 0);
    assert_answer(rig_call(here, LEASE_QUERY, "", 0), LEASE_FREE, 0);
}

PAIR_TEST(a_release_asked_while_zookeeper_is_away_ends_the_lease_when_it_is_back)
{
    struct rig *here = &((struct pair *)pair)->here;

    int64_t token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    zookeeper_server_kill(server);
    rig_until(here, !rig_up(here));
    assert_int_equal(rig_call(here, LEASE_RELEASE, ann, token).answer, LEASE_DOWN);
    zookeeper_server_start(server);
    rig_until(here, rig_up(here));
    assert_answer(rig_call(here, LEASE_QUERY, "", 0), LEASE_FREE, 0);
}

/* Its caller was told that ZooKeeper does not answer, and knows no token of it. */
PAIR_TEST(a_grant_that_comes_too_late_is_given_back)
{
    struct rig *here = &pair->here, *there = &pair->there;

    rig_open(there, "zookeeper://127.0.0.1:%d/t%d?timeout_ms=100&session_ms=30000", server->port,
             folders);
    rig_until(there, rig_up(there));
    zookeeper_server_pause(server);
    struct lease_call late = rig_call(there, LEASE_GRANT, bob, 0);
    zookeeper_server_resume(server);
    assert_down(late, "no answer within 100 ms");
    rig_until(there, rig_up(there));
    rig_until(there, rig_call(there, LEASE_QUERY, "", 0).answer == LEASE_FREE);
    int64_t token = rig_call(here, LEASE_GRANT, ann, 0).answer_token;
    assert_answer(rig_call(there, LEASE_QUERY, "", 0), LEASE_HELD, token);
}

static void left_out_by_the_user(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const struct CMUnitTest none[] = {cmocka_unit_test(left_out_by_the_user)};

    if (zookeeper_left_out())
        return cmocka_run_group_tests(none, NULL, NULL);
    server = zookeeper_server_new();
    int failed = unit_tests_run();
    zookeeper_server_free(server);
    return failed;
}
