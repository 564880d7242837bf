/* SPDX-License-Identifier: Apache-2.0 */
/* Private to proxy/resp: the words of an inline command. */
#ifndef STOCKADE_RESP_INLINE_H
#define STOCKADE_RESP_INLINE_H

#include <stddef.h>

#include "fence/base/bytes.h"

enum inline_word {
    INLINE_WORD,       /* `word` is the next one */
    INLINE_END,        /* there are no more */
    INLINE_UNBALANCED, /* a quote is not closed, or something follows a closing quote directly */
};

/* Takes the next word of `line` from *at on, and moves *at behind it. Words are decoded in place,
 * over bytes that were read already, so `word` stays valid as long as the line. */
enum inline_word inline_next(char *line, size_t len, size_t *at, struct bytes *word);

#endif
