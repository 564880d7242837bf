/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers and bars on a terminal. */
#include "tests/unit/test.h"
#include "tools/term.h"

TEST(numbers_are_grouped_by_thousands)
{
    static const struct {
        int64_t number;
        const char *text;
    } cases[] = {{0, "0"},
                 {999, "999"},
                 {1000, "1,000"},
                 {541909, "541,909"},
                 {-1, "-1"},
                 {-123, "-123"},
                 {-123456, "-123,456"},
                 {INT64_MIN, "-9,223,372,036,854,775,808"}};
    char out[TERM_NUMBER_MAX];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(term_number(cases[i].number, out), cases[i].text);
}

TEST(a_duration_has_its_two_largest_units)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {{0, "0 ms"},
                 {999, "999 ms"},
                 {1000, "1.0 s"},
                 {1999, "1.9 s"},
                 {59999, "59.9 s"},
                 {60000, "1 min 0 s"},
                 {3599999, "59 min 59 s"},
                 {3600000, "1 h 0 min"},
                 {86399999, "23 h 59 min"},
                 {86400000, "1 d 0 h"},
                 {INT64_C(864000000000), "10000 d 0 h"}};
    char out[TERM_NUMBER_MAX];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(term_duration(cases[i].ms, out), cases[i].text);
}

TEST(a_name_is_cut_to_its_width_and_shows_that)
{
    static const struct {
        const char *name;
        size_t width;
        const char *text;
    } cases[] = {{"abcdef", 7, "abcdef"}, {"abcdef", 6, "abcdef"}, {"abcdef", 5, "ab..."},
                 {"abcdef", 4, "a..."},   {"abcdef", 3, "..."},    {"abcdef", 2, ".."},
                 {"abcdef", 1, "."},      {"abcdef", 0, ""},       {"", 0, ""},
                 {"a\nb", 6, "a\\x0ab"},  {"a\nb", 5, "a\\..."}};
    char out[TERM_NAME_MAX + 1], name[TERM_NAME_MAX + 2];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(term_name(bytes_of(cases[i].name), cases[i].width, out), cases[i].text);
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)term_name(bytes_of(name), SIZE_MAX, out);
    assert_int_equal(strlen(out), TERM_NAME_MAX);
    assert_string_equal(out + TERM_NAME_MAX - 4, "x...");
    name[TERM_NAME_MAX] = '\0';
    assert_string_equal(term_name(bytes_of(name), SIZE_MAX, out), name);
}

TEST(what_a_terminal_might_obey_is_escaped_and_the_rest_stays)
{
    const struct {
        const char *text, *shown;
    } cases[] = {
        {"", ""},
        {"a\nb\x1b[2J\x7f", "a\\x0ab\\x1b[2J\\x7f"},
        {"\xc3\xa4\xe2\x82\xac", "\xc3\xa4\xe2\x82\xac"},                        /* letters */
        {(const char[]){'\xe2', '\x80', '\xae', 'b', '\0'}, "\\xe2\\x80\\xaeb"}, /* right to left */
        {"\xff\xc3\xa4\xe2\x82", "\\xff\xc3\xa4\\xe2\\x82"}, /* no letters, half of one */
        {"\xe2\x82z", "\\xe2\\x82z"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *shown = term_shown(bytes_of(cases[i].text));
        assert_string_equal(shown, cases[i].shown);
        free(shown);
    }
}

TEST(a_bar_is_as_full_as_the_work_is_done)
{
    char out[TERM_BAR_MAX];

    assert_string_equal(term_bar(0, 10, 5, out), "[.....]");
    assert_string_equal(term_bar(9, 10, 5, out), "[####.]");
    assert_string_equal(term_bar(10, 10, 5, out), "[#####]");
    assert_string_equal(term_bar(0, 0, 5, out), "[#####]");
}
