/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits on a connection is told DEADLOCK when that which would end the wait stands behind it,
 * and never before: a connection is not its caller, as pools lend it from one to the next. */
#include <stdio.h>

#include "tests/unit/engine/says.h"

#define UNLOCK "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock:k me"
#define EXTEND "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock:k me 5000"

static const char *const patterns[] = {"lock:*"};
static const struct engine_options options = {
    .lock_keys = patterns, .lock_keys_count = 1, .receipts_keep_ms = 60000};

static int setup(void **state)
{
    *state = world_new(&options);
    return 0;
}

#define LOCK_TEST(name) TEST_WITH(setup, world_teardown, struct world *world, name)

/* Each way to wait for "k", which another caller of the connection holds under token 2. */
static const char *const waits[] = {
    "ACQUIRE k 60000 WAIT 9000",
    "ACQUIRE k 60000 WAIT 9000 OWNER you ID i EPHEMERAL",
    "ACQUIREALL 60000 1 k WAIT 9000",
    "ACQUIREALL 60000 3 a k z WAIT 9000 ID i",
};

enum { WAITS = sizeof waits / sizeof *waits };

/* In a new world: it was granted over the same connection as the waits are to come. */
static void hold(struct world *world)
{
    world_renew(world, &options);
    assert_says(world, 2, "ACQUIRE k 60000", GRANT(1, 60000));
    assert_says(world, 2, "RELEASE k 1", ":0\r\n");
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me", GRANT(2, 60000));
}

static void assert_deadlock(struct world *world, int client)
{
    assert_heard_begins(world, client, "-DEADLOCK ");
}

LOCK_TEST(a_connection_waits_for_a_lease_that_was_granted_over_it)
{
    for (int i = 0; i < WAITS; i++) {
        hold(world);
        assert_says(world, 1, waits[i], "");
        assert_says(world, 2, "RELEASE k 2", ":0\r\n");
        assert_heard_begins(world, 1, "*");
        assert_int_equal(lease_says(world, "k", "token"), 3);
    }
}

LOCK_TEST(a_connection_whose_last_caller_died_waits_for_the_ttl)
{
    assert_says(world, 1, "ACQUIRE k 300", GRANT(1, 300));
    assert_says(world, 1, "ACQUIRE k 60000 WAIT 5000", "");
    world_pass(world, 301);
    assert_heard(world, 1, GRANT(2, 60000));
}

LOCK_TEST(the_same_owner_enters_again_though_it_could_wait)
{
    hold(world);
    assert_says(world, 1, "ACQUIRE k 60000 OWNER me WAIT 9000", GRANT(2, 60000));
}

LOCK_TEST(what_would_end_a_wait_and_stands_behind_it_makes_it_a_deadlock)
{
    static const char *const ends[] =
        {
            "RELEASE k 2",       "release k 2 ID r",     "REVOKE k",
            "RELEASE k 3", /* granted over another connection since */
            "DEL lock:k",        "UNLINK lock:k",        UNLOCK,
            "DELIFEQ lock:k me", "DELEX lock:k IFEQ me",
        };
    char line[200];

    for (int i = 0; i < WAITS; i++)
        for (size_t j = 0; j < sizeof ends / sizeof *ends; j++)
            for (int way = 0; way < 4; way++) {
                hold(world);
                if (way < 3)
                    assert_says(world, 1, waits[i], "");
                if (way == 1) /* behind others that wait, too */
                    assert_says(world, 1, "PING", "");
                if (way == 2)
                    assert_says(world, 1, "GET x\r\nPING\r\nFENCED 2 GET k\r\nGET y", "");
                snprintf(line, sizeof line, "%s\r\nGET x\r\n%s", waits[i], ends[j]);
                if (way == 3) /* all in one packet */
                    world_send_only(world, 1, line);
                else
                    world_send_only(world, 1, ends[j]);
                assert_deadlock(world, 1);
                assert_says(world, 1, "PING", "+PONG\r\n");
            }
}

LOCK_TEST(what_ends_no_lease_that_is_waited_for_is_no_deadlock)
{
    static const char *const others[] = {
        "RELEASE k 1", /* over for long */
        "RELEASE j 2",      "REVOKE j",         "RENEW k 2 9000", "DEQUEUE k 2", "GET k",
        "LEASE k",          "DEL lock:j",       "DEL k",          EXTEND,        "RELEASE k x",
        "RELEASE k",        "REVOKE k k",       "EVALSHA x",      "GET lock:k",  "ACQUIRE k 60000",
        "FENCED 2 SET k v", "RELEASE lock:k 2",
    };

    for (int i = 0; i < WAITS; i++)
        for (size_t j = 0; j < sizeof others / sizeof *others; j++) {
            hold(world);
            assert_says(world, 1, waits[i], "");
            assert_says(world, 1, "GET x", "");
            assert_says(world, 1, others[j], "");
            assert_says(world, 2, "RELEASE k 2", ":0\r\n");
            assert_heard_begins(world, 1, "*");
        }
}

/* What is read ahead is cut anywhere. */
LOCK_TEST(a_release_that_comes_byte_by_byte_is_found)
{
    static const char text[] = "*2\r\n$3\r\nGET\r\n$1\r\nx\r\n"
                               "*3\r\n$7\r\nRELEASE\r\n$1\r\nk\r\n$1\r\n2\r\n";

    hold(world);
    assert_says(world, 1, waits[0], "");
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        assert_string_equal(world_received(world, 1), "");
        session_input(world->clients[1].session, text + i, 1);
        world_settle(world);
    }
    assert_heard_begins(world, 1, "-DEADLOCK ");
}

/* It asks at that very moment. */
LOCK_TEST(a_release_that_comes_while_the_lease_service_is_asked_is_found)
{
    for (int i = 0; i < WAITS; i++) {
        hold(world);
        assert_says(world, 1, waits[i], "");
        lease_service_set_late(world->service, 100);
        world_pass(world, 1001); /* the head of the line asks once a second */
        world_send(world, 1, "GET x\r\nRELEASE k 2");
        lease_service_set_late(world->service, 0);
        world_pass(world, 1001);
        assert_deadlock(world, 1);
    }
}

/* A basket waits for one of its leases after the other. */
LOCK_TEST(a_basket_is_told_when_it_comes_to_wait_for_what_stands_behind_it)
{
    hold(world);
    assert_says(world, 3, "ACQUIRE a 60000", GRANT(1, 60000));
    assert_says(world, 1, "ACQUIREALL 60000 2 a k WAIT 9000", "");
    assert_says(world, 1, "RELEASE k 2", "");
    assert_says(world, 3, "RELEASE a 1", ":0\r\n");
    assert_deadlock(world, 1);
}

LOCK_TEST(a_client_that_goes_or_speaks_nonsense_behind_its_wait_leaves_nothing)
{
    hold(world);
    assert_says(world, 1, waits[0], "");
    assert_says(world, 1, "GET x\r\n*1\r\n!broken", "");
    assert_says(world, 1, "RELEASE k 2", "");
    world_disconnect(world, 1);
    assert_says(world, 3, waits[0], "");
    assert_says(world, 3, "GET x\r\n*2\r\n$7\r\nRELE", "");
    leave(world, 3);
    assert_int_equal(lease_says(world, "k", "waiters"), 0);
}
