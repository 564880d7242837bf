/* SPDX-License-Identifier: Apache-2.0 */
/* The URIs of servers, and what replies mean. */
#include "tests/unit/test.h"
#include "tools/client.h"

static struct failure failure;

TEST(a_host_and_port_are_read)
{
    struct client_uri uri;

    assert_true(client_uri_parse(&uri, "stockade", "stockade://127.0.0.1:7379", &failure));
    assert_false(uri.is_unix);
    assert_string_equal(uri.host.name, "127.0.0.1");
    assert_int_equal(uri.host.port, 7379);
    assert_true(client_uri_parse(&uri, "redis", "redis://[::1]:6379/3", &failure));
    assert_string_equal(uri.host.name, "::1");
    assert_int_equal(uri.db, 3);
}

TEST(a_login_is_read)
{
    struct client_uri uri;

    assert_true(client_uri_parse(&uri, "redis", "redis://:p@ss:word@h:1", &failure));
    assert_string_equal(uri.login.user, "");
    assert_string_equal(uri.login.password, "p@ss:word");
    assert_string_equal(uri.host.name, "h");
    assert_true(client_uri_parse(&uri, "redis", "redis://me:secret@h:1/0", &failure));
    assert_string_equal(uri.login.user, "me");
    assert_string_equal(uri.login.password, "secret");
    assert_true(client_uri_parse(&uri, "redis", "redis://me:100%25@h:1", &failure));
    assert_string_equal(uri.login.password, "100%");
    assert_string_equal(uri.text, "redis://me:100%25@h:1");
}

TEST(a_unix_socket_is_read)
{
    struct client_uri uri;

    assert_true(client_uri_parse(&uri, "stockade", "stockade+unix:/run/s.sock", &failure));
    assert_true(uri.is_unix);
    assert_string_equal(uri.path, "/run/s.sock");
}

TEST(other_texts_are_refused)
{
    static const char *const bad[] = {"",
                                      "stockade",
                                      "stockade:",
                                      "stockade://",
                                      "stockade://:1",
                                      "stockade://h:",
                                      "stockade://h:0",
                                      "stockade://h:65536",
                                      "stockade://h:x",
                                      "stockade://h:1/x",
                                      "stockade://@h:1",
                                      "stockade://me@h:1",
                                      "stockade://:@h:1",
                                      "redis://h:1",
                                      "h:1",
                                      "stockade+unix:",
                                      "stockade-unix:/x"};
    char longer[400] = "stockade://";
    struct client_uri uri;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (client_uri_parse(&uri, "stockade", bad[i], &failure))
            fail_msg("taken for good: %s", bad[i]);
    memset(longer + strlen(longer), 'h', 300);
    strcpy(longer + 320, ":1");
    assert_false(client_uri_parse(&uri, "stockade", longer, &failure));
}

TEST(an_error_is_known_by_its_first_word)
{
    char text[] = "STALE the token is older";
    char word[] = "STALE";
    redisReply reply = {.type = REDIS_REPLY_ERROR, .str = text, .len = sizeof text - 1};

    assert_true(client_is_error(&reply, "STALE"));
    assert_false(client_is_error(&reply, "STAL"));
    assert_false(client_is_error(&reply, "STALEMATE"));
    reply.str = word;
    assert_true(client_is_error(&reply, "STALE"));
    reply.type = REDIS_REPLY_STATUS;
    assert_false(client_is_error(&reply, "STALE"));
}

TEST(acquire_has_three_answers)
{
    char text[] = "BUSY a queue is full";
    redisReply token = {.type = REDIS_REPLY_INTEGER, .integer = 34};
    redisReply ttl = {.type = REDIS_REPLY_INTEGER, .integer = 200};
    redisReply *elements[] = {&token, &ttl};
    redisReply granted = {.type = REDIS_REPLY_ARRAY, .elements = 2, .element = elements};
    redisReply held = {.type = REDIS_REPLY_NIL};
    redisReply refused = {.type = REDIS_REPLY_ERROR, .str = text};
    struct lease lease;

    assert_int_equal(lease_of(&granted, &lease), ACQUIRE_GRANTED);
    assert_int_equal(lease.token, 34);
    assert_int_equal(lease.ttl_ms, 200);
    assert_int_equal(lease_of(&held, &lease), ACQUIRE_HELD);
    assert_int_equal(lease_of(&refused, &lease), ACQUIRE_REFUSED);
    granted.elements = 1;
    assert_int_equal(lease_of(&granted, &lease), ACQUIRE_REFUSED);
}
