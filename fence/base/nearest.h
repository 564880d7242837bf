/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean ...?": of all the words that there are, the one that is spelled most like what was
 * written. Offer each of them, then look at `word`.
 *
 * Near is what one or two slips of the fingers make of a word (the longer, the more), and any word
 * that begins with what was written. */
#ifndef STOCKADE_FENCE_BASE_NEAREST_H
#define STOCKADE_FENCE_BASE_NEAREST_H

#include "fence/base/bytes.h"

struct nearest {
    struct bytes written; /* borrowed */
    const char *word;     /* the best of those offered so far; NULL: none is near */
    size_t slips;         /* between the two */
};

/* Begin a search for the word that is nearest to `written`. */
struct nearest nearest_to(struct bytes written);
/* Offer a word; it is borrowed. */
void nearest_offer(struct nearest *nearest, const char *word);

#endif
