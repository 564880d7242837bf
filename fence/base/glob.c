/* SPDX-License-Identifier: Apache-2.0 */
/* Redis's glob patterns over binary text (fnmatch(3) stops at a zero byte and knows the locale).
 *
 * One star at a time is remembered: on a mismatch the last star takes one more byte. That is right
 * for globs, because an earlier star never needs to give back what a later one matched, and it
 * bounds the work to pattern times text, whatever the pattern. */
#include "fence/base/bytes.h"

/* Does `c` belong to the set that begins behind the '[' at *at? Moves *at behind the ']'. */
static bool in_set(struct bytes pattern, size_t *at, unsigned char c)
{
    size_t i = *at;
    bool found = false, negated = i < pattern.len && pattern.data[i] == '^';

    i += negated;
    while (i < pattern.len && pattern.data[i] != ']') {
        if (pattern.data[i] == '\\' && i + 1 < pattern.len)
            i++;
        unsigned char low = (unsigned char)pattern.data[i], high = low;
        if (i + 2 < pattern.len && pattern.data[i + 1] == '-') {
            high = (unsigned char)pattern.data[i + 2];
            i += 2;
        }
        if (low > high) {
            unsigned char swap = low;
            low = high;
            high = swap;
        }
        found |= c >= low && c <= high;
        i++;
    }
    *at = i < pattern.len ? i + 1 : i;
    return found != negated;
}

/* Does the pattern element at *p match `c`? Moves *p behind the element. Not called on a star. */
static bool match_one(struct bytes pattern, size_t *p, unsigned char c)
{
    switch (pattern.data[*p]) {
    case '?': (*p)++; return true;
    case '[': (*p)++; return in_set(pattern, p, c);
    case '\\':
        if (*p + 1 < pattern.len)
            (*p)++;
        /* fall through */
    default: return (unsigned char)pattern.data[(*p)++] == c;
    }
}

bool bytes_match_glob(struct bytes pattern, struct bytes text)
{
    size_t p = 0, t = 0, star_p = SIZE_MAX, star_t = 0;

    while (t < text.len) {
        if (p < pattern.len && pattern.data[p] == '*') {
            star_p = ++p;
            star_t = t;
        } else if (p < pattern.len && match_one(pattern, &p, (unsigned char)text.data[t])) {
            t++;
        } else if (star_p != SIZE_MAX) {
            p = star_p;
            t = ++star_t;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.data[p] == '*')
        p++;
    return p == pattern.len;
}
