/* SPDX-License-Identifier: Apache-2.0 */
/* Strings for JSON, escaped as RFC 8259 says. */
#include "fence/base/json.h"

#include "fence/base/utf8.h"

static bool is_utf8(struct bytes text)
{
    size_t len;

    for (size_t at = 0; at < text.len; at += len)
        if ((len = utf8_len(text, at)) == 0)
            return false;
    return true;
}

/* How many bytes at the beginning stand for themselves whatever follows. */
static size_t plain_len(struct bytes text)
{
    size_t len = 0;

    while (len < text.len) {
        unsigned char c = (unsigned char)text.data[len];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            break;
        len++;
    }
    return len;
}

static void append_escape(struct buf *json, uint32_t number)
{
    if (number >= 0x10000) { /* two surrogates */
        number -= 0x10000;
        buf_printf(json, "\\u%04x\\u%04x", (unsigned)(0xd800 + (number >> 10)),
                   (unsigned)(0xdc00 + (number & 0x3ff)));
    } else {
        buf_printf(json, "\\u%04x", (unsigned)number);
    }
}

void json_string(struct buf *json, struct bytes text)
{
    size_t plain = plain_len(text); /* mostly all of it */
    bool utf8 = plain == text.len || is_utf8(text);

    buf_append_text(json, "\"");
    buf_append(json, text.data, plain);
    for (size_t i = plain, len; i < text.len; i += len) {
        len = utf8 ? utf8_len(text, i) : 1;
        uint32_t number = utf8 ? utf8_number(text, i, len) : (unsigned char)text.data[i];
        if (number == '"' || number == '\\')
            buf_printf(json, "\\%c", (char)number);
        else if (!utf8_is_shown(number) || (number >= 0x80 && !utf8))
            append_escape(json, number);
        else
            buf_append(json, text.data + i, len);
    }
    buf_append_text(json, "\"");
}
