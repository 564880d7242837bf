/* SPDX-License-Identifier: Apache-2.0 */
/* The provider that asks sentinels, with a sentinel of the test's own that says what it likes and
 * real Redises behind it. (Real sentinels and their failovers: tests/system/test_sentinel.py.) */
#include <dlfcn.h>
#include <netdb.h>
#include <stdatomic.h>
#include <unistd.h>

#include "fence/base/mem.h"
#include "tests/unit/fence/chatterbox.h"
#include "tests/unit/fence/conformance.h"
#include "tests/unit/fence/redis_server.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define SUBSCRIBED "+OK\r\n*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1\r\n"

static const char ann[] = "a0000000000000000000000000000001";
static const char bob[] = "b0000000000000000000000000000002";

static struct redis_server *server, *other;

/* libuv's threads look names up by this one: "slow.test" has no answer while `name_server_hangs`,
 * "there.test" is this machine, and the others are the system's. */
static atomic_bool name_server_hangs;

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*system_s)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    *(void **)&system_s = dlsym(RTLD_NEXT, "getaddrinfo");
    if (strcmp(name, "slow.test") == 0) {
        struct deadline begun = deadline_in(0);
        while (name_server_hangs && deadline_spent_ms(&begun) < 30000)
            usleep(1000);
        return EAI_NONAME;
    }
    return system_s(strcmp(name, "there.test") == 0 ? "127.0.0.1" : name, service, hints, found);
}

struct site {
    struct rig rig;
    struct chatterbox sentinel;
    char says[2048];
};

static int setup(void **state)
{
    struct site *site = mem_zalloc(sizeof *site);

    redis_server_reset(server);
    redis_server_reset(other);
    rig_init(&site->rig);
    *state = site;
    return 0;
}

static int teardown(void **state)
{
    struct site *site = *state;

    rig_close(&site->rig);
    if (site->sentinel.port != 0)
        chatterbox_close(&site->sentinel, &site->rig);
    rig_free(&site->rig);
    free(site);
    return 0;
}

#define SITE_TEST(name) TEST_WITH(setup, teardown, struct site *site, name)

/* The sentinel says `answer`, that it listens, and what `messages` tell on its channel. */
static void open_sentinel(struct site *site, const char *answer, const char *const *messages)
{
    size_t size = sizeof site->says, used = (size_t)snprintf(site->says, size, "%s", answer);

    used += (size_t)snprintf(site->says + used, size - used, SUBSCRIBED);
    for (; messages != NULL && *messages != NULL; messages++)
        used += (size_t)snprintf(site->says + used, size - used,
                                 "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%zu\r\n%s\r\n",
                                 strlen(*messages), *messages);
    assert_true(used < size);
    chatterbox_open(&site->sentinel, &site->rig, site->says, used);
}

static void address_of(char *out, size_t size, const char *host, int port)
{
    char number[16];

    snprintf(number, sizeof number, "%d", port);
    snprintf(out, size, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(host), host, strlen(number),
             number);
}

static void address(char *out, size_t size, int port)
{
    address_of(out, size, "127.0.0.1", port);
}

/* Opens the provider on a sentinel that names the Redis at `port`. */
static void open_at(struct site *site, int port, const char *options, const char *const *messages)
{
    char answer[64];

    address(answer, sizeof answer, port);
    open_sentinel(site, answer, messages);
    rig_open(&site->rig, "redis+sentinel://127.0.0.1:%d/shop%s", site->sentinel.port, options);
}

static bool is_at(const struct site *site, int port)
{
    char text[64];

    snprintf(text, sizeof text, "sentinel shop at 127.0.0.1:%d: ready", port);
    return rig_detail_has(&site->rig, text);
}

SITE_TEST(it_is_at_the_master_that_the_sentinel_names)
{
    open_at(site, server->port, "", NULL);
    rig_until(&site->rig, is_at(site, server->port));
    assert_string_equal(lease_provider_name(site->rig.provider), "sentinel");
    assert_answer(rig_call(&site->rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    redisReply *lock = redis_server_ask(server, "EXISTS stockade:{sku:1}:lock");
    assert_int_equal(lock->integer, 1);
    freeReplyObject(lock);
}

SITE_TEST(the_master_may_have_a_name_or_an_ipv6_address)
{
    static const struct {
        const char *host, *text;
    } cases[] = {{"localhost", "at localhost:%d: ready"}, {"::1", "at [::1]:%d: ready"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char answer[64], text[64];
        address_of(answer, sizeof answer, cases[i].host, server->port);
        snprintf(text, sizeof text, cases[i].text, server->port);
        open_sentinel(site, answer, NULL);
        rig_open(&site->rig, "redis+sentinel://127.0.0.1:%d/shop", site->sentinel.port);
        rig_until(&site->rig, rig_detail_has(&site->rig, text));
        rig_close(&site->rig);
        chatterbox_close(&site->sentinel, &site->rig);
    }
    site->sentinel.port = 0;
}

SITE_TEST(an_answer_that_is_no_address_is_told_and_harms_nobody)
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
        open_sentinel(site, cases[i].says, NULL);
        rig_open(&site->rig, "redis+sentinel://127.0.0.1:%d/shop", site->sentinel.port);
        rig_until(&site->rig, rig_detail_has(&site->rig, cases[i].reason));
        rig_until(&site->rig, site->sentinel.visitors >= 2); /* and it asks again */
        assert_down(rig_call(&site->rig, LEASE_GRANT, ann, 0), cases[i].reason);
        rig_close(&site->rig);
        chatterbox_close(&site->sentinel, &site->rig);
    }
    site->sentinel.port = 0;
}

SITE_TEST(a_host_name_that_is_too_long_is_refused)
{
    char says[512], name[301];

    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(says, sizeof says, "*2\r\n$300\r\n%s\r\n$4\r\n6379\r\n", name);
    open_sentinel(site, says, NULL);
    rig_open(&site->rig, "redis+sentinel://127.0.0.1:%d/shop", site->sentinel.port);
    rig_until(&site->rig, rig_detail_has(&site->rig, "is it a sentinel?"));
}

SITE_TEST(switch_master_moves_it_and_what_is_none_does_not)
{
    char texts[9][512], name[301];
    const char *messages[10] = {0};

    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    snprintf(texts[0], sizeof texts[0], "shop 127.0.0.1 1 127.0.0.1 %d", other->port);
    snprintf(texts[1], sizeof texts[1], "store 127.0.0.1 1 127.0.0.1 2");
    snprintf(texts[2], sizeof texts[2], "shop 127.0.0.1 1 127.0.0.1");
    snprintf(texts[3], sizeof texts[3], "shop 127.0.0.1 1 127.0.0.1 0");
    snprintf(texts[4], sizeof texts[4], "shop 127.0.0.1 1 127.0.0.1 65536");
    snprintf(texts[5], sizeof texts[5], "shop 127.0.0.1 1 127.0.0.1 2 3");
    snprintf(texts[6], sizeof texts[6], "shop 127.0.0.1 1 %s 2", name);
    snprintf(texts[7], sizeof texts[7], "shop   127.0.0.1 2");
    snprintf(texts[8], sizeof texts[8], " ");
    for (int i = 0; i < 9; i++)
        messages[i] = texts[i];
    open_at(site, server->port, "", messages);
    rig_until(&site->rig, is_at(site, other->port));
    assert_answer(rig_call(&site->rig, LEASE_GRANT, ann, 0), LEASE_GRANTED, 1);
    assert_true(is_at(site, other->port));
    redisReply *lock = redis_server_ask(other, "EXISTS stockade:{sku:1}:lock");
    assert_int_equal(lock->integer, 1);
    freeReplyObject(lock);
}

SITE_TEST(a_master_of_another_name_does_not_wait_for_the_lookup_of_the_one_before)
{
    char answer[64], message[64], text[64];
    const char *messages[] = {message, NULL};

    name_server_hangs = true;
    address_of(answer, sizeof answer, "slow.test", server->port);
    snprintf(message, sizeof message, "shop slow.test 1 there.test %d", other->port);
    snprintf(text, sizeof text, "at there.test:%d: ready", other->port);
    open_sentinel(site, answer, messages);
    rig_open(&site->rig, "redis+sentinel://127.0.0.1:%d/shop", site->sentinel.port);
    rig_until(&site->rig, rig_detail_has(&site->rig, text));
    name_server_hangs = false; /* its answer comes, and is nobody's any more */
    rig_close(&site->rig);
}

/* One of two is no majority: the other may know of a newer master. */
SITE_TEST(half_of_the_sentinels_have_to_wait_for_the_others_word)
{
    enum { TIMEOUT_MS = 300 };
    char answer[64];
    int port, fd = silent_server(&port);

    address(answer, sizeof answer, server->port);
    open_sentinel(site, answer, NULL);
    int64_t start_ms = clock_now_ms(&clock_monotonic);
    rig_open(&site->rig, "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/shop?timeout_ms=%d",
             site->sentinel.port, port, TIMEOUT_MS);
    rig_until(&site->rig, is_at(site, server->port));
    assert_true(clock_now_ms(&clock_monotonic) - start_ms >= TIMEOUT_MS);
    rig_close(&site->rig);
    close(fd);
}

static void on_news(void *context, const struct lease_news *news)
{
    *(int64_t *)context = news->token;
}

SITE_TEST(news_come_from_the_new_master)
{
    char text[64];
    int64_t heard = 0;

    snprintf(text, sizeof text, "shop 127.0.0.1 1 127.0.0.1 %d", other->port);
    const char *messages[] = {text, NULL};
    open_at(site, server->port, "", messages);
    lease_provider_watch(site->rig.provider, on_news, &heard);
    rig_until(&site->rig, lease_provider_health(site->rig.provider).watching);
    while (heard == 0) { /* until it listens there */
        redis_server_do(other, "PUBLISH stockade:wake %s", "released 0123456789abcdef 7 sku:1");
        rig_turn(&site->rig);
    }
    assert_int_equal(heard, 7);
}

SITE_TEST(a_replica_is_no_master)
{
    redis_server_do(server, "REPLICAOF 127.0.0.1 1");
    open_at(site, server->port, "", NULL);
    rig_until(&site->rig, rig_detail_has(&site->rig, "its role is slave, not master"));
    redis_server_do(server, "REPLICAOF NO ONE");
    rig_until(&site->rig, is_at(site, server->port));
}

SITE_TEST(a_master_that_was_demoted_is_left_and_the_sentinel_asked)
{
    open_at(site, server->port, "", NULL);
    rig_until(&site->rig, is_at(site, server->port));
    int visitors = site->sentinel.visitors;
    redis_server_do(server, "REPLICAOF 127.0.0.1 1");
    assert_down(rig_call(&site->rig, LEASE_GRANT, ann, 0), "READONLY");
    assert_false(rig_up(&site->rig));
    address(site->says, sizeof site->says, other->port);
    strcat(site->says, SUBSCRIBED);
    site->sentinel.len = strlen(site->says);
    rig_until(&site->rig, is_at(site, other->port));
    assert_true(site->sentinel.visitors > visitors);
}

/* Replicas: there are none, so all that were granted are given back. */

SITE_TEST(grants_without_replicas_are_given_back)
{
    enum { CALLS = 5 };
    struct asked asked[CALLS];
    char resources[CALLS][16];
    int answered = 0;

    open_at(site, server->port, "?replicas=1&timeout_ms=400", NULL);
    rig_until(&site->rig, is_at(site, server->port));
    for (int i = 0; i < CALLS; i++) {
        snprintf(resources[i], sizeof resources[i], "sku:%d", i);
        asked[i] = rig_question(LEASE_GRANT, ann, 0);
        asked[i].call.resource = bytes_of(resources[i]);
        rig_ask(&site->rig, &asked[i]);
    }
    while (answered < CALLS) {
        rig_turn(&site->rig);
        answered = 0;
        for (int i = 0; i < CALLS; i++)
            answered += asked[i].answered;
    }
    for (int i = 0; i < CALLS; i++) {
        assert_down(asked[i].call, "0 of 1 replicas have the grant");
        assert_int_equal(asked[i].times, 1);
    }
    assert_true(rig_detail_has(&site->rig, "0 of 1 replicas have the grant"));
    assert_answer(rig_call(&site->rig, LEASE_QUERY, "", 0), LEASE_FREE, 0);
    assert_answer(rig_call(&site->rig, LEASE_RENEW, bob, 9), LEASE_GRANTED, 9);
    assert_false(rig_up(&site->rig));
}

SITE_TEST(closing_answers_grants_that_wait_for_replicas)
{
    struct asked first = rig_question(LEASE_GRANT, ann, 0),
                 second = rig_question(LEASE_GRANT, bob, 0);

    open_at(site, server->port, "?replicas=1&timeout_ms=20000", NULL);
    rig_until(&site->rig, is_at(site, server->port));
    rig_ask(&site->rig, &first);
    second.call.resource = BYTES_LITERAL("sku:2");
    rig_ask(&site->rig, &second);
    for (bool blocked = false; !blocked;) {
        redisReply *clients = redis_server_ask(server, "INFO clients");
        blocked = strstr(clients->str, "blocked_clients:1") != NULL;
        freeReplyObject(clients);
        rig_turn(&site->rig);
    }
    rig_close(&site->rig);
    assert_down(first.call, "the connection is being closed");
    assert_down(second.call, "the connection is being closed");
    assert_int_equal(first.times + second.times, 2);
}

/* What holds for every provider. */

struct sentinel_subject {
    struct subject base;
    struct site *site;
};

static void subject_turn(struct subject *subject)
{
    rig_turn(&((struct sentinel_subject *)(void *)subject)->site->rig);
}

static int subject_setup(void **state)
{
    struct sentinel_subject *subject = mem_zalloc(sizeof *subject);

    setup((void **)&subject->site);
    open_at(subject->site, server->port, "", NULL);
    rig_until(&subject->site->rig, rig_up(&subject->site->rig));
    subject->base = (struct subject){.provider = subject->site->rig.provider, .turn = subject_turn};
    *state = subject;
    return 0;
}

static int subject_teardown(void **state)
{
    struct sentinel_subject *subject = *state;

    teardown((void **)&subject->site);
    free(subject);
    return 0;
}

int main(void)
{
    server = redis_server_new(NULL);
    other = redis_server_new(NULL);
    int failed = unit_tests_run();
    failed += conformance_run("sentinel", subject_setup, subject_teardown);
    redis_server_free(server);
    redis_server_free(other);
    return failed;
}
