/* SPDX-License-Identifier: Apache-2.0 */
/* Strings for JSON, escaped as RFC 8259 says. */
#include "fence/base/json.h"

/* Return the length of the UTF-8 character at text[at], or 0 where there is none (RFC 3629). */
static size_t character_len(struct bytes text, size_t at)
{
    const unsigned char *c = (const unsigned char *)text.data + at;
    size_t len = c[0] < 0x80 ? 1 : c[0] < 0xc2 ? 0 : c[0] < 0xe0 ? 2 : c[0] < 0xf0 ? 3 : 4;
    unsigned char low = 0x80, high = 0xbf; /* of the second byte */

    if (c[0] > 0xf4 || len == 0 || len > text.len - at)
        return 0;
    if (c[0] == 0xe0)
        low = 0xa0; /* below it are overlong forms, as for 0xf0 */
    else if (c[0] == 0xf0)
        low = 0x90;
    else if (c[0] == 0xed)
        high = 0x9f; /* surrogates */
    else if (c[0] == 0xf4)
        high = 0x8f; /* beyond U+10FFFF */
    for (size_t i = 1; i < len; i++, low = 0x80, high = 0xbf)
        if (c[i] < low || c[i] > high)
            return 0;
    return len;
}

static bool is_utf8(struct bytes text)
{
    size_t len;

    for (size_t at = 0; at < text.len; at += len)
        if ((len = character_len(text, at)) == 0)
            return false;
    return true;
}

/* How many bytes at the beginning stand for themselves whatever follows. */
static size_t plain_len(struct bytes text)
{
    size_t len = 0;

    while (len < text.len) {
        unsigned char c = (unsigned char)text.data[len];
        if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\')
            break;
        len++;
    }
    return len;
}

void json_string(struct buf *json, struct bytes text)
{
    size_t plain = plain_len(text); /* mostly all of it */
    bool utf8 = plain == text.len || is_utf8(text);

    buf_append_text(json, "\"");
    buf_append(json, text.data, plain);
    for (size_t i = plain; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\')
            buf_printf(json, "\\%c", c);
        else if (c < 0x20 || (c >= 0x80 && !utf8))
            buf_printf(json, "\\u%04x", c);
        else
            buf_append(json, text.data + i, 1);
    }
    buf_append_text(json, "\"");
}
