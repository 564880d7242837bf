/* SPDX-License-Identifier: Apache-2.0 */
/* The Redis provider with a real Redis that works: what it writes there, how it reads what others
 * wrote there, and the ways to connect. (What every provider must do: conformance_test.c. A Redis
 * in trouble: redis_away_test.c and redis_refusals_test.c.) */
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fence/token.h"
#include "tests/unit/fence/rig.h"
#include "tests/unit/test.h"

#define LOCK  "stockade:{sku:1}:lock"
#define TOKEN "stockade:{sku:1}:token"

static void assert_redis_has(struct rig *rig, const char *key, const char *value)
{
    redisReply *reply = redis_ask(rig->redis, "GET %s", key);

    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_string_equal(reply->str, value);
    freeReplyObject(reply);
}

/* Give up one attempt's part of a lease. */
static struct lease_call give_up(struct rig *rig, struct lease_call granted)
{
    struct asked asked = {.call = granted};

    asked.call.verb = LEASE_RELEASE;
    asked.call.token = 0;
    rig_answer(rig, &asked);
    return asked.call;
}

/* Assert that the lock holds "<token> <nonce>" followed by the attempts. */
static void assert_lock_of(struct rig *rig, const char *key, const char *lease,
                           const struct lease_call *calls, size_t count)
{
    char value[256];
    int len = snprintf(value, sizeof value, "%s", lease);

    for (size_t i = 0; i < count; i++)
        len += snprintf(value + len, sizeof value - (size_t)len, " %016llx",
                        (unsigned long long)calls[i].attempt);
    assert_redis_has(rig, key, value);
}

static long long redis_number(struct rig *rig, const char *command, const char *key)
{
    redisReply *reply = redis_ask(rig->redis, "%s %s", command, key);
    long long number = reply->integer;

    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    freeReplyObject(reply);
    return number;
}

RIG_TEST(a_grant_leaves_token_nonce_and_attempt_and_a_counter_that_expires)
{
    rig_open_redis(rig, 5000);
    struct lease_call granted = rig_grant(rig, ann, 33);

    assert_answer(granted, LEASE_GRANTED, 34);
    assert_lock_of(rig, LOCK, "34 a0000000000000000000000000000001", &granted, 1);
    assert_in_range(redis_number(rig, "PTTL", LOCK), 50000, 60000);
    assert_redis_has(rig, TOKEN, "34");
    assert_in_range(redis_number(rig, "PTTL", TOKEN), 604700000, 604800000);
    assert_answer(rig_call(rig, LEASE_RELEASE, ann, 34), LEASE_FREE, 0);
    assert_int_equal(redis_number(rig, "EXISTS", LOCK), 0);
    assert_int_equal(redis_number(rig, "EXISTS", TOKEN), 1);
}

RIG_TEST(prefix_and_database_are_options)
{
    rig_open(rig, "redis://127.0.0.1:%d/3?prefix=shop&timeout_ms=5000", rig->redis->port);
    rig_until(rig, rig_up(rig));
    struct lease_call granted = rig_grant(rig, ann, 0);
    assert_answer(granted, LEASE_GRANTED, 1);
    assert_int_equal(redis_number(rig, "EXISTS", "shop:{sku:1}:lock"), 0);
    redis_do(rig->redis, "SWAPDB 0 3");
    assert_lock_of(rig, "shop:{sku:1}:lock", "1 a0000000000000000000000000000001", &granted, 1);
}

RIG_TEST(a_lock_names_the_attempts_that_entered_until_it_is_renewed)
{
    rig_open_redis(rig, 5000);
    struct lease_call calls[] = {rig_grant(rig, ann, 33), rig_grant(rig, ann, 33),
                                 rig_grant(rig, ann, 33)};

    assert_lock_of(rig, LOCK, "34 a0000000000000000000000000000001", calls, 3);
    assert_answer(give_up(rig, calls[1]), LEASE_HELD, 34);
    calls[1] = calls[2];
    assert_lock_of(rig, LOCK, "34 a0000000000000000000000000000001", calls, 2);
    assert_in_range(redis_number(rig, "PTTL", LOCK), 50000, 60000);
    assert_answer(rig_call(rig, LEASE_RENEW, ann, 34), LEASE_GRANTED, 34);
    assert_redis_has(rig, LOCK, "34 a0000000000000000000000000000001");
    assert_in_range(redis_number(rig, "PTTL", LOCK), 50000, 60000);
}

RIG_TEST(a_lock_entered_often_is_given_up_by_its_token_only)
{
    rig_open_redis(rig, 5000);
    struct lease_call calls[20];

    for (size_t i = 0; i < 20; i++)
        calls[i] = rig_grant(rig, ann, 33);
    assert_redis_has(rig, LOCK, "34 a0000000000000000000000000000001");
    for (size_t i = 0; i < 20; i++)
        assert_answer(give_up(rig, calls[i]), LEASE_HELD, 34);
    assert_answer(rig_call(rig, LEASE_RELEASE, ann, 34), LEASE_FREE, 0);
}

/* Older daemons write such locks. */
RIG_TEST(a_lock_without_attempts_is_entered_renewed_and_released)
{
    rig_open_redis(rig, 5000);

    redis_do(rig->redis, "SET %s %b PX 10000", LOCK, "12 a0000000000000000000000000000001",
             (size_t)35);
    assert_answer(rig_grant(rig, bob, 12), LEASE_HELD, 12);
    struct lease_call again = rig_grant(rig, ann, 12);
    assert_answer(again, LEASE_OWN, 12);
    assert_redis_has(rig, LOCK, "12 a0000000000000000000000000000001");
    assert_in_range(redis_number(rig, "PTTL", LOCK), 50000, 60000);
    assert_answer(give_up(rig, again), LEASE_HELD, 12);
    assert_answer(rig_call(rig, LEASE_RENEW, ann, 12), LEASE_GRANTED, 12);
    assert_answer(rig_call(rig, LEASE_RELEASE, bob, 12), LEASE_HELD, 12);
    assert_answer(rig_call(rig, LEASE_RELEASE, ann, 12), LEASE_FREE, 0);
}

/* Expect the script to mint what token_next says. */
static void expect_minted(struct rig *rig, int64_t counter, int64_t floor)
{
    int64_t expected = token_next(counter, floor, token_believed_max(floor, 0));
    struct lease_call call = rig_grant(rig, ann, floor);

    if (expected == 0) {
        assert_int_equal(call.answer, LEASE_DOWN);
        assert_string_equal(call.reason, "the tokens of this resource are used up");
        assert_int_equal(redis_number(rig, "EXISTS", LOCK), 0);
        return;
    }
    assert_answer(call, LEASE_GRANTED, expected);
    assert_answer(rig_call(rig, LEASE_RELEASE, ann, expected), LEASE_FREE, 0);
}

RIG_TEST(a_counter_is_believed_as_the_token_rule_says)
{
    rig_open_redis(rig, 5000);
    static const int64_t floors[] = {
        0,        1, 1000, INT64_C(100000000000000), TOKEN_MAX - TOKEN_STEPS_MAX, TOKEN_MAX - 1,
        TOKEN_MAX};
    static const int64_t above[] = {-1000,
                                    -1,
                                    0,
                                    1,
                                    2,
                                    TOKEN_STEPS_MAX - 1,
                                    TOKEN_STEPS_MAX,
                                    TOKEN_STEPS_MAX + 1,
                                    TOKEN_DRIFT_MAX_US - 1,
                                    TOKEN_DRIFT_MAX_US,
                                    TOKEN_DRIFT_MAX_US + 1,
                                    INT64_C(1) << 50};

    for (size_t f = 0; f < sizeof floors / sizeof *floors; f++)
        for (size_t a = 0; a < sizeof above / sizeof *above; a++) {
            int64_t counter = floors[f] + above[a];
            redis_do(rig->redis, "SET %s %lld", TOKEN, (long long)counter);
            expect_minted(rig, counter, floors[f]);
        }
}

RIG_TEST(a_corrupt_counter_is_not_believed)
{
    rig_open_redis(rig, 5000);
    static const char *const corrupt[] = {
        "abc",   "-5",  "+12",  "007",  " 12",
        "12 ",   "1e5", "0x10", "12.5", "9223372036854775808",
        "1e400", "nan", "inf",  "",     "99999999999999999999999999999999999999999999",
    };

    for (size_t i = 0; i < sizeof corrupt / sizeof *corrupt; i++) {
        redis_do(rig->redis, "SET %s %s", TOKEN, corrupt[i]);
        expect_minted(rig, 0, 7);
        assert_redis_has(rig, TOKEN, "8");
    }
    redis_do(rig->redis, "DEL %s", TOKEN);
    redis_do(rig->redis, "RPUSH %s 1 2 3", TOKEN);
    expect_minted(rig, 0, 7);
    assert_redis_has(rig, TOKEN, "8");
    redis_do(rig->redis, "DEL %s", TOKEN);
    redis_do(rig->redis, "HSET %s field 12", TOKEN);
    expect_minted(rig, 0, 8);
    assert_redis_has(rig, TOKEN, "9");
}

RIG_TEST(a_lost_counter_is_restored_by_the_floor)
{
    rig_open_redis(rig, 5000);

    assert_answer(rig_grant(rig, ann, 41), LEASE_GRANTED, 42);
    redis_do(rig->redis, "FLUSHALL");
    assert_answer(rig_grant(rig, bob, 42), LEASE_GRANTED, 43);
}

static void expect_held_by_a_stranger(struct rig *rig, int64_t ttl_max_ms)
{
    struct lease_call call = rig_grant(rig, ann, 0);
    assert_answer(call, LEASE_HELD, 0);
    assert_in_range(call.answer_ttl_ms, 1, ttl_max_ms);
    assert_answer(rig_call(rig, LEASE_RENEW, ann, 12), LEASE_HELD, 0);
    assert_answer(rig_call(rig, LEASE_RELEASE, ann, 12), LEASE_HELD, 0);
    call.attempt = 1;
    assert_answer(give_up(rig, call), LEASE_HELD, 0);
    assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD, 0);
    assert_int_equal(redis_number(rig, "EXISTS", LOCK), 1);
}

RIG_TEST(a_lock_that_cannot_be_read_is_anothers)
{
    rig_open_redis(rig, 5000);
    static const char *const values[] = {
        "hello",
        "",
        "12",
        "12a0000000000000000000000000000001",
        "0 a0000000000000000000000000000001",
        "-12 a0000000000000000000000000000001",
        "012 a0000000000000000000000000000001",
        "1e1 a0000000000000000000000000000001",
        "9007199254740992 a0000000000000000000000000000001",
        "99999999999999999999999 a0000000000000000000000000000001",
    };

    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        redis_do(rig->redis, "SET %s %s PX 30000", LOCK, values[i]);
        expect_held_by_a_stranger(rig, 30000);
    }
    redis_do(rig->redis, "DEL %s", LOCK);
    redis_do(rig->redis, "RPUSH %s a b", LOCK);
    expect_held_by_a_stranger(rig, 1000);
}

RIG_TEST(a_lock_without_a_time_limit_is_looked_at_again_within_a_second)
{
    rig_open_redis(rig, 5000);

    redis_do(rig->redis, "SET %s %b", LOCK, "5 someone", (size_t)9);
    struct lease_call call = rig_grant(rig, ann, 0);
    assert_answer(call, LEASE_HELD, 5);
    assert_in_range(call.answer_ttl_ms, 1, 1000);
    assert_int_equal(redis_number(rig, "PTTL", LOCK), -1);

    redis_do(rig->redis, "DEL %s", LOCK);
    rig_grant(rig, ann, 0);
    redis_do(rig->redis, "PERSIST %s", LOCK);
    assert_answer(rig_grant(rig, ann, 1), LEASE_OWN, 1);
    assert_in_range(redis_number(rig, "PTTL", LOCK), 50000, 60000);
}

RIG_TEST(scripts_are_sent_again_when_redis_forgot_them)
{
    rig_open_redis(rig, 5000);

    for (int64_t i = 0; i < 3; i++) {
        redis_do(rig->redis, "SCRIPT FLUSH");
        assert_answer(rig_grant(rig, ann, i), LEASE_GRANTED, i + 1);
        assert_answer(rig_call(rig, LEASE_QUERY, "", 0), LEASE_HELD, i + 1);
        assert_answer(rig_call(rig, LEASE_RELEASE, ann, i + 1), LEASE_FREE, 0);
    }
    assert_true(rig_up(rig));
    assert_int_equal(lease_provider_health(rig->provider).failures, 0);
    assert_int_equal(lease_provider_health(rig->provider).reconnects, 0);
}

static void expect_a_lease_cycle(struct rig *rig)
{
    rig_until(rig, rig_up(rig));
    assert_answer(rig_grant(rig, ann, 0), LEASE_GRANTED, 1);
    assert_answer(rig_call(rig, LEASE_RELEASE, ann, 1), LEASE_FREE, 0);
    redis_do(rig->redis, "FLUSHALL");
    rig_close(rig);
}

/* A machine without IPv6 has no ::1. */
static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

RIG_TEST(ways_in_unix_socket_name_and_ipv6)
{
    rig_open(rig, "redis+unix:%s", rig->redis->socket);
    expect_a_lease_cycle(rig);
    rig_open(rig, "redis://localhost:%d", rig->redis->port);
    expect_a_lease_cycle(rig);
    if (has_ipv6()) {
        rig_open(rig, "redis://[::1]:%d", rig->redis->port);
        expect_a_lease_cycle(rig);
    }
}

/* Write a link-local address of this machine with its interface. False: there is none. */
static bool find_link_local(char *out, size_t size)
{
    uv_interface_address_t *found;
    char text[INET6_ADDRSTRLEN];
    int count = 0;

    out[0] = '\0';
    assert_int_equal(uv_interface_addresses(&found, &count), 0);
    for (int i = 0; i < count; i++) {
        const struct sockaddr_in6 *address = &found[i].address.address6;
        if (address->sin6_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr) &&
            uv_ip6_name(address, text, sizeof text) == 0)
            snprintf(out, size, "%s%%%s", text, found[i].name);
    }
    uv_free_interface_addresses(found, count);
    return out[0] != '\0';
}

RIG_TEST(an_address_may_name_its_interface)
{
    char address[128], bind[160];

    if (!find_link_local(address, sizeof address))
        skip();
    snprintf(bind, sizeof bind, "127.0.0.1 %s", address);
    struct service *redis =
        redis_new((const char *[]){"--protected-mode", "no", "--bind", bind, NULL});
    rig_open(rig, "redis://[%s]:%d", address, redis->port);
    expect_a_lease_cycle(rig);
    service_free(redis);
}

/* "localhost" is ::1 first on many machines, where this server is not. */
RIG_TEST(every_address_of_a_name_is_tried)
{
    struct service *ipv4 = redis_new((const char *[]){"--bind", "127.0.0.1", NULL});

    rig_open(rig, "redis://localhost:%d", ipv4->port);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_grant(rig, ann, 0), LEASE_GRANTED, 1);
    service_free(ipv4);
}

RIG_TEST(it_says_who_it_is)
{
    rig_open_redis(rig, 5000);
    redisReply *reply = redis_ask(rig->redis, "CLIENT LIST");

    assert_non_null(strstr(reply->str, "name=stockade "));
    freeReplyObject(reply);
    assert_string_equal(lease_provider_name(rig->provider), "redis");
    char ready[64];
    snprintf(ready, sizeof ready, "redis 127.0.0.1:%d: ready", rig->redis->port);
    assert_string_equal(lease_provider_health(rig->provider).detail, ready);
}

RIG_TEST(a_password_and_a_user_with_a_password)
{
    redis_do(rig->redis, "ACL SETUSER shop on >p:%%40ss ~* +@all");
    rig_open(rig, "redis://shop:p%%3a%%2540ss@127.0.0.1:%d", rig->redis->port);
    expect_a_lease_cycle(rig);
    redis_do(rig->redis, "ACL DELUSER shop");

    struct service *guarded = redis_new((const char *[]){"--requirepass", "open sesame", NULL});
    rig_open(rig, "redis://:open%%20sesame@127.0.0.1:%d", guarded->port);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_grant(rig, ann, 0), LEASE_GRANTED, 1);
    rig_close(rig);
    rig_open(rig, "redis+unix:%s?password=open%%20sesame", guarded->socket);
    rig_until(rig, rig_up(rig));
    assert_answer(rig_grant(rig, ann, 0), LEASE_OWN, 1);
    service_free(guarded);
}

RIG_TEST(a_wrong_password_is_told_and_never_shown)
{
    char text[4096];

    struct service *guarded = redis_new((const char *[]){"--requirepass", "sesame", NULL});
    rig_open(rig, "redis://:wrong-sesame@127.0.0.1:%d", guarded->port);
    rig_until(rig, rig_detail_has(rig, "WRONGPASS"));
    struct lease_call call = rig_grant(rig, ann, 0);
    assert_int_equal(call.answer, LEASE_DOWN);
    assert_non_null(strstr(call.reason, "WRONGPASS"));
    assert_null(strstr(call.reason, "sesame"));
    assert_false(rig_detail_has(rig, "sesame"));
    assert_null(strstr(rig_logged(rig, text, sizeof text), "sesame"));
    rig_close(rig);

    rig_open(rig, "redis://127.0.0.1:%d", guarded->port);
    rig_until(rig, rig_detail_has(rig, "NOAUTH"));
    rig_close(rig);
    service_free(guarded);
}
