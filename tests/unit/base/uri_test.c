/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that URIs and addresses are made of. (Whole ones: fence/uri_test.c,
 * client/target_test.c, server/address_test.c.) */
#include "fence/base/uri.h"
#include "tests/unit/test.h"

TEST(a_host_is_a_name_or_an_address_in_brackets)
{
    static const struct {
        const char *text, *name, *shown;
        size_t read;
    } rows[] = {
        {"h", "h", "h:1", 1},
        {"a-b.c_d:1/x", "a-b.c_d", "a-b.c_d:1", 7},
        {"10.0.0.1,h", "10.0.0.1", "10.0.0.1:1", 8},
        {"[::1]", "::1", "[::1]:1", 5},
        {"[fe80::1%eth0]:1", "fe80::1%eth0", "[fe80::1%eth0]:1", 14},
        {"[::ffff:127.0.0.1]", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:1", 18},
        {"", NULL, NULL, 0},
        {":1", NULL, NULL, 0},
        {"::1", NULL, NULL, 0},
        {"[::1", NULL, NULL, 0},
        {"[]", NULL, NULL, 1},
        {"[h]", NULL, NULL, 1},
        {"[fe80::1%]", NULL, NULL, 1},
        {"[fe80::1%a%b]", NULL, NULL, 1},
        {"[1111:1111:1111:1111:1111:1111:1111:1111:1111:1111:1111]", NULL, NULL, 1},
    };
    char shown[URI_HOST_TEXT_MAX];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct uri_reader reader = {.at = rows[i].text};
        struct uri_host host = {.port = 1};
        assert_int_equal(uri_take_host_name(&reader, &host), rows[i].name != NULL);
        assert_int_equal(reader.at - rows[i].text, rows[i].read);
        if (rows[i].name == NULL) {
            assert_true(strlen(reader.why) > 10);
            continue;
        }
        assert_string_equal(host.name, rows[i].name);
        assert_string_equal(uri_host_text(&host, shown), rows[i].shown);
    }
}

TEST(a_port_is_the_default_where_there_is_one)
{
    struct uri_reader reader = {.at = "h,g:7"};
    struct uri_host host;

    assert_true(uri_take_host(&reader, 5, &host));
    assert_int_equal(host.port, 5);
    assert_true(uri_skip(&reader, ","));
    assert_true(uri_take_host(&reader, 0, &host));
    assert_int_equal(host.port, 7);
    reader.at = "h/";
    assert_false(uri_take_host(&reader, 0, &host));
    assert_string_equal(reader.at, "/");
}

struct settings {
    char name[4];
    int count;
};

TEST(options_go_into_their_fields)
{
    static const struct uri_option options[] = {
        {"name", "name", URI_TEXT(struct settings, name)},
        {"count", "count", URI_NUMBER(struct settings, count, 1, 9)},
        {"counts", "other", URI_NUMBER(struct settings, count, 1, 9)},
    };
    struct settings settings = {0};
    struct uri_reader reader = {.at = "count=3&name=%41b&counts=1"};
    unsigned seen = 0;

    assert_int_equal(uri_take_option(&reader, options, 3, 3, &seen), 1);
    assert_true(uri_take_value(&reader, &options[1], &settings));
    assert_int_equal(settings.count, 3);
    assert_true(uri_skip(&reader, "&"));
    assert_int_equal(uri_take_option(&reader, options, 3, 3, &seen), 0);
    assert_true(uri_take_value(&reader, &options[0], &settings));
    assert_string_equal(settings.name, "Ab");
    assert_true(uri_skip(&reader, "&"));
    assert_int_equal(uri_take_option(&reader, options, 3, 3, &seen), -1);
    assert_string_equal(reader.why, "\"counts\" is unknown; did you mean count?");
    reader.at = "other=1";
    assert_int_equal(uri_take_option(&reader, options, 3, 3, &seen), -1);
    assert_string_equal(reader.why, "\"other\" is unknown; the options are name and count");
    reader.at = "name=toolong";
    assert_int_equal(uri_take_option(&reader, options, 3, 3, &seen), -1);
    assert_string_equal(reader.why, "this option is there twice");
    seen = 0;
    assert_int_equal(uri_take_option(&reader, options, 3, 3, &seen), 0);
    assert_false(uri_take_value(&reader, &options[0], &settings));
    assert_string_equal(reader.why, "the name is longer than 3 bytes");
    assert_string_equal(reader.at, "toolong");
}

TEST(a_masked_uri_shows_neither_logins_nor_passwords)
{
    static const char *const rows[][2] = {
        {"redis://h:1/2?prefix=a", "redis://h:1/2?prefix=a"},
        {"redis://ann:secret@h", "redis://***@h"},
        {"redis://:secret", "redis://***"},
        {"redis+unix:/x@y?password=sec@ret", "***@y?password=***"},
        {"redis+unix:/x?db=1&password=sec@ret", "redis+unix:/x?db=1&password=***"},
        /* A login's password may be anything: */
        {"redis://ann:secretpassword=secret@h", "redis://***@h"},
        {"redis://ann:password=s@h/1?prefix=a", "redis://***@h/1?prefix=a"},
        {"redis+sentinel://a:password=s@h/n?sentinel_password=s@s",
         "redis+sentinel://***@h/n?sentinel_password=***"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf shown = {0};
        uri_append_masked(&shown, rows[i][0]);
        buf_append(&shown, "", 1);
        assert_string_equal(shown.data, rows[i][1]);
        buf_free(&shown);
    }
}
