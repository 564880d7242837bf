/* SPDX-License-Identifier: Apache-2.0 */
/* What somebody may have meant. */
#include "fence/base/nearest.h"
#include "tests/unit/test.h"

static const char *meant(const char *written)
{
    static const char *const words[] = {"listen", "lease",      "log-level",   "store",
                                        "config", "cache-size", "max-waiters", "db"};
    struct nearest nearest = nearest_to(bytes_of(written));

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        nearest_offer(&nearest, words[i]);
    return nearest.word != NULL ? nearest.word : "";
}

TEST(a_slip_of_the_fingers_is_seen_through)
{
    static const struct {
        const char *written, *word;
    } rows[] = {
        {"lisen", "listen"},
        {"litsen", "listen"},
        {"listenn", "listen"},
        {"Listen", "listen"},
        {"listen", "listen"},
        {"least", "lease"},
        {"loglevel", "log-level"},
        {"log_level", "log-level"},
        {"stroe", "store"},
        {"cache", "cache-size"},
        {"max-witers", "max-waiters"},
        {"dbs", "db"},
        {"confg", "config"},
        {"bd", "db"},
        {"LISTEN", "listen"},
        {"Liten", "listen"},
        {"CACHE", "cache-size"},
        {"sotre", "store"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(meant(rows[i].written), rows[i].word);
}

static size_t slips_to(const char *written, const char *word)
{
    struct nearest nearest = nearest_to(bytes_of(written));

    nearest_offer(&nearest, word);
    return nearest.word != NULL ? nearest.slips : 99;
}

/* Of five letters one may be wrong, of eight two, of more three. */
TEST(slips_are_counted_and_have_a_bound)
{
    char hint[NEAREST_HINT_MAX];
    struct nearest nearest = nearest_to(BYTES_LITERAL("gte"));

    assert_int_equal(slips_to("get", "get"), 0);
    assert_int_equal(slips_to("get", "GET"), 1);
    assert_int_equal(slips_to("gte", "GET"), 1);
    assert_int_equal(slips_to("nope", "type"), 99);
    assert_int_equal(slips_to("abcde", "abcdX"), 1);
    assert_int_equal(slips_to("abcdef", "abXdeX"), 2);
    assert_int_equal(slips_to("abcdef", "aXXdeX"), 99);
    assert_int_equal(slips_to("abcdefghi", "aXcXefXhi"), 3);
    assert_int_equal(slips_to("abc", "abcdefghi"), 6); /* its beginning */
    assert_int_equal(slips_to("ab", "abcdefghi"), 99);
    assert_int_equal(slips_to("0123456789012345678901234567890123456789",
                              "012345678901234567890123456789012345678X"),
                     1);
    assert_int_equal(slips_to("01234567890123456789012345678901234567890",
                              "0123456789012345678901234567890123456789X"),
                     99);
    assert_string_equal(nearest_hint(&nearest, hint), "");
    nearest_offer(&nearest, "GET");
    assert_string_equal(nearest_hint(&nearest, hint), " (did you mean GET?)");
}

TEST(what_is_like_none_of_them_is_left_at_that)
{
    static const char *const rows[] = {
        "",       "x",        "s",
        "nosuch", "build",    "port",
        "l",      "password", "a-word-that-is-longer-than-any-name-that-there-is-here"};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(meant(rows[i]), "");
}
