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

TEST(a_bar_is_as_full_as_the_work_is_done)
{
    char out[TERM_BAR_MAX];

    assert_string_equal(term_bar(0, 10, 5, out), "[.....]");
    assert_string_equal(term_bar(9, 10, 5, out), "[####.]");
    assert_string_equal(term_bar(10, 10, 5, out), "[#####]");
    assert_string_equal(term_bar(0, 0, 5, out), "[#####]");
}
