/* SPDX-License-Identifier: Apache-2.0 */
/* The provider that asks sentinels, with a false sentinel that says what the test likes and real
 * Redises behind it. (Real sentinels and their fail-overs: tests/system/test_sentinel.py. What
 * every provider must do: conformance_test.c.) */
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <unistd.h>

#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define SUBSCRIBED "+OK\r\n*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"

/* libuv's threads look names up with this function: "slow.test" has no answer while
 * `name_server_hangs`, "there.test" is this machine, and the system knows the others. */
static atomic_bool name_server_hangs;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*system_s)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    *(void **)&system_s = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(name, "slow.test") == 0) {
        struct deadline begun = deadline_in(0);
        while (name_server_hangs && deadline_spent_ms(&begun) < 30000)
            usleep(1000); /* a slow name server */
        return EAI_NONAME;
    }
    return system_s(strcmp(name, "there.test") == 0 ? "127.0.0.1" : name, service, hints, found);
}

/* The Redis that a fail-over goes to; the first master is the rig's. */
static struct service *other;

static int setup(void **state)
{
    other = redis_shared(1);
    return rig_setup(state);
}

#define SENTINEL_TEST(name) TEST_WITH(setup, rig_teardown, struct rig *rig, name)

/* Let the sentinel answer with `answer`, say that it listens, and tell `messages` (NULL at the end)
 * on its channel. */
static void say(struct rig *rig, const char *answer, const char *const *messages)
{
    struct buf says = {0};

    buf_printf(&says, "%s" SUBSCRIBED, answer);
    for (; messages != NULL && *messages != NULL; messages++)
        buf_printf(&says, "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%zu\r\n%s\r\n",
                   strlen(*messages), *messages);
    rig_say(rig, says.data, says.len);
    buf_free(&says);
}

/* Let it name this master. */
static void say_master(struct rig *rig, const char *host, int port, const char *const *messages)
{
    char answer[400], number[16];

    snprintf(number, sizeof number, "%d", port);
    snprintf(answer, sizeof answer, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(host), host,
             strlen(number), number);
    say(rig, answer, messages);
}

/* Open the provider on the sentinel. */
static void open_provider(struct rig *rig, const char *options)
{
    rig_open(rig, "redis+sentinel://127.0.0.1:%d/shop%s", rig->chatterbox.port, options);
}

/* Open it on a sentinel that names the rig's Redis, and wait until it is there. */
static void open_ready(struct rig *rig, const char *options)
{
    say_master(rig, "127.0.0.1", rig->redis->port, NULL);
    open_provider(rig, options);
    rig_until(rig, rig_up(rig));
}

static bool is_at(const struct rig *rig, const char *host, int port)
{
    char text[64];

    snprintf(text, sizeof text, "sentinel shop at %s:%d: ready", host, port);
    return rig_detail_has(rig, text);
}

static void assert_locked_at(const struct service *redis)
{
    redisReply *lock = redis_ask(redis, "EXISTS stockade:{sku:1}:lock");

    assert_int_equal(lock->integer, 1);
    freeReplyObject(lock);
}

SENTINEL_TEST(it_is_at_the_master_that_the_sentinel_names)
{
    open_ready(rig, "");
    assert_true(is_at(rig, "127.0.0.1", rig->redis->port));
    assert_string_equal(lease_provider_name(rig->provider), "sentinel");
    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    assert_locked_at(rig->redis);
}

SENTINEL_TEST(the_master_may_have_a_name_or_an_ipv6_address)
{
    static const char *const hosts[][2] = {{"localhost", "localhost"}, {"::1", "[::1]"}};

    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        say_master(rig, hosts[i][0], rig->redis->port, NULL);
        open_provider(rig, "");
        rig_until(rig, is_at(rig, hosts[i][1], rig->redis->port));
        rig_close(rig);
    }
}

SENTINEL_TEST(an_answer_that_is_no_address_is_told_and_harms_nobody)
{
    static const struct {
        const char *says, *reason;
    } cases[] = {
        {"*-1\r\n", "it knows no master of this name"},
        {"$-1\r\n", "it knows no master of this name"},
        {"-ERR not now\r\n", "ERR not now"},
        {"+OK\r\n", "is it a sentinel?"},
        {":7\r\n", "is it a sentinel?"},
        {"*0\r\n", "is it a sentinel?"},
        {"*1\r\n$9\r\n127.0.0.1\r\n", "is it a sentinel?"},
        {"*2\r\n:1\r\n:2\r\n", "is it a sentinel?"},
        {"*2\r\n$0\r\n\r\n$4\r\n6379\r\n", "is it a sentinel?"},
        {"*2\r\n$9\r\n127.0.0.1\r\n$1\r\n0\r\n", "is it a sentinel?"},
        {"*2\r\n$9\r\n127.0.0.1\r\n$5\r\n65536\r\n", "is it a sentinel?"},
        {"*2\r\n$9\r\n127.0.0.1\r\n$3\r\nabc\r\n", "is it a sentinel?"},
        {"HTTP/1.1 400 Bad Request\r\n\r\n", "rotocol error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        say(rig, cases[i].says, NULL);
        open_provider(rig, "");
        rig_until(rig, rig_detail_has(rig, cases[i].reason));
        rig_until(rig, rig->chatterbox.visitors >= 2); /* and it asks again */
        assert_down(rig_call(rig, LEASE_GRANT, ann, 0), cases[i].reason);
        rig_close(rig);
    }
}

/* Write a name that is longer than a host's name may be. */
static void too_long(char name[301])
{
    memset(name, 'a', 300);
    name[300] = '\0';
}

SENTINEL_TEST(a_host_name_that_is_too_long_is_refused)
{
    char name[301];

    too_long(name);
    say_master(rig, name, 6379, NULL);
    open_provider(rig, "");
    rig_until(rig, rig_detail_has(rig, "is it a sentinel?"));
}

SENTINEL_TEST(switch_master_moves_it_and_what_is_none_does_not)
{
    char moved[64], too_far[400], name[301];
    const char *messages[] = {moved,
                              "store 127.0.0.1 1 127.0.0.1 2",
                              "shop 127.0.0.1 1 127.0.0.1",
                              "shop 127.0.0.1 1 127.0.0.1 0",
                              "shop 127.0.0.1 1 127.0.0.1 65536",
                              "shop 127.0.0.1 1 127.0.0.1 2 3",
                              too_far,
                              "shop   127.0.0.1 2",
                              " ",
                              NULL};

    too_long(name);
    snprintf(moved, sizeof moved, "shop 127.0.0.1 1 127.0.0.1 %d", other->port);
    snprintf(too_far, sizeof too_far, "shop 127.0.0.1 1 %s 2", name);
    say_master(rig, "127.0.0.1", rig->redis->port, messages);
    open_provider(rig, "");
    rig_until(rig, is_at(rig, "127.0.0.1", other->port));
    assert_answer(rig_call(rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    assert_true(is_at(rig, "127.0.0.1", other->port));
    assert_locked_at(other);
}

SENTINEL_TEST(a_master_of_another_name_does_not_wait_for_the_lookup_of_the_one_before)
{
    char message[64];
    const char *messages[] = {message, NULL};

    name_server_hangs = true;
    snprintf(message, sizeof message, "shop slow.test 1 there.test %d", other->port);
    say_master(rig, "slow.test", rig->redis->port, messages);
    open_provider(rig, "");
    rig_until(rig, is_at(rig, "there.test", other->port));
    name_server_hangs = false; /* its answer comes, and nobody waits for it any more */
    rig_close(rig);
}

/* One of two is no majority: the other one may know a newer master. */
SENTINEL_TEST(half_of_the_sentinels_have_to_wait_for_the_others_word)
{
    enum { TIMEOUT_MS = 300 };
    int port, fd = silent_server(&port);

    say_master(rig, "127.0.0.1", rig->redis->port, NULL);
    int64_t start_ms = clock_now_ms(&clock_monotonic);
    rig_open(rig, "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/shop?timeout_ms=%d",
             rig->chatterbox.port, port, TIMEOUT_MS);
    rig_until(rig, is_at(rig, "127.0.0.1", rig->redis->port));
    assert_true(clock_now_ms(&clock_monotonic) - start_ms >= TIMEOUT_MS);
    rig_close(rig);
    close(fd);
}

SENTINEL_TEST(news_come_from_the_new_master)
{
    char text[64];
    const char *messages[] = {text, NULL};

    snprintf(text, sizeof text, "shop 127.0.0.1 1 127.0.0.1 %d", other->port);
    say_master(rig, "127.0.0.1", rig->redis->port, messages);
    open_provider(rig, "");
    struct watched *watched = rig_watch(rig);
    rig_until(rig, lease_provider_health(rig->provider).watching);
    while (watched->news == 0) { /* until it listens there */
        redis_do(other, "PUBLISH stockade:wake %s", "released 0123456789abcdef 7 sku:1");
        rig_turn(rig);
    }
    assert_int_equal(watched->token, 7);
}

SENTINEL_TEST(a_replica_is_no_master)
{
    redis_do(rig->redis, "REPLICAOF 127.0.0.1 1");
    say_master(rig, "127.0.0.1", rig->redis->port, NULL);
    open_provider(rig, "");
    rig_until(rig, rig_detail_has(rig, "its role is slave, not master"));
    redis_do(rig->redis, "REPLICAOF NO ONE");
    rig_until(rig, is_at(rig, "127.0.0.1", rig->redis->port));
}

SENTINEL_TEST(a_master_that_was_demoted_is_left_and_the_sentinel_asked)
{
    open_ready(rig, "");
    redis_do(rig->redis, "REPLICAOF 127.0.0.1 1");
    assert_down(rig_call(rig, LEASE_GRANT, ann, 0), "READONLY");
    assert_false(rig_up(rig));
    say_master(rig, "127.0.0.1", other->port, NULL);
    rig_until(rig, is_at(rig, "127.0.0.1", other->port));
    assert_true(rig->chatterbox.visitors > 0);
}

/* There are no replicas, so all that was granted is given back. */
SENTINEL_TEST(grants_without_replicas_are_given_back)
{
    enum { CALLS = 5 };
    struct asked asked[CALLS];
    char resources[CALLS][16];

    open_ready(rig, "?replicas=1&timeout_ms=400");
    for (int i = 0; i < CALLS; i++) {
        snprintf(resources[i], sizeof resources[i], "sku:%d", i);
        asked[i] = rig_question(LEASE_GRANT, ann, 0);
        asked[i].call.resource = bytes_of(resources[i]);
        rig_ask(rig, &asked[i]);
    }
    for (int i = 0; i < CALLS; i++) {
        rig_until(rig, asked[i].answered);
        assert_down(asked[i].call, "0 of 1 replicas have the grant");
        assert_int_equal(asked[i].times, 1);
    }
    assert_true(rig_detail_has(rig, "0 of 1 replicas have the grant"));
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_FREE, 0);
    assert_answer(rig_call(rig, LEASE_RENEW, bob, 9), LEASE_GRANTED, 9);
    assert_false(rig_up(rig));
}

SENTINEL_TEST(closing_answers_grants_that_wait_for_replicas)
{
    struct asked first = rig_question(LEASE_GRANT, ann, 0),
                 second = rig_question(LEASE_GRANT, bob, 0);

    open_ready(rig, "?replicas=1&timeout_ms=20000");
    rig_ask(rig, &first);
    second.call.resource = BYTES_LITERAL("sku:2");
    rig_ask(rig, &second);
    for (bool blocked = false; !blocked;) {
        redisReply *clients = redis_ask(rig->redis, "INFO clients");
        blocked = strstr(clients->str, "blocked_clients:1") != NULL;
        freeReplyObject(clients);
        rig_turn(rig);
    }
    rig_close(rig);
    assert_down(first.call, "the connection is being closed");
    assert_down(second.call, "the connection is being closed");
    assert_int_equal(first.times + second.times, 2);
}
