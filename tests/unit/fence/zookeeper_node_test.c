/* SPDX-License-Identifier: Apache-2.0 */
/* Paths, names and contents of the nodes in ZooKeeper. */
#include "fence/lease/zookeeper/node.h"
#include "fence/token.h"
#include "tests/unit/test.h"

static const char nonce[] = "a0000000000000000000000000000001";
static const char origin[] = "0123456789abcdef";

static struct node_name named(const char *number)
{
    struct node_name name;
    char text[64];

    snprintf(text, sizeof text, "%s-%s", origin, number);
    assert_true(node_name_parse(text, &name));
    return name;
}

TEST(any_bytes_become_one_plain_step_of_a_path)
{
    char path[NODE_PATH_MAX + 1], all[512];

    node_parent("/a/b", BYTES_LITERAL("sku:1/x y\0z%"), path);
    assert_string_equal(path, "/a/b/sku:1%2Fx%20y%00z%25");
    node_parent("/a/b", BYTES_LITERAL("."), path);
    assert_string_equal(path, "/a/b/%2E");
    node_parent("/a/b", BYTES_LITERAL(".."), path);
    assert_string_equal(path, "/a/b/%2E.");
    memset(all, 0xff, sizeof all);
    node_parent("/a/b", (struct bytes){all, sizeof all}, path);
    assert_int_equal(strlen(path), 5 + 3 * sizeof all);
}

TEST(the_longest_base_fits)
{
    struct lease_uri uri = {0};
    char base[NODE_BASE_MAX + 1];

    memset(uri.name, 'c', sizeof uri.name - 1);
    uri.name[0] = '/';
    memset(uri.prefix, '\x01', sizeof uri.prefix - 1);
    node_base(&uri, base);
    assert_int_equal(strlen(base), 128 + 1 + 3 * 64);
}

TEST(the_numbers_of_nodes_wrap_around)
{
    struct node_name first = named("2147483646"), last = named("2147483647"),
                     wrapped = named("-2147483648");

    assert_true(node_before(&first, &last) && !node_before(&last, &first));
    assert_true(node_before(&last, &wrapped) && !node_before(&wrapped, &last));
    assert_false(node_before(&last, &last));
    assert_true(node_is_of(&first, origin));
    assert_false(node_is_of(&first, "0123456789abcdee"));
}

TEST(a_name_at_anothers_place_is_that_place)
{
    const char *numbers[] = {"0000000000", "0000000012", "2147483647", "-2147483648"};

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct node_name place = named(numbers[i]), parsed;
        struct node_name name = node_name_at(&place, "fedcba9876543210");
        assert_true(node_name_parse(name.text, &parsed));
        assert_int_equal(parsed.number, place.number);
        assert_true(node_is_of(&parsed, "fedcba9876543210"));
    }
}

TEST(other_names_are_no_nodes_of_ours)
{
    const char *others[] = {"",
                            "x",
                            "0123456789abcdef",
                            "0123456789abcdef-",
                            "0123456789abcdeX-0000000001",
                            "0123456789ABCDEF-0000000001",
                            "0123456789abcdef-00000x0001",
                            "0123456789abcdef-99999999999",
                            "0123456789abcdef-00000000000000000001",
                            "0123456789abcdef+0000000001"};
    struct node_name name;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(node_name_parse(others[i], &name));
}

TEST(what_is_written_is_read)
{
    struct node_lease lease = {.token = 42, .ttl_ms = 1500}, read;
    char data[NODE_DATA_MAX];

    memcpy(lease.nonce, nonce, sizeof nonce);
    int len = node_write(&lease, true, data);
    assert_true(node_read((struct bytes){data, (size_t)len}, 100, &read));
    assert_int_equal(read.token, 42);
    assert_int_equal(read.ttl_ms, 1500);
    assert_string_equal(read.nonce, nonce);
    assert_false(read.queued);
    len = node_write(&lease, false, data);
    assert_true(node_read((struct bytes){data, (size_t)len}, 100, &read));
    assert_int_equal(read.token, 100);
    assert_true(node_read((struct bytes){data, (size_t)len}, 7, &read));
    assert_int_equal(read.token, 42);
    lease.queued = true;
    len = node_write(&lease, true, data);
    assert_true(node_read((struct bytes){data, (size_t)len}, 1, &read) && read.queued);
}

TEST(what_no_daemon_writes_is_refused)
{
    const char *others[] = {"",
                            "=",
                            "= ",
                            "q ",
                            "= 0 1 a0000000000000000000000000000001",
                            "= -1 1 a0000000000000000000000000000001",
                            "= 9007199254740992 1 a0000000000000000000000000000001",
                            "= 1 0 a0000000000000000000000000000001",
                            "= 1 9223372036854775807 a0000000000000000000000000000001",
                            "= 1 x a0000000000000000000000000000001",
                            "= 1 1 a000000000000000000000000000001",
                            "= 1 1 a00000000000000000000000000000012",
                            "! 1 1 a0000000000000000000000000000001",
                            "== 1 1 a0000000000000000000000000000001",
                            "= 1 1"};
    struct node_lease lease;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(node_read(bytes_of(others[i]), 5, &lease));
}

TEST(tokens_are_zxids_above_the_floor)
{
    assert_int_equal(node_token(10, 3), 10);
    assert_int_equal(node_token(10, 9), 10);
    assert_int_equal(node_token(10, 10), 11);
    assert_int_equal(node_token(10, 500), 501);
    assert_int_equal(node_token((INT64_C(5) << 32) + 7, 1), (INT64_C(5) << 32) + 7);
    assert_int_equal(node_token(INT64_C(1) << 60, 500), 501);
    assert_int_equal(node_token(10, TOKEN_MAX - 1), TOKEN_MAX);
    assert_int_equal(node_token(10, TOKEN_MAX), 0);
}
