/* SPDX-License-Identifier: Apache-2.0 */
/* Lock keys, in virtual time: what tests/system/test_lock_keys.py cannot time to the millisecond,
 * and what happens while a step is on its way. */
#include "proxy/engine/lease/lease.h"
#include "tests/unit/engine/says.h"

#define GIVE(value)     "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock:r " value
#define EXTEND(value)   "EVALSHA 1cac51482acf5858da00f6d685d68f886cd6b6b2 1 lock:r " value " 5000"
#define TAKE_TWO(value) "EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 2 lock:r lock:s " value
#define REDISSON(owner) "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94 1 lock:r 1000 " owner
#define OK              "+OK\r\n"
#define YES             ":1\r\n"
#define NO              ":0\r\n"
#define SET(value)      "SET lock:r " value " NX PX 1000"

static const char *const patterns[] = {"lock:*", "*#lock"};
static const struct engine_options options = {
    .lock_keys = patterns, .lock_keys_count = 2, .receipts_keep_ms = 60000};

static int setup(void **state)
{
    *state = world_new(&options);
    return 0;
}

static int setup_local(void **state)
{
    *state = world_new_local(&options);
    return 0;
}

#define LOCK_TEST(name)                                                                            \
    TEST_WITH_EACH(setup, setup_local, world_teardown, struct world *world, name)
#define SERVICE_TEST(name) TEST_WITH(setup, world_teardown, struct world *world, name)

LOCK_TEST(a_lock_is_held_to_the_millisecond)
{
    assert_says(world, 1, SET("v-1"), OK);
    world_pass(world, 400);
    assert_says(world, 2, SET("v-2"), NIL);
    assert_says(world, 1, SET("v-1"), NIL); /* no re-entry, and no more time */
    assert_says(world, 2, "PTTL lock:r", ":600\r\n");
    assert_says(world, 2, "TTL lock:r", ":1\r\n");
    assert_says(world, 2, "GET r#lock", "$3\r\nv-1\r\n");
    world_pass(world, 599);
    assert_says(world, 2, SET("v-2"), NIL);
    world_pass(world, 1);
    assert_says(world, 2, "GET lock:r", NIL);
    assert_says(world, 2, SET("v-2"), OK);
}

LOCK_TEST(a_lease_that_is_over_is_neither_extended_nor_given_back)
{
    assert_says(world, 1, SET("v-1"), OK);
    world_pass(world, 1000);
    assert_says(world, 1, EXTEND("v-1"), NO);
    assert_says(world, 1, "EXISTS lock:r", NO);
    assert_says(world, 1, "FENCED v-1 SET r 1", OK); /* nobody has had it since */
    assert_says(world, 1, GIVE("v-1"), NO);
    assert_begins(world, 1, "FENCED v-1 SET r 2", "-STALE "); /* but it was given back */
}

/* "WORDS lock:k0 lock:k1 ..." */
static const char *many_keys(const char *words, size_t count)
{
    static char line[16384];
    size_t len = (size_t)snprintf(line, sizeof line, "%s", words);

    for (size_t i = 0; i < count; i++)
        len += (size_t)snprintf(line + len, sizeof line - len, " lock:k%zu", i);
    return line;
}

LOCK_TEST(a_command_takes_at_most_256_lock_keys)
{
    static const char *const give = "EVALSHA 0f0f23b9048b36752b5be114f357ba083449f908 ";
    char words[80];

    assert_says(world, 1, many_keys("EXISTS", 256), NO);
    assert_says(world, 1, many_keys("EXISTS", 257), "-ERR at most 256 lock keys at once\r\n");
    assert_says(world, 1, many_keys("DEL", 256), NO);
    assert_says(world, 1, many_keys("DEL", 257), "-ERR at most 256 lock keys at once\r\n");
    for (int count = 256; count <= 257; count++) {
        snprintf(words, sizeof words, "%s%d", give, count);
        char line[16384 + 8];
        snprintf(line, sizeof line, "%s v-1", many_keys(words, (size_t)count));
        assert_says(world, 1, line, count == 256 ? NO : "-ERR at most 256 lock keys at once\r\n");
    }
}

/* Nobody hears what it would find. */
LOCK_TEST(looking_at_many_locks_ends_when_the_client_goes_or_the_daemon_stops)
{
    long before = world_counter(world, "store_reads");

    world_send_only(world, 1, many_keys("EXISTS", 256));
    world_step_store(world);
    leave(world, 1);
    assert_true(world_counter(world, "store_reads") - before < 10);
    world_send_only(world, 2, many_keys("DEL", 256));
    world_step_store(world);
    engine_drain(world->engine);
    assert_heard(world, 2, "-BUSY the daemon is stopping; try again\r\n");
    assert_true(world_counter(world, "store_reads") - before < 20);
}

LOCK_TEST(extending_counts_from_now)
{
    assert_says(world, 1, SET("v-1"), OK);
    world_pass(world, 900);
    assert_says(world, 1, EXTEND("v-2"), NO);
    assert_says(world, 1, EXTEND("v-1"), YES);
    assert_says(world, 1, "PTTL lock:r", ":5000\r\n");
    world_pass(world, 4999);
    assert_says(world, 1, "EXISTS lock:r", YES);
    world_pass(world, 1);
    assert_says(world, 1, "EXISTS lock:r", NO);
}

/* redlock-universal's, of a lease of which 600 ms are left. */
LOCK_TEST(what_must_be_left_to_extend_may_be_just_that)
{
#define EXTEND_IN_TIME "EVALSHA c000e088bd4aca36ab429d3b7a16fc736f4cb6f1 1 lock:r v-1 "
    assert_says(world, 1, SET("v-1"), OK);
    world_pass(world, 400);
    assert_says(world, 1, EXTEND_IN_TIME "601 5000", "*2\r\n:0\r\n:600\r\n");
    assert_says(world, 1, EXTEND_IN_TIME "600 700", "*2\r\n:1\r\n:600\r\n");
    assert_says(world, 1, EXTEND_IN_TIME "599 5000", "*2\r\n:1\r\n:700\r\n");
    assert_says(world, 1, EXTEND_IN_TIME "-1 5000", "*2\r\n:1\r\n:5000\r\n");
    assert_says(world, 1, "PTTL lock:r", ":5000\r\n");
}

LOCK_TEST(redisson_enters_again_and_leaves_as_often)
{
#define UNLOCK "EVALSHA 778cea8aada230ae060b432fc333adaec85f2f4c 2 lock:r ch 0 2000 u:1 publish"
    assert_says(world, 1, REDISSON("u:1"), NIL);
    world_pass(world, 300);
    assert_says(world, 2, REDISSON("u:2"), ":700\r\n");
    assert_says(world, 1, REDISSON("u:1"), NIL);
    assert_int_equal(lease_says(world, "r", "token"), 1);
    assert_int_equal(lease_says(world, "r", "holds"), 2);
    world_pass(world, 300);
    assert_says(world, 1, UNLOCK, NO);
    assert_says(world, 1, "PTTL lock:r", ":2000\r\n");
    assert_says(world, 1, UNLOCK, YES);
    assert_says(world, 1, UNLOCK, NIL);
    assert_says(world, 2, REDISSON("u:2"), NIL);
    assert_int_equal(lease_says(world, "r", "token"), 2);
}

LOCK_TEST(several_are_taken_or_none_and_nothing_stays)
{
    assert_says(world, 1, "SET lock:s v-1 NX PX 1000", OK);
    assert_says(world, 2, TAKE_TWO("v-2 1000"), NO);
    assert_says(world, 2, "EXISTS lock:r lock:s", YES);
    assert_says(world, 2, "FENCED v-1 SET s 1", OK);
    assert_begins(world, 2, "FENCED v-2 SET r 1", "-UNKNOWN "); /* given back */
    assert_says(world, 1, "DEL lock:s", YES);
    assert_says(world, 2, TAKE_TWO("v-3 1000"), ":2\r\n");
    assert_says(world, 2, "FENCEDALL 2 r v-3 s v-3 MSET r 1 s 2", OK);
}

/* Nor one that none of its keys has gone to: whoever had it last may still write. */
LOCK_TEST(several_that_are_not_all_free_fence_nobody)
{
    assert_says(world, 1, SET("v-1"), OK);
    world_pass(world, 1001);
    assert_says(world, 3, "SET lock:s v-3 NX PX 60000", OK);
    assert_says(world, 2, TAKE_TWO("v-2 1000"), NO);
    assert_says(world, 2,
                "EVALSHA eb0c00d98f6f33b4262419a509002884540f30be 2 lock:r lock:s v-2 "
                "3 1000",
                NIL);
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
    assert_says(world, 3, TAKE_TWO("v-3 1000"), NO); /* its own is held, too */
    assert_says(world, 3, "GET lock:s", "$3\r\nv-3\r\n");
}

SERVICE_TEST(several_of_which_one_is_locked_by_a_grant_that_the_store_never_saw_fence_nobody)
{
    assert_says(world, 1, SET("v-1"), OK);
    world_pass(world, 1001);
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "s", 0, 60000), LEASE_GRANTED);
    assert_says(world, 2, TAKE_TWO("v-2 1000"), NO);
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
}

LOCK_TEST(several_of_which_one_is_anothers_turn_fence_nobody)
{
    assert_says(world, 1, SET("v-1"), OK);
    world_pass(world, 1001);
    assert_says(world, 9, "ACQUIRE s 60000", GRANT(1, 60000));
    assert_begins(world, 5, "ACQUIRE s 60000 QUEUE ID p", "*2\r\n$6\r\nqueued");
    assert_says(world, 9, "RELEASE s 1", ":0\r\n");
    assert_says(world, 2, TAKE_TWO("v-2 1000"), NO);
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
}

LOCK_TEST(a_denied_script_is_told_when_to_ask_again_where_another_has_its_turn)
{
    assert_says(world, 9, "ACQUIRE r 60000", GRANT(1, 60000));
    assert_begins(world, 5, "ACQUIRE r 60000 QUEUE ID p", "*2\r\n$6\r\nqueued");
    assert_says(world, 9, "RELEASE r 1", ":0\r\n");
    assert_says(world, 2, REDISSON("u:2"), ":100\r\n");
}

LOCK_TEST(the_same_key_twice_is_one_lock)
{
    assert_says(world, 1,
                "EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 2 lock:r lock:r v-1 1000",
                ":2\r\n");
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
    assert_says(world, 1, GIVE("v-1"), YES);
}

LOCK_TEST(resp3_has_its_own_null)
{
    world_send(world, 2, "HELLO 3");
    world_received(world, 2);
    assert_says(world, 2, "GET lock:r", "_\r\n");
    assert_says(world, 1, SET("v-1"), OK);
    assert_says(world, 2, SET("v-2"), "_\r\n");
    assert_says(world, 2, REDISSON("u:2"), ":1000\r\n");
}

/* The lease service and the store disagree. */

SERVICE_TEST(a_lock_that_the_store_never_saw_is_ended_before_its_value_gets_another)
{
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "r", 0, 1000), LEASE_GRANTED);
    assert_says(world, 1, SET("you"), NIL); /* its daemon has died, or is about to record it */
    assert_says(world, 1, SET("me"), OK);
    assert_int_equal(lease_says(world, "r", "token"), 2);
    assert_says(world, 1, "FENCED me SET r 1", OK);
}

SERVICE_TEST(a_service_that_lost_all_grants_above_what_was_granted)
{
    assert_says(world, 1, SET("v-1"), OK);
    lease_service_lose_all(world->service);
    assert_says(world, 1, EXTEND("v-1"), NO);
    assert_says(world, 2, SET("v-2"), OK);
    assert_int_equal(lease_says(world, "r", "token"), 2);
    assert_begins(world, 1, "FENCED v-1 SET r 1", "-STALE ");
}

SERVICE_TEST(two_daemons_grant_one_value_once)
{
    struct world *twin = world_add_twin(world);

    lease_service_set_late(world->service, -1);
    world_send(world, 1, SET("v-1"));
    world_send(twin, 1, SET("v-1"));
    lease_service_set_late(world->service, 0);
    world_settle(world);
    char replies[2][64];
    snprintf(replies[0], sizeof replies[0], "%s", world_received(world, 1));
    snprintf(replies[1], sizeof replies[1], "%s", world_received(twin, 1));
    int granted = strcmp(replies[0], OK) == 0 ? 0 : 1;
    assert_string_equal(replies[granted], OK);
    assert_string_equal(replies[1 - granted], NIL);
    assert_int_equal(lease_says(world, "r", "holds"), 1);
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
}

SERVICE_TEST(what_another_daemon_granted_is_known_here)
{
    struct world *twin = world_add_twin(world);

    assert_says(twin, 1, SET("v-1"), OK);
    assert_says(world, 1, "GET lock:r", "$3\r\nv-1\r\n");
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
    assert_says(world, 1, EXTEND("v-1"), YES);
    assert_says(world, 1, GIVE("v-1"), YES);
    assert_begins(twin, 1, "FENCED v-1 SET r 1", "-STALE ");
}

/* Somebody goes on the way. */

SERVICE_TEST(a_lock_that_nobody_can_be_told_of_is_given_back)
{
    lease_service_set_late(world->service, -1);
    world_send(world, 1, SET("v-1"));
    world_disconnect(world, 1);
    lease_service_set_late(world->service, 0);
    world_settle(world);
    world_pass(world, 1);
    assert_says(world, 2, "EXISTS lock:r", NO);
    assert_says(world, 2, SET("v-2"), OK);
}

SERVICE_TEST(of_several_locks_that_nobody_can_be_told_of_all_go_back)
{
    lease_service_set_late(world->service, 10);
    world_send(world, 1, TAKE_TWO("v-1 60000"));
    world_pass(world, 15); /* the first is granted, the second on its way */
    world_disconnect(world, 1);
    world_pass(world, 100);
    lease_service_set_late(world->service, 0);
    assert_says(world, 2, "EXISTS lock:r lock:s", NO);
    assert_says(world, 2, TAKE_TWO("v-2 60000"), ":2\r\n");
}

/* All are free, and another daemon has one before it is asked for: what was taken goes back, counts
 * for nothing, and its value stands for what is taken next. */
SERVICE_TEST(several_of_which_another_daemon_takes_one_in_between_go_back)
{
    lease_service_set_late(world->service, 50);
    world_send(world, 1, TAKE_TWO("v-1 60000"));
    world_pass(world, 110);
    assert_int_equal(asked_elsewhere(world, LEASE_GRANT, "s", 0, 2000), LEASE_GRANTED);
    world_pass(world, 300);
    lease_service_set_late(world->service, 0);
    assert_heard(world, 1, NO);
    assert_says(world, 2, "EXISTS lock:r", NO);
    assert_int_equal(world_counter(world, "locks_unpresented"), 0);
    world_pass(world, 3000);
    assert_says(world, 1, TAKE_TWO("v-1 1000"), ":2\r\n");
    assert_says(world, 2, "FENCEDALL 2 r v-1 s v-1 SET r 1", OK);
}

SERVICE_TEST(several_locks_of_which_one_ran_out_on_the_way_are_not_taken)
{
    lease_service_set_late(world->service, 30);
    world_send(world, 1, TAKE_TWO("v-1 50"));
    world_pass(world, 500);
    assert_heard(world, 1, NO);
    lease_service_set_late(world->service, 0);
    assert_says(world, 1, TAKE_TWO("v-2 50"), ":2\r\n");
}

SERVICE_TEST(a_daemon_that_stops_takes_no_more_locks)
{
    lease_service_set_late(world->service, 10);
    world_send(world, 1, TAKE_TWO("v-1 60000"));
    world_pass(world, 5);
    engine_drain(world->engine);
    world_pass(world, 100);
    assert_heard_begins(world, 1, "-BUSY ");
    assert_true(engine_idle(world->engine));
}

SERVICE_TEST(a_service_that_is_down_is_told)
{
    assert_says(world, 1, SET("v-1"), OK);
    lease_service_set_down(world->service, "it is away");
    assert_says(world, 1, "SET lock:s v-1 NX PX 1000",
                "-LEASEDOWN lease service memory: it is away\r\n");
    assert_says(world, 1, "GET lock:r", "-LEASEDOWN lease service memory: it is away\r\n");
    assert_says(world, 1, EXTEND("v-1"), "-LEASEDOWN lease service memory: it is away\r\n");
    assert_says(world, 1, GIVE("v-1"), "-LEASEDOWN lease service memory: it is away\r\n");
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
    assert_says(world, 1, "GET lock:none", NIL); /* was never granted */
}

/* Values. */

LOCK_TEST(no_value_is_no_token)
{
    assert_says(world, 1, SET("v-1"), OK);
    assert_begins(world, 1, "FENCED \"\" SET r 1", "-ERR a token is a number");
    assert_begins(world, 1, "FENCED 0 SET r 1", "-ERR a token is a number");
    assert_begins(world, 1, "FENCED 9007199254740992 SET r 1", "-ERR a token is a number");
    assert_begins(world, 1, "FENCED -1 SET r 1", "-UNKNOWN ");
    assert_begins(world, 1, "FENCED 90071992547409920 SET r 1", "-UNKNOWN ");
}

LOCK_TEST(a_value_is_known_as_long_as_receipts_are)
{
    assert_says(world, 1, SET("v-1"), OK);
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
    assert_says(world, 1, GIVE("v-1"), YES);
    world_pass(world, 50000);
    assert_begins(world, 1, "FENCED v-1 SET r 2", "-STALE ");
    world_pass(world, 200000);
    assert_begins(world, 1, "FENCED v-1 SET r 2", "-UNKNOWN ");
}

LOCK_TEST(a_value_of_two_grants_is_no_ones_until_it_is_forgotten)
{
    for (int i = 0; i < 3; i++) {
        assert_says(world, 1, SET("v-1"), OK);
        assert_says(world, 1, GIVE("v-1"), YES);
    }
    assert_says(world, 1, SET("v-1"), OK);
    assert_begins(world, 1, "FENCED v-1 SET r 1", "-UNKNOWN \"r\": this value was granted more");
    assert_says(world, 1, "FENCED 4 SET r 1", OK);
}

SERVICE_TEST(a_value_whose_first_lock_came_too_late_stands_for_the_one_that_was_told)
{
    lease_service_set_late(world->service, 1200);
    world_send(world, 1, SET("v-1"));
    world_pass(world, 3000);
    assert_heard(world, 1, NIL);
    lease_service_set_late(world->service, 0);
    assert_says(world, 1, SET("v-1"), OK); /* as libraries do that wait */
    assert_says(world, 1, "FENCED v-1 SET r 1", OK);
}

LOCK_TEST(a_value_whose_locks_went_back_for_want_of_another_stands_for_the_next_ones)
{
    assert_says(world, 1, "SET lock:s v-1 NX PX 60000", OK);
    for (int i = 0; i < 3; i++)
        assert_says(world, 2, TAKE_TWO("v-2 1000"), NO);
    assert_says(world, 1, "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock:s v-1", YES);
    assert_says(world, 2, TAKE_TWO("v-2 1000"), ":2\r\n");
    assert_says(world, 2, "FENCEDALL 2 r v-2 s v-2 SET r 1", OK);
}

LOCK_TEST(a_value_that_enters_again_stands_for_its_one_token)
{
    assert_says(world, 1, REDISSON("u:1"), NIL);
    assert_says(world, 1, REDISSON("u:1"), NIL);
    assert_says(world, 1, "FENCED u:1 SET r 1", OK);
}

LOCK_TEST(nobody_reaches_the_receipt_of_a_value)
{
    assert_says(world, 1, SET("v-1"), OK);
    assert_begins(world, 1, "FENCED 1 ID \"stockade:value:\\nv-1\" SET r 1", "-ERR IDs that begin");
    assert_begins(world, 1, "ACQUIRE s 1000 ID \"stockade:value:\\nv-1\"", "-ERR IDs that begin");
    assert_begins(world, 1, "RECEIPT r 1 \"stockade:value:\\nv-1\"", "-ERR IDs that begin");
    assert_says(world, 1, "FENCED v-1 ID stockade:value: SET r 1", OK);
}

/* Who writes without its token. */

LOCK_TEST(a_lock_that_was_given_back_for_want_of_another_counts_for_nothing)
{
    assert_says(world, 1, "SET lock:s v-1 NX PX 60000", OK);
    assert_says(world, 1, "FENCED v-1 SET s 1", OK);
    for (int i = 0; i < 3; i++)
        assert_says(world, 2, TAKE_TWO("v-2 1000"), NO);
    assert_int_equal(world_counter(world, "locks_unpresented"), 0);
    assert_says(world, 1, "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock:s v-1", YES);
    assert_int_equal(world_counter(world, "locks_unpresented"), 0);
    assert_says(world, 1, SET("v-3"), OK);
    world_pass(world, 1100); /* it ends by itself */
    assert_int_equal(world_counter(world, "locks_unpresented"), 1);
}

LOCK_TEST(who_asks_for_its_token_to_have_it_checked_elsewhere_is_not_said_to_write_without_it)
{
    assert_says(world, 1, SET("v-1"), OK);
    assert_says(world, 1, "LEASE r OWNER v-1 TOKEN", ":1\r\n");
    assert_says(world, 1, GIVE("v-1"), YES);
    assert_int_equal(world_counter(world, "locks_unpresented"), 0);
    assert_says(world, 1, SET("v-2"), OK);
    assert_says(world, 2, "LEASE r OWNER v-1 TOKEN", NIL); /* another's question tells it nothing */
    assert_says(world, 1, GIVE("v-2"), YES);
    assert_int_equal(world_counter(world, "locks_unpresented"), 1);
}

LOCK_TEST(many_clients_are_counted_and_the_rest_together)
{
    char line[128];

    for (int i = 0; i < 70; i++) {
        snprintf(line, sizeof line, "CLIENT SETNAME c%d", i);
        assert_says(world, 1, line, OK);
        assert_says(world, 1, SET("v-1"), OK);
        assert_says(world, 1, GIVE("v-1"), YES);
    }
    const char *info = world_call(world, 1, "INFO lockkeys");
    assert_non_null(strstr(info, "lock_client62:taken=1,without_token=1,client="));
    assert_non_null(strstr(info, " name=c62\r\n"));
    assert_non_null(strstr(info, "lock_client63:taken=7,without_token=7,client=others"));
    assert_null(strstr(info, "lock_client64"));
}

/* Which tables are guarded is not known yet: so many leases wait for that to be counted. */
LOCK_TEST(leases_that_end_while_the_store_is_asked_what_is_guarded_have_a_bound)
{
    enum { UNJUDGED_MAX = 256 };
    char line[80];

    for (int more = -1; more <= 1; more++) {
        world_renew(world, &options);
        for (int i = 0; i < UNJUDGED_MAX + more; i++) {
            snprintf(line, sizeof line, "SET lock:r%d v NX PX 1000", i);
            assert_says(world, 1, line, OK);
        }
        store_memory_hold_writes(world->store, true);
        world_pass(world, 1100);
        assert_int_equal(world_counter(world, "locks_unpresented"), 0);
        store_memory_hold_writes(world->store, false);
        world_settle(world);
        assert_int_equal(world_counter(world, "locks_unpresented"),
                         UNJUDGED_MAX + (more < 0 ? more : 0));
    }
}
