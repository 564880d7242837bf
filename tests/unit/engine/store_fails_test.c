/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, over a store of which one call after the other fails: the answer is STORE, and
 * nothing has changed; and over a store that takes nothing more: the answer is BUSY. */
#include "fence/base/mem.h"
#include "tests/unit/engine/says.h"

enum { CALLS_MAX = 100 };

/* Held by client 1: s, a string, and n, a number, with tokens 1; h, a hash, with 1; free: o, where
 * a token was; nothing: x. */
static const char *const furniture[] = {
    "ACQUIRE s 10000",
    "FENCED 1 ID i SET s text",
    "ACQUIRE n 10000",
    "FENCED 1 SET n 5",
    "ACQUIRE h 10000 OWNER me",
    "FENCED 1 HSET h f 1 g two",
    "ACQUIRE o 10000",
    "RELEASE o 1",
    "SET lock:k mine NX PX 10000",
};

#define GIVE     "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock:k mine"
#define TAKE_TWO "EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 2 lock:x lock:o v 1000"

/* All that can be seen. */
static const char everything[] =
    "MGET s n x k\r\nLEASE k\r\nHGETALL h\r\nDBSIZE\r\nSCAN 0\r\nLEASE s\r\nLEASE n\r\nLEASE "
    "h\r\nLEASE o\r\n"
    "LEASE x\r\nLEASES\r\nRECEIPT s 1 i\r\nRECEIPT s 1 j\r\nRECEIPT n 1 j\r\nRECEIPT h 1 j";

static const char *const sent[] = {
    "GET s",
    "STRLEN s",
    "MGET s n x",
    "EXISTS s h",
    "TYPE s",
    "SCAN 0",
    "DBSIZE",
    "HGET h f",
    "HMGET h f g z",
    "HGETALL h",
    "HKEYS h",
    "HVALS h",
    "HLEN h",
    "HEXISTS h f",
    "HSTRLEN h g",
    "HSCAN h 0",
    "RECEIPT s 1 i",
    "RECEIPT o 1 i",
    "LEASES",
    "LEASE h",
    "FENCED 1 GET s",
    "FENCED 1 SET s new",
    "FENCED 1 SET h new", /* a hash before */
    "FENCED 1 SET s new NX GET",
    "FENCED 1 SETNX s new",
    "FENCED 1 GETSET s new",
    "FENCED 1 GETDEL s",
    "FENCED 1 APPEND s more",
    "FENCED 1 INCR n",
    "FENCED 1 DECRBY n 2 MIN 0",
    "FENCED 1 DEL s",
    "FENCED 1 HSET h f 2 z 3",
    "FENCED 1 HMSET h f 2",
    "FENCED 1 HSETNX h z 3",
    "FENCED 1 HDEL h f g",
    "FENCED 1 HINCRBY h f 4",
    "FENCED 1 ID j APPEND s more",
    "FENCED 1 ID i SET s text", /* a repeat */
    "FENCEDALL 2 s 1 n 1 MSET s new n 6",
    "FENCEDALL 3 s 1 n 1 h 1 ID j DEL s n h",
    "FENCEDALL 2 s 1 n 1 ID j EXISTS s n",
    "MULTI\r\nFENCED 1 ID j SET s new\r\nFENCED 1 INCR n\r\nGET n\r\nEXEC",
    "ACQUIRE x 1000",
    "ACQUIRE o 1000 ID j",
    "ACQUIRE h 10000 OWNER me ID j",
    "ACQUIREALL 1000 2 x o",
    "ACQUIREALL 1000 2 x o ID j",
    "RELEASE s 1",
    "RELEASE h 1 ID j",
    "REVOKE s",
    "TTL s",
    "LEASE k OWNER mine",
    "SET lock:x v NX PX 1000",
    "SET lock:k mine NX PX 1000",
    "GET lock:k",
    "EXISTS lock:k lock:x",
    "DEL lock:k",
    "FENCED mine SET k new",
    GIVE,
    TAKE_TWO,
};

enum { COMMANDS = sizeof sent / sizeof *sent };

static int setup(void **state)
{
    static const char *const patterns[] = {"lock:*"};
    struct world *world = world_new(&(struct engine_options){.unfenced_writes = true,
                                                             .receipts_keep_ms = 60000,
                                                             .lock_keys = patterns,
                                                             .lock_keys_count = 1});

    *state = world;
    for (size_t i = 0; i < sizeof furniture / sizeof *furniture; i++)
        assert_true(world_call(world, 1, furniture[i])[0] != '-');
    return 0;
}

#define FURNISHED_TEST(name) TEST_WITH(setup, world_teardown, struct world *world, name)

/* For those that need a new one each time. */
static struct world *furnish(void)
{
    void *world;

    (void)setup(&world);
    return world;
}

/* Owned by the caller. Of several leases the first ones are given back: their tokens are gone. */
static char *see(struct world *world, const char *command)
{
    bool several = strncmp(command, "ACQUIREALL", 10) == 0 || strcmp(command, TAKE_TWO) == 0;

    return mem_strdup(world_call(world, 2, several ? "LEASES\r\nMGET s n x" : everything));
}

static void assert_sees(struct world *world, const char *command, char *before)
{
    char *after = see(world, command);

    if (strcmp(before, after) != 0)
        fail_msg("%s: was\n%s\nis\n%s", command, before, after);
    free(before);
    free(after);
}

/* Return how many calls the command makes of the store. After each that fails all is as it was. */
static int count_calls(const char *command)
{
    bool failed = true;
    int calls = 0;

    for (; failed; calls++) {
        struct world *world = furnish();
        char *before = see(world, command);
        assert_true(calls < CALLS_MAX);
        store_memory_fail_call(world->store, calls + 1);
        const char *reply = world_call(world, 1, command);
        failed = store_memory_has_failed(world->store);
        if (failed != (strstr(reply, "-STORE ") != NULL))
            fail_msg("%s, call %d: %s", command, calls + 1, reply);
        store_memory_fail_call(world->store, 0);
        if (failed)
            assert_sees(world, command, before);
        else
            free(before);
        world_free(world);
    }
    return calls - 1;
}

TEST(a_command_whose_store_fails_says_so_and_changes_nothing)
{
    for (size_t i = 0; i < COMMANDS; i++)
        assert_true(count_calls(sent[i]) > 0);
}

TEST(what_failed_once_succeeds_when_it_is_tried_again)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strncmp(sent[i], "ACQUIRE", 7) == 0)
            continue; /* its token may be larger now */
        struct world *calm = furnish(), *failing = furnish();
        store_memory_fail_call(failing->store, 1);
        world_send(failing, 1, sent[i]);
        assert_non_null(strstr(world_received(failing, 1), "-STORE "));
        assert_says(failing, 1, sent[i], world_call(calm, 1, sent[i]));
        assert_sees(failing, sent[i], see(calm, sent[i]));
        world_free(calm);
        world_free(failing);
    }
}

FURNISHED_TEST(a_full_queue_is_busy_and_changes_nothing)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        char *before = see(world, sent[i]);
        store_memory_set_full(world->store, true);
        const char *reply = world_call(world, 1, sent[i]);
        if (strstr(reply, "-BUSY ") == NULL)
            fail_msg("%s: %s", sent[i], reply);
        store_memory_set_full(world->store, false);
        assert_sees(world, sent[i], before);
    }
}

/* The lock was extended before the store failed: that does no harm. */
TEST(a_renewal_that_cannot_be_confirmed_says_so)
{
    for (int nth = 1;; nth++) {
        struct world *world = furnish();
        store_memory_fail_call(world->store, nth);
        const char *reply = world_call(world, 1, "RENEW s 1 7200000");
        bool failed = store_memory_has_failed(world->store);
        assert_int_equal(strncmp(reply, failed ? "-STORE " : ":7200000\r\n", 7), 0);
        store_memory_fail_call(world->store, 0);
        assert_says(world, 1, "FENCED 1 SET s on", "+OK\r\n");
        world_free(world);
        if (!failed) {
            assert_true(nth > 2);
            break;
        }
    }
}

FURNISHED_TEST(a_renewal_and_a_flush_find_a_store_that_is_full_or_fails)
{
    store_memory_set_full(world->store, true);
    assert_begins(world, 1, "RENEW s 1 20000", "-BUSY ");
    assert_begins(world, 1, "FLUSHALL", "-BUSY ");
    store_memory_set_full(world->store, false);
    store_memory_fail_call(world->store, 1);
    assert_begins(world, 1, "FLUSHALL", "-STORE ");
    assert_says(world, 1, "DBSIZE", ":3\r\n");
}

/* Without a token, where that is allowed. */
TEST(a_bare_write_whose_store_fails_changes_nothing)
{
    static const char *const bare[] = {"SET x 1", "MSET o 1 x 2", "HSET x f 1", "DEL x o"};

    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++)
        assert_true(count_calls(bare[i]) > 1);
}
