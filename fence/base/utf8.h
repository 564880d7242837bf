/* SPDX-License-Identifier: Apache-2.0 */
/* Text that anybody may have chosen, as people may be shown it: what could move a terminal's cursor
 * or turn a line around is escaped. */
#ifndef STOCKADE_BASE_UTF8_H
#define STOCKADE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

/* Return the length of the UTF-8 character at text[at], or 0 where there is none (RFC 3629). */
size_t utf8_len(struct bytes text, size_t at);
/* Return the number of the character of that length. */
uint32_t utf8_number(struct bytes text, size_t at, size_t len);
/* May this character be shown? No control character (C0, DEL, C1) is, nor one that is invisible and
 * changes how others are laid out (Unicode's Bidi_Control, separators of lines, tags). */
bool utf8_is_shown(uint32_t number);

#endif
