/* SPDX-License-Identifier: Apache-2.0 */
/* The number of slips is the edit distance with transpositions ("optimal string alignment"), of
 * which three rows of the table are needed at a time. */
#include "fence/base/nearest.h"

#include <string.h>

enum { LEN_MAX = 40, BEGINNING_MIN = 3 };

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
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
            size_t other = a.data[i - 1] != b.data[j - 1];
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + other);
            if (i > 1 && j > 1 && a.data[i - 1] == b.data[j - 2] && a.data[i - 2] == b.data[j - 1])
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

void nearest_offer(struct nearest *nearest, const char *word)
{
    struct bytes written = nearest->written, offered = bytes_of(word);

    if (written.len < 2 || written.len > LEN_MAX || offered.len > LEN_MAX)
        return;
    size_t slips = slips_between(written, offered);
    size_t slips_max = written.len < 4 ? 1 : written.len < 9 ? 2 : 3;
    bool begins = written.len >= BEGINNING_MIN && offered.len > written.len &&
                  memcmp(offered.data, written.data, written.len) == 0;
    if (!begins && slips > slips_max)
        return;
    if (nearest->word == NULL || slips < nearest->slips) {
        nearest->word = word;
        nearest->slips = slips;
    }
}
