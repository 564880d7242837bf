/* SPDX-License-Identifier: Apache-2.0 */
/* See text.h. */
#include "fence/base/text.h"

#include <stdarg.h>
#include <stdio.h>

void text_print(char *out, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(out, size, format, args);
    va_end(args);
}
