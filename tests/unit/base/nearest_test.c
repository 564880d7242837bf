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
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(meant(rows[i].written), rows[i].word);
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
