/* SPDX-License-Identifier: Apache-2.0 */
/* Glob patterns as Redis reads them. */
#include "fence/base/bytes.h"
#include "fence/base/mem.h"
#include "tests/unit/test.h"

TEST(patterns_and_what_they_match)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"a", "", false},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"abc", "ab", false},
        {"ABC", "abc", false},
        {"*", "", true},
        {"*", "anything", true},
        {"**", "a", true},
        {"sku:*", "sku:", true},
        {"sku:*", "sku:1042", true},
        {"sku:*", "sk", false},
        {"*:1042", "sku:1042", true},
        {"*:1042", "sku:1042:", false},
        {"a*b*c", "aXbYc", true},
        {"a*b*c", "abbbc", true},
        {"a*b*c", "aXcYb", false},
        {"*aab", "aaaab", true},
        {"*a*a*b", "aaaa", false},
        {"?", "", false},
        {"?", "x", true},
        {"h?llo", "hello", true},
        {"h?llo", "heello", false},
        {"h[ae]llo", "hallo", true},
        {"h[ae]llo", "hillo", false},
        {"h[a-c]llo", "hbllo", true},
        {"h[c-a]llo", "hbllo", true},
        {"h[a-c]llo", "hdllo", false},
        {"h[^e]llo", "hallo", true},
        {"h[^e]llo", "hello", false},
        {"[^a-c]", "d", true},
        {"[^a-c]", "b", false},
        {"[a\\]b]", "]", true},
        {"[\\^a]", "^", true},
        {"[\\a-z]", "b", false}, /* an escaped byte begins no range */
        {"[\\a-z]", "-", true},
        {"[a-]", "a", true},
        {"[a-]", "-", false}, /* from ']' to 'a', in Redis too */
        {"[a-]", "_", true},
        {"[a-]", "b", false},
        {"[abc", "b", true},
        {"[", "[", false},
        {"[]x", "x", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"\\?x", "?x", true},
        {"a\\", "a\\", true},
        {"*\\**", "a*b", true},
        {"*\\**", "ab", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (bytes_match_glob(bytes_of(cases[i].pattern), bytes_of(cases[i].text)) !=
            cases[i].matches)
            fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].text);
}

TEST(patterns_are_binary)
{
    assert_true(bytes_match_glob(BYTES_LITERAL("a\0*"), BYTES_LITERAL("a\0b")));
    assert_false(bytes_match_glob(BYTES_LITERAL("a\0c"), BYTES_LITERAL("a\0b")));
    assert_true(bytes_match_glob(BYTES_LITERAL("?"), BYTES_LITERAL("\xff")));
    assert_true(bytes_match_glob(BYTES_LITERAL("[\x80-\xff]"), BYTES_LITERAL("\xe4")));
    assert_false(bytes_match_glob(BYTES_LITERAL("[\x80-\xff]"), BYTES_LITERAL("a")));
    assert_true(bytes_match_glob(BYTES_LITERAL("*"), (struct bytes){NULL, 0}));
}

/* A matcher that goes back to every star would not finish this one in the life of the universe. */
TEST(many_stars_cost_no_more_than_pattern_times_text)
{
    enum { LEN = 4000 };
    char *pattern = mem_alloc(LEN), *text = mem_alloc(LEN);

    for (size_t i = 0; i < LEN; i++)
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    memset(text, 'a', LEN);
    pattern[LEN - 1] = 'b';
    assert_false(bytes_match_glob((struct bytes){pattern, LEN}, (struct bytes){text, LEN}));
    text[LEN - 1] = 'b';
    assert_true(bytes_match_glob((struct bytes){pattern, LEN}, (struct bytes){text, LEN}));
    free(pattern);
    free(text);
}
