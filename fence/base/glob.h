/* SPDX-License-Identifier: Apache-2.0 */
/* Redis's glob patterns: * ? [a-z] [^a] and backslash; binary-safe. (fnmatch(3) stops at a zero
 * byte and knows the locale.)
 *
 * A pattern is compiled once. To match then costs a few instructions for each byte of the text and
 * each 64 bytes of the pattern, whatever the pattern is: it may come from anybody, and be held
 * against everything there is. */
#ifndef STOCKADE_BASE_GLOB_H
#define STOCKADE_BASE_GLOB_H

#include <stdbool.h>

#include "fence/base/bytes.h"

#define GLOB_MAX      1024 /* bytes of a pattern; a longer one matches nothing */
#define GLOB_TOO_LONG "a pattern has at most 1024 bytes"

struct glob;

/* Compile; the pattern is not kept. Free it with glob_free. */
struct glob *glob_new(struct bytes pattern);
bool glob_matches(const struct glob *glob, struct bytes text);
/* Return how many bytes one takes at most whose pattern is so long. */
size_t glob_size_max(size_t len);
/* NULL is fine. */
void glob_free(struct glob *glob);

#endif
