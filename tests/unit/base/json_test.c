/* SPDX-License-Identifier: Apache-2.0 */
/* How a text is written in JSON. */
#include "fence/base/json.h"
#include "tests/unit/test.h"

static const struct {
    struct bytes text;
    const char *json;
} cases[] = {
    {BYTES_LITERAL(""), "\"\""},
    {BYTES_LITERAL("sku:1"), "\"sku:1\""},
    {BYTES_LITERAL("a\"b\\c"), "\"a\\\"b\\\\c\""},
    {BYTES_LITERAL("\0\n\x1f\x7f"), "\"\\u0000\\u000a\\u001f\\u007f\""},
    /* Characters of two, three and four bytes, and the last one of each length. */
    {BYTES_LITERAL("\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"),
     "\"\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\""},
    {BYTES_LITERAL("\xdf\xbf\xef\xbf\xbf\xf4\x8f\xbf\xbf"),
     "\"\xdf\xbf\xef\xbf\xbf\xf4\x8f\xbf\xbf\""},
    /* What people may not be shown: CSI as one character, right-to-left, a tag. */
    {BYTES_LITERAL("\xc2\x9b\xe2\x80\xae\xe2\x80\xac\xf3\xa0\x81\x81\xc2\xa0"),
     "\"\\u009b\\u202e\\u202c\\udb40\\udc41\xc2\xa0\""},
    /* With one byte that is not UTF-8, all bytes from 0x80 on are shown by number. */
    {BYTES_LITERAL("\xc3\xa4\xff"), "\"\\u00c3\\u00a4\\u00ff\""},
    {BYTES_LITERAL("\xc3"), "\"\\u00c3\""},                                  /* cut off */
    {BYTES_LITERAL("\x80"), "\"\\u0080\""},                                  /* no first byte */
    {BYTES_LITERAL("\xc1\xbf"), "\"\\u00c1\\u00bf\""},                       /* overlong, 2 bytes */
    {BYTES_LITERAL("\xe0\x9f\xbf"), "\"\\u00e0\\u009f\\u00bf\""},            /* overlong, 3 bytes */
    {BYTES_LITERAL("\xf0\x8f\xbf\xbf"), "\"\\u00f0\\u008f\\u00bf\\u00bf\""}, /* overlong, 4 */
    {BYTES_LITERAL("\xed\xa0\x80"), "\"\\u00ed\\u00a0\\u0080\""},            /* a surrogate */
    {BYTES_LITERAL("\xf4\x90\x80\x80"), "\"\\u00f4\\u0090\\u0080\\u0080\""}, /* past U+10FFFF */
};

TEST(a_text_is_escaped_and_stays_utf8_where_it_is)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf json = {0};
        json_string(&json, cases[i].text);
        buf_append(&json, "", 1);
        assert_string_equal(json.data, cases[i].json);
        buf_free(&json);
    }
}
