/* SPDX-License-Identifier: Apache-2.0 */
/* Lease URIs: what is understood, and what is refused at which column. */
#include "fence/lease/uri.h"
#include "tests/unit/test.h"

static struct lease_uri parsed(const char *text)
{
    struct lease_uri uri;
    char why[128] = "";

    if (!lease_uri_parse(text, &uri, why, sizeof why))
        fail_msg("%s: %s", text, why);
    return uri;
}

static void expect_login(const struct uri_login *login, const char *expected)
{
    char text[400];

    snprintf(text, sizeof text, "%s:%s", login->user, login->password);
    assert_string_equal(text, expected);
}

/* Hosts, paths and names are compared by lease_uri_text. */
TEST(what_is_understood)
{
    static const struct {
        const char *uri, *text;
        enum lease_uri_kind kind;
        const char *login, *sentinel_login; /* NULL: none */
        const char *prefix;                 /* NULL: the default */
        int db, timeout_ms, replicas, session_ms;
    } rows[] = {
        {"local:", "local", LEASE_URI_LOCAL, .timeout_ms = 0},
        {"redis://cache.example.com", "redis cache.example.com:6379", LEASE_URI_REDIS,
         .timeout_ms = 1000},
        {"redis://h/", "redis h:6379", LEASE_URI_REDIS, .timeout_ms = 1000},
        {"redis://sh%6fp:p%3A%40%2f%25ss:@10.0.0.1:7000/12?prefix=my%20shop&timeout_ms=250",
         "redis 10.0.0.1:7000", LEASE_URI_REDIS, "shop:p:@/%ss:", .prefix = "my shop", .db = 12,
         .timeout_ms = 250},
        {"redis://:secret@h:1?timeout_ms=10", "redis h:1", LEASE_URI_REDIS, ":secret",
         .timeout_ms = 10},
        {"redis://u:p@[fe80::1]:6380/1", "redis [fe80::1]:6380", LEASE_URI_REDIS, "u:p", .db = 1,
         .timeout_ms = 1000},
        {"redis://[::1]", "redis [::1]:6379", LEASE_URI_REDIS, .timeout_ms = 1000},
        {"redis+unix:/run/my%20redis.sock?db=3&user=u&password=p%26&prefix=x&timeout_ms=99",
         "redis /run/my redis.sock", LEASE_URI_REDIS_UNIX, "u:p&", .prefix = "x", .db = 3,
         .timeout_ms = 99},
        {"redis+unix:redis.sock", "redis redis.sock", LEASE_URI_REDIS_UNIX, .timeout_ms = 1000},
        {"redis+sentinel://h/n", "sentinel n of h:26379", LEASE_URI_SENTINEL, .timeout_ms = 1000},
        {"redis+sentinel://u:p@a,10.0.0.2:5000,[::1]/my%20shop?db=2&replicas=1&prefix=x"
         "&sentinel_user=su&sentinel_password=sp&timeout_ms=300",
         "sentinel my shop of a:26379,10.0.0.2:5000,[::1]:26379", LEASE_URI_SENTINEL, "u:p",
         "su:sp", "x", .db = 2, .timeout_ms = 300, .replicas = 1},
        {"redlock://u:p@a:1,a:2,b/3?prefix=x", "redlock of a:1,a:2,b:6379", LEASE_URI_REDLOCK,
         "u:p", .prefix = "x", .db = 3, .timeout_ms = 100},
        {"zookeeper://u:p@a,b:1/shop/leases?session_ms=4000", "zookeeper/shop/leases of a:2181,b:1",
         LEASE_URI_ZOOKEEPER, "u:p", .timeout_ms = 1000, .session_ms = 4000},
        {"zookeeper://a/", "zookeeper of a:2181", LEASE_URI_ZOOKEEPER, .timeout_ms = 1000,
         .session_ms = 6000},
    };
    char text[128];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lease_uri uri = parsed(rows[i].uri);
        assert_int_equal(uri.kind, rows[i].kind);
        assert_string_equal(lease_uri_text(&uri, text, sizeof text), rows[i].text);
        expect_login(&uri.login, rows[i].login == NULL ? ":" : rows[i].login);
        expect_login(&uri.sentinel_login,
                     rows[i].sentinel_login == NULL ? ":" : rows[i].sentinel_login);
        assert_string_equal(uri.prefix, rows[i].prefix == NULL ? "stockade" : rows[i].prefix);
        assert_int_equal(uri.db, rows[i].db);
        assert_int_equal(uri.timeout_ms, rows[i].timeout_ms);
        assert_int_equal(uri.replicas, rows[i].replicas);
        if (uri.kind == LEASE_URI_ZOOKEEPER)
            assert_int_equal(uri.session_ms, rows[i].session_ms);
    }
}

TEST(a_member_is_a_redis_of_its_own)
{
    struct lease_uri uri = parsed("redis+sentinel://u:p@a,b:5000/n?db=2&sentinel_user=su"
                                  "&sentinel_password=sp");
    struct lease_uri member = lease_uri_member(&uri, 1);
    char text[128];

    assert_string_equal(lease_uri_text(&member, text, sizeof text), "redis b:5000");
    expect_login(&member.login, "su:sp");
    assert_int_equal(member.db, 0);
    uri = parsed("redlock://u:p@a:1,a:2,b/3?prefix=x");
    member = lease_uri_member(&uri, 2);
    assert_string_equal(lease_uri_text(&member, text, sizeof text), "redis b:6379");
    expect_login(&member.login, "u:p");
    assert_string_equal(member.prefix, "x");
    assert_int_equal(member.db, 3);
}

TEST(by_tls_it_is_the_same_with_files)
{
    struct lease_uri uri = parsed("rediss+sentinel://a,b/n?tls_ca=/ca.pem&tls_cert=c&tls_key=k"
                                  "&tls_name=redis.example");
    struct lease_uri member = lease_uri_member(&uri, 1);
    char text[128];

    assert_string_equal(lease_uri_text(&uri, text, sizeof text),
                        "sentinel (TLS) n of a:26379,b:26379");
    assert_string_equal(lease_uri_text(&member, text, sizeof text), "redis (TLS) b:26379");
    assert_string_equal(member.tls_ca, "/ca.pem");
    assert_string_equal(member.tls_cert, "c");
    assert_string_equal(member.tls_key, "k");
    assert_string_equal(member.tls_name, "redis.example");
    assert_true(parsed("rediss://h/3").tls);
    assert_true(parsed("redlock+tls://a,b,c").tls);
    assert_false(parsed("redis://h").tls);
}

TEST(a_text_that_does_not_fit_is_cut)
{
    struct lease_uri uri = parsed("redlock://aaaa:1,bbbb:2,cccc:3");
    char text[20];

    assert_string_equal(lease_uri_text(&uri, text, sizeof text), "redlock of aaaa:1,b");
}

TEST(what_is_refused_and_where)
{
    /* The column of the first mistake, and what it is. */
    static const struct {
        const char *text;
        int column;
        const char *why;
    } cases[] = {
        /* The service. */
        {"", 1, "begins with"},
        {"redis", 1, "begins with"},
        {"http://h", 1, "begins with"},
        {"Redis://h", 1, "begins with"},
        {"redis:/h", 1, "begins with"},
        {"local", 1, "begins with"},
        {"local:x", 7, "nothing follows"},
        {"zookeepers://h", 1, "ZooKeeper's client in Debian has no TLS"},
        {"redis://h?tls_ca=/ca.pem", 11, "options are"},
        {"redis-cluster://h", 1, "redis+cluster://host,host,host"},
        {"redis://a b", 10, "a blank"},
        {"redis://h\n", 10, "a blank"},
        {"redis://h\xc3\xa9", 10, "no printable ASCII"},
        /* Hosts, logins and ports. */
        {"redis://", 9, "a host is missing"},
        {"redis:///0", 9, "a host is missing"},
        {"redis://?prefix=x", 9, "a host is missing"},
        {"redis://::1:6379", 9, "a host is missing"},
        {"redis://:pw@", 13, "a host is missing"},
        {"redis://pw@h", 9, "a user without a password"},
        {"redis://u:@h", 11, "the password is missing"},
        {"redis://u:p@ss@h", 15, "not expected here"},
        {"redis://u:%zz@h", 11, "two hex digits"},
        {"redis://u:%1@h", 11, "two hex digits"},
        {"redis://u:p%@h", 12, "two hex digits"},
        {"redis://u:%00@h", 11, "two hex digits"},
        {"redis://[::1", 9, "'[' without ']'"},
        {"redis://[::g]", 10, "not an IPv6 address"},
        {"redis://[]", 10, "not an IPv6 address"},
        {"redis://[127.0.0.1]", 10, "not an IPv6 address"},
        {"redis://[::1]x", 14, "not expected here"},
        {"redis://ho$t", 11, "not expected here"},
        {"redis://h:", 11, "the port is a number from 1 to 65535"},
        {"redis://h:0", 11, "the port"},
        {"redis://h:65536", 11, "the port"},
        {"redis://h:06379", 11, "the port"},
        {"redis://h:6379x", 11, "the port"},
        {"redis://h:99999999999999999999", 11, "the port"},
        /* The database and options. */
        {"redis://h/x", 11, "the database"},
        {"redis://h/-1", 11, "the database"},
        {"redis://h/65536", 11, "the database"},
        {"redis://h/1/2", 11, "the database"},
        {"redis://h?", 11, "the options are prefix and timeout_ms"},
        {"redis://h?db=1", 11, "\"db\" is unknown; the options are prefix and timeout_ms"},
        {"redis://h?tiemout=3", 11,
         "\"tiemout\" is unknown; the options are prefix and timeout_ms"},
        {"redis://h?Prefix=x", 11, "\"Prefix\" is unknown; did you mean prefix?"},
        {"redis://h?prefix", 11, "expected prefix=VALUE"},
        {"redis://h?prefix=", 18, "the prefix is missing"},
        {"redis://h?prefix=a%7Bb", 18, "no braces"},
        {"redis://h?prefix=a&prefix=b", 20, "there twice"},
        {"redis://h?prefix=a&", 20, "the options"},
        {"redis://h?timeout_ms=9", 22, "from 10 to 60000"},
        {"redis://h?timeout_ms=60001", 22, "from 10 to 60000"},
        {"redis://h?timeout_ms=1s", 22, "from 10 to 60000"},
        {"redis+unix:", 12, "path of a unix socket is missing"},
        {"redis+unix:?db=1", 12, "path of a unix socket is missing"},
        {"redis+unix:/s?user=u", 21, "a user without a password"},
        {"redis+unix:/s?dbs=1", 15, "\"dbs\" is unknown; did you mean db?"},
        /* Lists of hosts. */
        {"redis://a,b", 10, "not expected here"},
        {"redis+sentinel://", 18, "a host is missing"},
        {"redis+sentinel://h", 19, "the master's name is missing"},
        {"redis+sentinel://h/", 20, "the master's name is missing"},
        {"redis+sentinel://h/?db=1", 20, "the master's name is missing"},
        {"redis+sentinel://h,/n", 20, "a host is missing"},
        {"redis+sentinel://h,h:26379/n", 20, "this host is there twice"},
        {"redis+sentinel://h:1,h:2,h:1/n", 26, "this host is there twice"},
        {"redis+sentinel://h:x,g/n", 20, "the port"},
        {"redis+sentinel://h/n?replicas=101", 31, "the number of replicas"},
        {"redis+sentinel://h/n?sentinel_user=u", 37, "a user without a password"},
        {"redis+sentinel://h/n?session_ms=1", 22,
         "\"session_ms\" is unknown; the options are prefix, timeout_ms, db, replicas, "
         "sentinel_user "
         "and sentinel_password"},
        {"redlock://a", 12, "three masters or more"},
        {"redlock://a,b/1", 14, "three masters or more"},
        {"redlock://a,b,a", 15, "this host is there twice"},
        {"redlock://a,b,c/x", 17, "the database"},
        {"redlock://a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,b:1,b:2,b:3,b:4,b:5,b:6,b:7", 71,
         "more hosts than it can have"},
        {"zookeeper://h/a/", 15, "a chroot has no empty part"},
        {"zookeeper://h/a//b", 15, "a chroot has no empty part"},
        {"zookeeper://h?session_ms=999", 26, "session_ms is a number from 1000 to 3600000"},
        {"zookeeper://h?db=1", 15,
         "\"db\" is unknown; the options are prefix, timeout_ms and session_ms"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct lease_uri uri;
        char why[256] = "", column[48];
        if (lease_uri_parse(cases[i].text, &uri, why, sizeof why))
            fail_msg("%s was understood", cases[i].text);
        snprintf(column, sizeof column, "column %d: ", cases[i].column);
        if (strstr(why, column) == NULL || strstr(why, cases[i].why) == NULL)
            fail_msg("%s: %s", cases[i].text, why);
    }
}

static void expect_length(const char *format, size_t fits)
{
    char part[600], text[1200], why[128];
    struct lease_uri uri;

    for (size_t len = fits; len <= fits + 1; len++) {
        memset(part, 'x', len);
        part[len] = '\0';
        snprintf(text, sizeof text, format, part);
        assert_int_equal(lease_uri_parse(text, &uri, why, sizeof why), len == fits);
    }
    assert_non_null(strstr(why, "is longer than"));
}

TEST(every_part_has_a_longest_form)
{
    expect_length("redis://%s", 255);
    expect_length("redis://%s:p@h", 127);
    expect_length("redis://:%s@h", 255);
    expect_length("redis://h?prefix=%s", 64);
    expect_length("redis+unix:%s", 106);
}

static void expect_number(const char *format, int64_t least, int64_t most)
{
    const int64_t tried[] = {least - 1, least, most, most + 1};
    char text[128], why[128];
    struct lease_uri uri;

    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, format, (long long)tried[i]);
        if (lease_uri_parse(text, &uri, why, sizeof why) != (i == 1 || i == 2))
            fail_msg("%s", text);
    }
}

TEST(each_number_is_taken_from_its_least_to_its_greatest)
{
    expect_number("redis://h?timeout_ms=%lld", 10, 60000);
    expect_number("redis+unix:/s?db=%lld", 0, 65535);
    expect_number("redis://h/%lld", 0, 65535);
    expect_number("redis+sentinel://h/n?replicas=%lld", 0, 100);
    expect_number("zookeeper://h?session_ms=%lld", 1000, 3600000);
    expect_number("redis://h:%lld", 1, 65535);
}

TEST(there_are_at_most_15_hosts)
{
    static const char *const schemes[] = {"redlock", "redis+sentinel", "redis+cluster",
                                          "zookeeper"};

    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        for (int hosts = 15; hosts <= 16; hosts++) {
            struct lease_uri uri;
            char text[128], why[128];
            int len = snprintf(text, sizeof text, "%s://h", schemes[i]);
            for (int n = 1; n < hosts; n++)
                len += snprintf(text + len, sizeof text - (size_t)len, ",h%d", n);
            snprintf(text + len, sizeof text - (size_t)len, "%s", i == 1 ? "/name" : "");
            assert_int_equal(lease_uri_parse(text, &uri, why, sizeof why), hosts == 15);
        }
}

TEST(no_complaint_repeats_a_password)
{
    static const char *const texts[] = {
        "redis://:secret@",
        "redis://u:secret%zz@h",
        "redis://secret@h",
        "redis:/:secret@h",
        "redis://u:secret@ss@h",
        "redis://:secret@h:port",
        "redis+unix:/s?password=secret&db=x",
        "rediss:/:secret@h",
        "redis://:secret@h?x=secret",
        "redis+sentinel://:secret@h",
        "redis+sentinel://h/n?sentinel_password=secret&sentinel_password=secret",
        "redlock://u:secret@a,b",
    };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct lease_uri uri;
        char why[128];
        assert_false(lease_uri_parse(texts[i], &uri, why, sizeof why));
        assert_null(strstr(why, "secret"));
    }
}
