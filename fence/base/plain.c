/* SPDX-License-Identifier: Apache-2.0 */
/* See plain.h. A thread's locale is changed for the time of a call, and then what it was. */
#include "fence/base/plain.h"

#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "fence/base/check.h"

locale_t plain_thread(void)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a constant of libc's: not freed */

    check(c != (locale_t)0);
    return uselocale(c);
}

double plain_to_double(const char *text, char **end)
{
    locale_t before = plain_thread();
    double value = strtod(text, end);

    uselocale(before);
    return value;
}

long double plain_to_long_double(const char *text, char **end)
{
    locale_t before = plain_thread();
    long double value = strtold(text, end);

    uselocale(before);
    return value;
}

int plain_print(char *out, size_t size, const char *format, ...)
{
    locale_t before = plain_thread();
    va_list args;

    va_start(args, format);
    int len = vsnprintf(out, size, format, args);
    va_end(args);
    uselocale(before);
    return len;
}

const char *plain_float(double value, char out[PLAIN_FLOAT_SIZE])
{
    plain_print(out, PLAIN_FLOAT_SIZE, "%.17g", value);
    return out;
}

const char *plain_errno(int error)
{
    const char *words = strerrordesc_np(error);
    return words != NULL ? words : "unknown error";
}

const char *plain_signal(int number)
{
    const char *words = sigdescr_np(number);
    return words != NULL ? words : "unknown signal";
}

const char *plain_host_error(int error)
{
    locale_t before = plain_thread();
    const char *words = gai_strerror(error);

    uselocale(before);
    return words;
}
