/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses: which are understood, and how they are shown. */
#include <netinet/in.h>

#include "proxy/server/address.h"
#include "tests/unit/test.h"

TEST(hosts_ports_and_paths_are_told_apart)
{
    static const struct {
        const char *text, *host;
        int port;
    } rows[] = {{"127.0.0.1:7379", "127.0.0.1", 7379},
                {"localhost:0", "localhost", 0},
                {"[::1]:65535", "::1", 65535},
                {"[fe80::1%lo]:1", "fe80::1%lo", 1}};
    struct address address;
    char why[128];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(address_parse(rows[i].text, &address, why, sizeof why));
        assert_int_equal(address.kind, ADDRESS_TCP);
        assert_string_equal(address.host.name, rows[i].host);
        assert_int_equal(address.host.port, rows[i].port);
    }
    assert_true(address_parse("unix:/run/a:1", &address, why, sizeof why));
    assert_int_equal(address.kind, ADDRESS_UNIX);
    assert_string_equal(address.path, "/run/a:1");
}

TEST(what_is_not_an_address_is_refused)
{
    char long_path[128];
    const char *const wrong[] = {
        "",         "7379",  ":7379", "h:",    "h:-1",   "h:65536", "h:1x",      "h: 1",
        "::1:7379", "[::1]", "[]:1",  "unix:", "h:0080", "h:+1",    "[::1:7379", long_path};
    struct address address;

    snprintf(long_path, sizeof long_path, "unix:/%0107d", 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char why[128] = "";
        if (address_parse(wrong[i], &address, why, sizeof why))
            fail_msg("%s was taken for an address", wrong[i]);
        assert_true(strlen(why) > 10);
    }
    char why[128];
    long_path[5 + 107] = '\0';
    assert_true(address_parse(long_path, &address, why, sizeof why));
}

/* Resolve the address and compare its text. Return whether it is loopback. */
static bool resolves_to(const char *text, const char *expected)
{
    struct address address;
    struct sockaddr_storage resolved;
    char why[128], printed[ADDRESS_TEXT_MAX];

    assert_true(address_parse(text, &address, why, sizeof why));
    assert_true(address_resolve(&address, &resolved, why, sizeof why));
    assert_string_equal(address_text(&resolved, printed), expected);
    return address_is_loopback(&resolved);
}

TEST(loopback_is_what_never_leaves_the_machine)
{
    assert_true(resolves_to("127.0.0.1:1", "127.0.0.1:1"));
    assert_true(resolves_to("127.9.8.7:65535", "127.9.8.7:65535"));
    assert_true(resolves_to("[::1]:2", "[::1]:2"));
    assert_true(resolves_to("[::ffff:127.0.0.1]:2", "[::ffff:127.0.0.1]:2"));
    assert_true(resolves_to("localhost:3", "127.0.0.1:3"));
    assert_false(resolves_to("0.0.0.0:1", "0.0.0.0:1"));
    assert_false(resolves_to("[::]:1", "[::]:1"));
    assert_false(resolves_to("10.0.0.1:1", "10.0.0.1:1"));
    assert_false(resolves_to("128.0.0.1:1", "128.0.0.1:1"));
    assert_false(resolves_to("[::ffff:10.0.0.1]:1", "[::ffff:10.0.0.1]:1"));
}

TEST(what_is_no_internet_address_is_a_unix_socket)
{
    struct sockaddr_storage resolved = {.ss_family = AF_UNIX};
    char printed[ADDRESS_TEXT_MAX];
    assert_string_equal(address_text(&resolved, printed), "unix");
    assert_false(address_is_loopback(&resolved));
}
