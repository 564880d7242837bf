/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of bounded length, for people. */
#ifndef STOCKADE_FENCE_BASE_TEXT_H
#define STOCKADE_FENCE_BASE_TEXT_H

#include <stddef.h>

/* As snprintf; what does not fit is cut, and nobody has to know. */
void text_print(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
