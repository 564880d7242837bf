/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean ...?": of all the words that there are, the one that is spelled most like what was
 * written. Offer each of them, then look at `word`.
 *
 * Near is what one or two slips of the fingers make of a word (the longer, the more), and any word
 * that begins with what was written; the case of letters is one slip where nothing else differs.
 * Nothing is near to what is longer than 40 bytes, so a search costs some microseconds. */
#ifndef STOCKADE_FENCE_BASE_NEAREST_H
#define STOCKADE_FENCE_BASE_NEAREST_H

#include "fence/base/bytes.h"

struct nearest {
    struct bytes written; /* borrowed */
    const char *word;     /* the best of those offered so far; NULL: none is near */
    size_t slips;         /* between the two */
};

#define NEAREST_HINT_MAX 64 /* bytes, its end included */

/* Begin a search for the word that is nearest to `written`. */
struct nearest nearest_to(struct bytes written);
/* Offer a word; it is borrowed. */
void nearest_offer(struct nearest *nearest, const char *word);
/* " (did you mean WORD?)" behind an error; "" where none is near. Returns `out`. */
const char *nearest_hint(const struct nearest *nearest, char out[NEAREST_HINT_MAX]);

#endif
