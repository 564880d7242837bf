/* SPDX-License-Identifier: Apache-2.0 */
/* One sentence, cut to fit. */
#include "tools/failure.h"

#include <stdarg.h>
#include <stdio.h>

bool failure_set(struct failure *failure, const char *format, ...)
{
    char text[sizeof failure->text]; /* the arguments may point into the old sentence */
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(failure->text, sizeof failure->text, "%s", text);
    return false;
}
