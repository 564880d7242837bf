/* SPDX-License-Identifier: Apache-2.0 */
/* Shift-and, after Baeza-Yates and Gonnet, "A new approach to text searching" (1992). State i means
 * that the first i elements of the pattern have matched the text so far; all states are bits of one
 * set. A byte of the text takes every state one further whose next element accepts it, and leaves
 * those where they are that a star stands behind. */
#include "fence/base/glob.h"

#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"

enum { BYTES = 256, WORD = 64, WORDS_MAX = GLOB_MAX / WORD + 1 };

/* A row is a set of states. Most bytes are accepted by the same elements: they share a row. */
struct glob {
    size_t words;            /* of a row */
    size_t end;              /* the state in which all has matched */
    uint8_t class_of[BYTES]; /* of each byte: which of the rows `accepted` */
    uint64_t rows[];         /* the states that a star stands behind, then `accepted`: into which
                                states the bytes of each class lead */
};

static void add(uint64_t *row, size_t state)
{
    row[state / WORD] |= UINT64_C(1) << state % WORD;
}

/* Read the set behind the '[' at *at, and move *at behind its ']'. */
static void read_set(struct bytes pattern, size_t *at, bool accepts[BYTES])
{
    size_t i = *at;
    bool negated = i < pattern.len && pattern.data[i] == '^';

    i += negated;
    memset(accepts, negated, BYTES);
    while (i < pattern.len && pattern.data[i] != ']') {
        bool escaped = pattern.data[i] == '\\' && i + 1 < pattern.len;
        i += escaped;
        unsigned char low = (unsigned char)pattern.data[i], high = low;
        if (!escaped && i + 2 < pattern.len && pattern.data[i + 1] == '-') {
            high = (unsigned char)pattern.data[i + 2];
            i += 2;
        }
        if (low > high) {
            unsigned char swap = low;
            low = high;
            high = swap;
        }
        memset(accepts + low, !negated, (size_t)(high - low) + 1);
        i++;
    }
    *at = i < pattern.len ? i + 1 : i;
}

/* Read the element at *at, which is no star, and move *at behind it. */
static void read_element(struct bytes pattern, size_t *at, bool accepts[BYTES])
{
    memset(accepts, 0, BYTES);
    switch (pattern.data[(*at)++]) {
    case '?': memset(accepts, 1, BYTES); return;
    case '[': read_set(pattern, at, accepts); return;
    case '\\':
        if (*at < pattern.len)
            (*at)++;
        break;
    default: break;
    }
    accepts[(unsigned char)pattern.data[*at - 1]] = true;
}

/* Fill the rows in, `accepted` with one for each byte, and return the last state. */
static size_t compile(struct bytes pattern, size_t words, uint64_t *stars, uint64_t *accepted)
{
    size_t state = 0;
    bool accepts[BYTES];

    for (size_t at = 0; at < pattern.len;) {
        if (pattern.data[at] == '*') {
            add(stars, state);
            at++;
            continue;
        }
        read_element(pattern, &at, accepts);
        state++;
        for (size_t byte = 0; byte < BYTES; byte++)
            if (accepts[byte])
                add(accepted + byte * words, state);
    }
    return state;
}

struct glob *glob_new(struct bytes pattern)
{
    bool fits = pattern.len <= GLOB_MAX;
    size_t words = fits ? pattern.len / WORD + 1 : 1, classes = 0;
    size_t row_size = words * sizeof(uint64_t);
    struct glob *glob = mem_zalloc(sizeof *glob + (1 + BYTES) * row_size);
    uint64_t *accepted = glob->rows + words, *row = accepted;

    glob->words = words;
    glob->end = fits ? compile(pattern, words, glob->rows, row) : 1; /* which nothing leads to */
    for (size_t byte = 0; byte < BYTES; byte++, row += words) {
        size_t same = 0;
        while (same < classes && memcmp(accepted + same * words, row, row_size) != 0)
            same++;
        if (same == classes)
            memmove(accepted + words * classes++, row, row_size);
        glob->class_of[byte] = (uint8_t)same;
    }
    size_t size = sizeof *glob + (1 + classes) * row_size;
    check(size <= glob_size_max(pattern.len));
    return mem_realloc(glob, size);
}

/* Compiled twice: most patterns have one word. */
static inline bool matches(const struct glob *glob, struct bytes text, size_t words)
{
    const uint64_t *stars = glob->rows, *accepted = glob->rows + words;
    const size_t last = words == 1 ? 0 : glob->end / WORD;
    const uint64_t end = UINT64_C(1) << glob->end % WORD;
    uint64_t now[WORDS_MAX] = {1};

    for (size_t i = 0; i < text.len; i++) {
        const uint64_t *row = accepted + glob->class_of[(unsigned char)text.data[i]] * words;
        uint64_t carry = 0, any = 0;
        for (size_t word = 0; word < words; word++) {
            uint64_t was = now[word];
            now[word] = ((was << 1 | carry) & row[word]) | (was & stars[word]);
            carry = was >> (WORD - 1);
            any |= now[word];
        }
        if (any == 0)
            return false;
        if ((now[last] & stars[last] & end) != 0) /* the rest is the last star's */
            return true;
    }
    return (now[last] & end) != 0;
}

bool glob_matches(const struct glob *glob, struct bytes text)
{
    return glob->words == 1 ? matches(glob, text, 1) : matches(glob, text, glob->words);
}

/* Of all bytes in order, each byte or range in the pattern begins a class at most twice: at its
 * first byte, and behind its last. */
size_t glob_size_max(size_t len)
{
    size_t classes = 2 * len + 1 < BYTES ? 2 * len + 1 : BYTES;
    return sizeof(struct glob) + (1 + classes) * (len / WORD + 1) * sizeof(uint64_t);
}

void glob_free(struct glob *glob)
{
    free(glob);
}
