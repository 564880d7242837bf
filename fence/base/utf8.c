/* SPDX-License-Identifier: Apache-2.0 */
#include "fence/base/utf8.h"

size_t utf8_len(struct bytes text, size_t at)
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

uint32_t utf8_number(struct bytes text, size_t at, size_t len)
{
    static const unsigned char firsts[] = {0, 0x7f, 0x1f, 0x0f, 0x07}; /* bits of the first byte */
    uint32_t number = (unsigned char)text.data[at] & firsts[len];

    for (size_t i = 1; i < len; i++)
        number = number << 6 | ((unsigned char)text.data[at + i] & 0x3f);
    return number;
}

bool utf8_is_shown(uint32_t number)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},       {0x61c, 0x61c},
        {0x180e, 0x180e}, {0x200b, 0x200f}, {0x2028, 0x202e},   {0x2060, 0x206f},
        {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe0fff},
    };

    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (number >= hidden[i].first && number <= hidden[i].last)
            return false;
    return true;
}
