/* SPDX-License-Identifier: Apache-2.0 */
/* Client URIs: what they mean, and that no complaint shows a password. */
#include "proxy/client/target.h"
#include "tests/unit/test.h"

static struct target parsed(const char *uri)
{
    struct target target;
    char why[256] = "";

    if (!target_parse(uri, &target, why, sizeof why))
        fail_msg("%s: %s", uri, why);
    return target;
}

TEST(a_daemon_by_host_and_port)
{
    static const struct {
        const char *uri, *host;
        int port;
        const char *text;
    } rows[] = {
        {"stockade://127.0.0.1:7000", "127.0.0.1", 7000, "127.0.0.1:7000"},
        {"stockade://shop.example", "shop.example", 7379, "shop.example:7379"},
        {"stockade://[::1]:7000", "::1", 7000, "[::1]:7000"},
        {"stockade://[fe80::1]", "fe80::1", 7379, "[fe80::1]:7379"},
        {"stockade://h:1", "h", 1, "h:1"},
        {"stockade://h:65535", "h", 65535, "h:65535"},
    };
    char text[300];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct target target = parsed(rows[i].uri);
        assert_int_equal(target.kind, TARGET_TCP);
        assert_string_equal(target.host.name, rows[i].host);
        assert_int_equal(target.host.port, rows[i].port);
        assert_string_equal(target_text(&target, text, sizeof text), rows[i].text);
        assert_string_equal(target.login.password, "");
    }
}

TEST(credentials_are_decoded)
{
    struct target target = parsed("stockade://ann:se%3Acr%40t%2f@h:1");
    assert_string_equal(target.login.user, "ann");
    assert_string_equal(target.login.password, "se:cr@t/");
    target = parsed("stockade://:pw@[::1]:1");
    assert_string_equal(target.login.user, "");
    assert_string_equal(target.login.password, "pw");
    target = parsed("stockade://a:b@c@h:1"); /* the last @ is the one */
    assert_string_equal(target.login.password, "b@c");
    assert_string_equal(target.host.name, "h");
}

TEST(by_tls_there_are_files)
{
    struct target target = parsed("stockades://ann:pw@h:1?tls_ca=/ca.pem&tls_cert=c&tls_key=k"
                                  "&tls_name=shop.example");
    assert_int_equal(target.kind, TARGET_TCP);
    assert_true(target.tls);
    assert_string_equal(target.host.name, "h");
    assert_string_equal(target.login.user, "ann");
    assert_string_equal(target.tls_ca, "/ca.pem");
    assert_string_equal(target.tls_cert, "c");
    assert_string_equal(target.tls_key, "k");
    assert_string_equal(target.tls_name, "shop.example");
    target = parsed("stockades://h");
    assert_true(target.tls);
    assert_string_equal(target.tls_ca, "");
    assert_false(parsed("stockade://h").tls);
}

TEST(a_socket_and_a_store)
{
    struct target target = parsed("stockade+unix:/run/stockade.sock");
    assert_int_equal(target.kind, TARGET_UNIX);
    assert_string_equal(target.path, "/run/stockade.sock");
    target = parsed("stockade+unix:/run/s?user=ann&password=a%26b");
    assert_string_equal(target.path, "/run/s");
    assert_string_equal(target.login.user, "ann");
    assert_string_equal(target.login.password, "a&b");
    target = parsed("sqlite:./shop.db");
    assert_int_equal(target.kind, TARGET_EMBEDDED);
    assert_string_equal(target.path, "sqlite:./shop.db");
    assert_string_equal(target.lease, "local:");
    target = parsed("sqlite:/a b/x?y.db?lease=redis://:pw@h:1/2?prefix=shop");
    assert_string_equal(target.path, "sqlite:/a b/x?y.db");
    assert_string_equal(target.lease, "redis://:pw@h:1/2?prefix=shop");
    target = parsed("postgresql://shop@a,b/shop?sslmode=require&lease=redis://h:1");
    assert_int_equal(target.kind, TARGET_EMBEDDED);
    assert_string_equal(target.path, "postgresql://shop@a,b/shop?sslmode=require");
    assert_string_equal(target.lease, "redis://h:1");
    target = parsed("postgres://h/shop?lease=local:");
    assert_string_equal(target.path, "postgres://h/shop");
}

TEST(what_makes_no_sense_is_refused_without_a_word_of_its_secrets)
{
    static const char *const wrong[] = {
        "",
        "stockade:",
        "redis://h:1",
        "http://h",
        "stockade://",
        "stockade://:7379",
        "stockade://h:",
        "stockade://h:0",
        "stockade://h:65536",
        "stockade://h:7379/0",
        "stockade://h:+1",
        "stockade://h h",
        "stockade://[::1",
        "stockade://[::1]7379",
        "stockade://::1",
        "stockade://SECRET@h:1",
        "stockade://u:SECRET%@h:1",
        "stockade://u:SECRET%4@h:1",
        "stockade://u:SECRET%00@h:1",
        "stockade://u:SECRET@",
        "stockade://u:@h",
        "stockade+unix:",
        "stockade+unix:?password=SECRET",
        "stockade+unix:/s?user=SECRET",
        "stockade+unix:/s?passwort=SECRET",
        "stockade+unix:/s?SECRET",
        "sqlite:",
        "sqlite:?lease=local:",
        "sqlite:x?lease=",
        "postgresql://h/x?nonsense=1",
        "postgresql://u:SECRET%zz@h/x",
        "postgresql://u:SECRET@[::1/x",
        "postgresql://h/x?password=SECRET=",
        "sqlite:x?lease=nonsense:",
        "sqlite:x?lease=redis://u:SECRET@h:99999",
    };
    struct target target;
    char why[256];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        why[0] = '\0';
        if (target_parse(wrong[i], &target, why, sizeof why))
            fail_msg("%s is taken", wrong[i]);
        assert_true(strlen(why) > 10);
        assert_null(strstr(why, "SECRET"));
    }
}

TEST(what_does_not_fit_is_refused)
{
    char uri[6000], why[256];
    struct target target;

    snprintf(uri, sizeof uri, "stockade://%0300d", 1);
    assert_false(target_parse(uri, &target, why, sizeof why));
    snprintf(uri, sizeof uri, "stockade+unix:/%0107d", 1);
    assert_false(target_parse(uri, &target, why, sizeof why));
    snprintf(uri, sizeof uri, "stockade+unix:/%0106d", 1);
    assert_true(target_parse(uri, &target, why, sizeof why));
    snprintf(uri, sizeof uri, "sqlite:/%05000d", 1);
    assert_false(target_parse(uri, &target, why, sizeof why));
    snprintf(uri, sizeof uri, "stockade://:%0300d@h:1", 1);
    assert_false(target_parse(uri, &target, why, sizeof why));
}
