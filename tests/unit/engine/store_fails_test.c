/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, over a store of which one call after the other fails: the answer is STORE, and
 * nothing has changed; and over a store that takes nothing more: the answer is BUSY. */
#include "fence/base/mem.h"
#include "tests/unit/engine/says.h"

enum { CALLS_MAX = 100 };

/* Held by client 1: s, a string, and n, a number, with tokens 1; h, a hash, with 1; free: o, where
 * a token was; nothing: x. */
static const char *const furniture[] = {
    "ACQUIRE s 10000",          "FENCED 1 ID i SET s text",  "ACQUIRE n 10000", "FENCED 1 SET n 5",
    "ACQUIRE h 10000 OWNER me", "FENCED 1 HSET h f 1 g two", "ACQUIRE o 10000", "RELEASE o 1",
};

/* All that can be seen. */
static const char everything[] =
    "MGET s n x\r\nHGETALL h\r\nDBSIZE\r\nSCAN 0\r\nLEASE s\r\nLEASE n\r\nLEASE h\r\nLEASE o\r\n"
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
};

enum { COMMANDS = sizeof sent / sizeof *sent };

static struct world *furnish(void)
{
    struct world *world =
        world_new(&(struct engine_options){.unfenced_writes = true, .receipts_keep_ms = 60000});

    for (size_t i = 0; i < sizeof furniture / sizeof *furniture; i++)
        assert_true(world_call(world, 1, furniture[i])[0] != '-');
    return world;
}

/* Owned by the caller. Of several leases the first ones are given back: their tokens are gone. */
static char *see(struct world *world, const char *command)
{
    bool several = strncmp(command, "ACQUIREALL", 10) == 0;

    return mem_strdup(world_call(world, 2, several ? "LEASES\r\nMGET s n x" : everything));
}

/* Returns whether the command makes so many calls; after the failed one, all is as it was. */
static bool survives(const char *command, int nth)
{
    struct world *world = furnish();
    char *before = see(world, command);

    store_memory_fail_call(world->store, nth);
    const char *reply = world_call(world, 1, command);
    bool failed = store_memory_has_failed(world->store);
    if (failed && strstr(reply, "-STORE ") == NULL)
        fail_msg("%s, call %d: %s", command, nth, reply);
    if (!failed && strstr(reply, "-STORE ") != NULL)
        fail_msg("%s: %s", command, reply);
    store_memory_fail_call(world->store, 0);
    char *after = see(world, command);
    if (failed && strcmp(before, after) != 0)
        fail_msg("%s, call %d: was\n%s\nis\n%s", command, nth, before, after);
    free(before);
    free(after);
    world_free(world);
    return failed;
}

TEST(a_command_whose_store_fails_says_so_and_changes_nothing)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        int nth = 1;
        while (survives(sent[i], nth)) {
            nth++;
            assert_true(nth < CALLS_MAX);
        }
        assert_true(nth > 1); /* it does ask the store */
    }
}

TEST(what_failed_once_succeeds_when_it_is_tried_again)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        struct world *calm = furnish(), *failing = furnish();
        char *due = mem_strdup(world_call(calm, 1, sent[i]));

        if (strncmp(sent[i], "ACQUIRE", 7) != 0) { /* whose token may be larger now */
            store_memory_fail_call(failing->store, 1);
            world_send(failing, 1, sent[i]);
            assert_non_null(strstr(world_received(failing, 1), "-STORE "));
            assert_says(failing, 1, sent[i], due);
            char *one = see(calm, sent[i]), *other = see(failing, sent[i]);
            assert_string_equal(one, other);
            free(one);
            free(other);
        }
        free(due);
        world_free(calm);
        world_free(failing);
    }
}

TEST(a_full_queue_is_busy_and_changes_nothing)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        struct world *world = furnish();
        char *before = see(world, sent[i]);

        store_memory_set_full(world->store, true);
        const char *reply = world_call(world, 1, sent[i]);
        if (strstr(reply, "-BUSY ") == NULL)
            fail_msg("%s: %s", sent[i], reply);
        store_memory_set_full(world->store, false);
        char *after = see(world, sent[i]);
        assert_string_equal(before, after);
        free(before);
        free(after);
        world_free(world);
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
    struct world *world = furnish();
    store_memory_set_full(world->store, true);
    assert_begins(world, 1, "RENEW s 1 20000", "-BUSY ");
    assert_begins(world, 1, "FLUSHALL", "-BUSY ");
    store_memory_set_full(world->store, false);
    store_memory_fail_call(world->store, 1);
    assert_begins(world, 1, "FLUSHALL", "-STORE ");
    assert_says(world, 1, "DBSIZE", ":3\r\n");
    world_free(world);
}

/* Without a token, where that is allowed. */
TEST(a_bare_write_whose_store_fails_changes_nothing)
{
    static const char *const bare[] = {"SET x 1", "MSET o 1 x 2", "HSET x f 1", "DEL x o"};

    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        int nth = 1;
        while (survives(bare[i], nth))
            nth++;
        assert_true(nth > 2);
    }
}
