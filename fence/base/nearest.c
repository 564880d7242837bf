/* SPDX-License-Identifier: Apache-2.0 */
/* The number of slips is the edit distance with transpositions ("optimal string alignment"), of
 * which three rows of the table are needed at a time. */
#include "fence/base/nearest.h"

#include <stdio.h>
#include <string.h>

#include "fence/base/plain.h"

enum { LEN_MAX = 40, BEGINNING_MIN = 3 };

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Whatever their case. */
static bool same(struct bytes a, size_t i, struct bytes b, size_t j)
{
    return plain_lower(a.data[i]) == plain_lower(b.data[j]);
}

/* Both have at most LEN_MAX bytes. */
static size_t slips_between(struct bytes a, struct bytes b)
{
    size_t rows[3][LEN_MAX + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2], *spare;

    for (size_t j = 0; j <= b.len; j++)
        above[j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        row[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t other = !same(a, i - 1, b, j - 1);
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + other);
            if (i > 1 && j > 1 && same(a, i - 1, b, j - 2) && same(a, i - 2, b, j - 1))
                row[j] = least(row[j], row[j], before[j - 2] + 1);
        }
        spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[b.len];
}

struct nearest nearest_to(struct bytes written)
{
    return (struct nearest){.written = written};
}

/* Words that are much longer or shorter are not compared letter by letter: this is asked for what
 * anybody sends. */
void nearest_offer(struct nearest *nearest, const char *word)
{
    struct bytes written = nearest->written, offered = bytes_of(word);
    size_t slips_max = written.len < 6 ? 1 : written.len < 9 ? 2 : 3, slips;

    if (written.len < 2 || written.len > LEN_MAX || offered.len > LEN_MAX ||
        written.len > offered.len + slips_max)
        return;
    if (written.len >= BEGINNING_MIN && offered.len > written.len &&
        plain_equal_bytes(offered.data, written.data, written.len))
        slips = offered.len - written.len;
    else if (offered.len > written.len + slips_max ||
             (slips = slips_between(written, offered)) > slips_max)
        return;
    if (slips == 0 && !bytes_equal(written, offered))
        slips = 1; /* its case */
    if (nearest->word == NULL || slips < nearest->slips) {
        nearest->word = word;
        nearest->slips = slips;
    }
}

const char *nearest_hint(const struct nearest *nearest, char out[NEAREST_HINT_MAX])
{
    out[0] = '\0';
    if (nearest->word != NULL)
        snprintf(out, NEAREST_HINT_MAX, " (did you mean %s?)", nearest->word);
    return out;
}
