/* SPDX-License-Identifier: Apache-2.0 */
/* Which parameters of a store's URI are ours, and what libpq gets to see. */
#include "store/postgresql/uri.h"

#include "fence/base/mem.h"
#include "tests/unit/test.h"

TESTS_HAVE_ONE_THREAD

static void assert_read(const char *uri, int timeout_ms, const char *of_libpq)
{
    char why[160] = "";
    char *rest = pg_uri_of_libpq(uri);

    assert_true(pg_uri_is_valid(uri, why, sizeof why));
    assert_string_equal(why, "");
    assert_int_equal(pg_uri_timeout_ms(uri), timeout_ms);
    assert_string_equal(rest, of_libpq);
    mem_free_secret(rest);
}

TEST(our_parameters_are_taken_out_wherever_they_stand_and_all_else_stays)
{
    assert_read("postgresql://h/d", PG_TIMEOUT_MS, "postgresql://h/d");
    assert_read("postgresql://", PG_TIMEOUT_MS, "postgresql://");
    assert_read("postgres://h/d?timeout_ms=7000", 7000, "postgres://h/d");
    assert_read("postgresql://h/d?timeout_ms=7000&sslmode=off", 7000,
                "postgresql://h/d?sslmode=off");
    assert_read("postgresql://h/d?sslmode=off&timeout_ms=7000", 7000,
                "postgresql://h/d?sslmode=off");
    assert_read("postgresql:///d?a=1&timeout_ms=7000&b=2", 7000, "postgresql:///d?a=1&b=2");
    assert_read("postgresql:///d?my_timeout_ms=1&timeout_msx=2", PG_TIMEOUT_MS,
                "postgresql:///d?my_timeout_ms=1&timeout_msx=2");
    assert_read("postgresql:///d?a=timeout_ms=1", PG_TIMEOUT_MS, "postgresql:///d?a=timeout_ms=1");
}

TEST(a_password_is_no_parameter)
{
    assert_read("postgresql://u:p?timeout_ms=1@h/d", PG_TIMEOUT_MS,
                "postgresql://u:p?timeout_ms=1@h/d");
    assert_read("postgresql://u:p?timeout_ms=1@h/d?timeout_ms=100", 100,
                "postgresql://u:p?timeout_ms=1@h/d");
    assert_read("postgresql://h/d@e?timeout_ms=100", 100, "postgresql://h/d@e");
}

static void assert_refused(const char *query, const char *said)
{
    char uri[160], why[160] = "";

    snprintf(uri, sizeof uri, "postgresql://h/d?%s", query);
    assert_false(pg_uri_is_valid(uri, why, sizeof why));
    assert_string_equal(why, said);
}

TEST(a_timeout_has_bounds_and_is_told_them)
{
    static const char bounds[] = "the timeout_ms is a number from 100 to 600000";

    assert_refused("timeout_ms=99", bounds);
    assert_read("postgresql://h/d?timeout_ms=100", 100, "postgresql://h/d");
    assert_read("postgresql://h/d?timeout_ms=101", 101, "postgresql://h/d");
    assert_read("postgresql://h/d?timeout_ms=599999", 599999, "postgresql://h/d");
    assert_read("postgresql://h/d?timeout_ms=600000", 600000, "postgresql://h/d");
    assert_refused("timeout_ms=600001", bounds);
    assert_refused("timeout_ms=", bounds);
    assert_refused("timeout_ms=5s", bounds);
    assert_refused("sslmode=off&timeout_ms=-1", bounds);
    assert_refused("timeout_ms", "expected timeout_ms=VALUE");
    assert_refused("timeout_ms=200&timeout_ms=300", "this option is there twice");
}
