/* SPDX-License-Identifier: Apache-2.0 */
/* Glob patterns as Redis reads them. */
#include "fence/base/glob.h"
#include "fence/base/mem.h"
#include "tests/unit/test.h"

static bool matches(struct bytes pattern, struct bytes text)
{
    struct glob *glob = glob_new(pattern);
    bool result = glob_matches(glob, text);

    glob_free(glob);
    return result;
}

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
        if (matches(bytes_of(cases[i].pattern), bytes_of(cases[i].text)) != cases[i].matches)
            fail_msg("\"%s\" and \"%s\"", cases[i].pattern, cases[i].text);
}

TEST(patterns_are_binary)
{
    assert_true(matches(BYTES_LITERAL("a\0*"), BYTES_LITERAL("a\0b")));
    assert_false(matches(BYTES_LITERAL("a\0c"), BYTES_LITERAL("a\0b")));
    assert_true(matches(BYTES_LITERAL("?"), BYTES_LITERAL("\xff")));
    assert_true(matches(BYTES_LITERAL("[\x80-\xff]"), BYTES_LITERAL("\xe4")));
    assert_false(matches(BYTES_LITERAL("[\x80-\xff]"), BYTES_LITERAL("a")));
    assert_true(matches(BYTES_LITERAL("*"), (struct bytes){NULL, 0}));
}

/* The states of a pattern are bits of words. */
TEST(patterns_of_every_length_match)
{
    char pattern[GLOB_MAX + 1], text[GLOB_MAX + 1];

    for (size_t i = 0; i < sizeof text; i++)
        pattern[i] = text[i] = (char)('a' + i % 26);
    for (size_t len = 1; len <= GLOB_MAX; len++) {
        assert_true(matches((struct bytes){pattern, len}, (struct bytes){text, len}));
        assert_false(matches((struct bytes){pattern, len}, (struct bytes){text, len - 1}));
        assert_false(matches((struct bytes){pattern, len}, (struct bytes){text, len + 1}));
        pattern[len - 1] = '*';
        assert_true(matches((struct bytes){pattern, len}, (struct bytes){text, GLOB_MAX}));
        pattern[len - 1] = '?';
        assert_true(matches((struct bytes){pattern, len}, (struct bytes){text, len}));
        pattern[len - 1] = text[len - 1];
    }
    memset(pattern, '*', sizeof pattern);
    assert_true(matches((struct bytes){pattern, GLOB_MAX}, (struct bytes){text, sizeof text}));
    assert_false(matches((struct bytes){pattern, GLOB_MAX + 1}, (struct bytes){text, 1}));
    assert_false(matches((struct bytes){pattern, GLOB_MAX + 1}, (struct bytes){text, 0}));
}

/* A matcher that goes back to every star would not finish this one in the life of the universe. */
TEST(many_stars_cost_no_more_than_others)
{
    enum { LEN = 100 * 1000 };
    char pattern[GLOB_MAX], *text = mem_alloc(LEN);

    for (size_t i = 0; i < GLOB_MAX; i++)
        pattern[i] = i % 2 == 0 ? '*' : 'a';
    pattern[GLOB_MAX - 1] = 'b';
    memset(text, 'a', LEN);
    assert_false(matches((struct bytes){pattern, GLOB_MAX}, (struct bytes){text, LEN}));
    text[LEN - 1] = 'b';
    assert_true(matches((struct bytes){pattern, GLOB_MAX}, (struct bytes){text, LEN}));
    free(text);
}
