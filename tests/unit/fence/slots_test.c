/* SPDX-License-Identifier: Apache-2.0 */
/* Redis Cluster's slots and its words. */
#include "tests/unit/test.h"

#include <hiredis/hiredis.h>
#include <string.h>

#include "fence/lease/redis/scripts.h"
#include "fence/lease/redis/slots.h"

static const struct uri_host asked = {.name = "10.0.0.9", .port = 7000};

/* The specification's own examples; the others by CLUSTER KEYSLOT. */
TEST(a_key_is_in_its_slot)
{
    assert_int_equal(slot_of_key(bytes_of("123456789")), 0x31c3);
    assert_int_equal(slot_of_key(bytes_of("{user1000}.following")),
                     slot_of_key(bytes_of("user1000")));
    assert_int_equal(slot_of_key(bytes_of("foo{{bar}}zap")), slot_of_key(bytes_of("{bar")));
    assert_int_equal(slot_of_key(bytes_of("foo{bar}{zap}")), slot_of_key(bytes_of("bar")));
    assert_int_not_equal(slot_of_key(bytes_of("foo{}{bar}")), slot_of_key(bytes_of("bar")));
    assert_int_equal(slot_of_key(bytes_of("")), 0);
    assert_int_equal(slot_of_key(bytes_of("foo")), 12182);
    assert_int_equal(slot_of_key(bytes_of("x{")), slot_of_key(bytes_of("x{")));
}

/* What decides is what Redis sees in the keys that the scripts are given. */
TEST(both_keys_of_a_resource_are_in_the_slot_of_its_tag)
{
    static const char *const names[] = {"sku:1", "}", "}x",  "{",  "{}", "a}b",
                                        "a{b}c", "#", "{#}", "}#", "",   "{}}"};
    struct script_args args = {.count = 0};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct lease_call call = {.verb = LEASE_QUERY, .resource = bytes_of(names[i])};
        script_args(&call, &(struct script_self){"stockade", "wake", "me", true}, &args);
        unsigned slot = slot_of_key(script_slot_tag(call.resource));
        for (int key = 1; key <= 2; key++)
            if (slot_of_key((struct bytes){args.at[key], args.lens[key]}) != slot)
                fail_msg("key %d of %s", key, names[i]);
    }
    buf_free(&args.text);
}

static void assert_redirect(const char *error, enum redirect_kind kind, const char *name, int port)
{
    struct redirect redirect = redirect_read(bytes_of(error), &asked);

    if (redirect.kind != kind)
        fail_msg("%s", error);
    if (kind != REDIRECT_MOVED && kind != REDIRECT_ASK)
        return;
    assert_string_equal(redirect.to.name, name);
    assert_int_equal(redirect.to.port, port);
}

TEST(errors_send_us_on)
{
    assert_redirect("MOVED 3999 127.0.0.1:6381", REDIRECT_MOVED, "127.0.0.1", 6381);
    assert_redirect("ASK 3999 ::1:6381", REDIRECT_ASK, "::1", 6381);
    assert_redirect("MOVED 3999 :6381", REDIRECT_MOVED, "10.0.0.9", 6381);
    assert_redirect("MOVED 3999 ?:6381", REDIRECT_MOVED, "10.0.0.9", 6381);
    assert_redirect("TRYAGAIN Multiple keys request during rehashing of slot", REDIRECT_LATER, "",
                    0);
    assert_redirect("CLUSTERDOWN Hash slot not served", REDIRECT_LATER, "", 0);
    assert_redirect("MOVED", REDIRECT_NONE, "", 0);
    assert_redirect("MOVED x 127.0.0.1:6381", REDIRECT_NONE, "", 0);
    assert_redirect("MOVED 3999 127.0.0.1", REDIRECT_NONE, "", 0);
    assert_redirect("MOVED 3999 127.0.0.1:0", REDIRECT_NONE, "", 0);
    assert_redirect("MOVED 3999 127.0.0.1:99999", REDIRECT_NONE, "", 0);
    assert_redirect("MOVEDX 3999 127.0.0.1:6381", REDIRECT_NONE, "", 0);
    assert_redirect("ERR no", REDIRECT_NONE, "", 0);
    assert_redirect("", REDIRECT_NONE, "", 0);
}

struct heard {
    int count;
    struct slot_range last;
};

static void hear(void *context, const struct slot_range *range)
{
    struct heard *heard = context;

    heard->count++;
    heard->last = *range;
}

/* What a Redis says, as bytes. */
static bool read_map(const char *bytes, struct heard *heard)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    *heard = (struct heard){.count = 0};
    assert_int_equal(redisReaderFeed(reader, bytes, strlen(bytes)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    bool is_map = slots_read(reply, &asked, hear, heard);
    freeReplyObject(reply);
    redisReaderFree(reader);
    return is_map;
}

#define NODE(host, port) "*2\r\n" host ":" port "\r\n"

TEST(the_map_is_read_whole_or_not_at_all)
{
    struct heard heard;

    assert_true(read_map(
        "*2\r\n*3\r\n:0\r\n:5\r\n" NODE("$1\r\na\r\n", "7001") "*4\r\n:6\r\n:16383\r\n" NODE(
            "$0\r\n\r\n", "7002") NODE("$1\r\nc\r\n", "7003"),
        &heard));
    assert_int_equal(heard.count, 2);
    assert_int_equal(heard.last.last, 16383);
    assert_string_equal(heard.last.master.name, "10.0.0.9");
    assert_int_equal(heard.last.master.port, 7002);
    assert_true(read_map("*1\r\n*3\r\n:0\r\n:5\r\n" NODE("$-1\r\n", "7001"), &heard));
    assert_true(read_map("*0\r\n", &heard));
    static const char *const wrong[] = {
        "+OK\r\n",
        ":1\r\n",
        "-ERR This instance has cluster support disabled\r\n",
        "*1\r\n:1\r\n",
        "*1\r\n*2\r\n:0\r\n:5\r\n",
        "*1\r\n*3\r\n:5\r\n:0\r\n" NODE("$1\r\na\r\n", "7001"),
        "*1\r\n*3\r\n:0\r\n:16384\r\n" NODE("$1\r\na\r\n", "7001"),
        "*1\r\n*3\r\n:-1\r\n:5\r\n" NODE("$1\r\na\r\n", "7001"),
        "*1\r\n*3\r\n:0\r\n:5\r\n" NODE("$1\r\na\r\n", "0"),
        "*1\r\n*3\r\n:0\r\n:5\r\n" NODE(":1\r\n", "7001"),
        "*1\r\n*3\r\n:0\r\n:5\r\n*1\r\n$1\r\na\r\n",
        "*2\r\n*3\r\n:0\r\n:5\r\n" NODE("$1\r\na\r\n", "7001") ":1\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (read_map(wrong[i], &heard))
            fail_msg("%s", wrong[i]);
        assert_int_equal(heard.count, 0);
    }
}
