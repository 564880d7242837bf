/* SPDX-License-Identifier: Apache-2.0 */
/* What libc does as the process's locale says, done as in the C locale.
 *
 * A program that embeds us may have called setlocale(LC_ALL, ""). Then libc's strtod reads 2.5 as
 * 2, printf writes a comma, and letters have other capitals. Nothing of ours follows that, so
 * `make tidy CHECKS=locale` refuses those functions outside of plain.c. */
#ifndef STOCKADE_BASE_PLAIN_H
#define STOCKADE_BASE_PLAIN_H

#include <locale.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Classes of ASCII's characters. */

static inline bool plain_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool plain_is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

static inline bool plain_is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}

static inline bool plain_is_alnum(char c)
{
    return plain_is_digit(c) || plain_is_upper(c) || plain_is_lower(c);
}

static inline bool plain_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline bool plain_is_control(char c)
{
    return (unsigned char)c < ' ' || c == '\x7f';
}

static inline char plain_lower(char c)
{
    return plain_is_upper(c) ? (char)(c - 'A' + 'a') : c;
}

static inline char plain_upper(char c)
{
    return (char)(c - (plain_is_lower(c) ? 'a' - 'A' : 0));
}

/* Return whether the first `len` bytes are the same, for any case of ASCII letters. */
static inline bool plain_equal_bytes(const char *a, const char *b, size_t len)
{
    size_t i = 0;

    while (i < len && (a[i] == b[i] || plain_lower(a[i]) == plain_lower(b[i])))
        i++;
    return i == len;
}

/* The same for two texts, for a text and its beginning, and for a text and a part of it. */
static inline bool plain_equal(const char *a, const char *b)
{
    size_t len = strlen(a);
    return len == strlen(b) && plain_equal_bytes(a, b, len);
}

static inline bool plain_begins(const char *text, const char *with)
{
    size_t len = strlen(with);
    return strlen(text) >= len && plain_equal_bytes(text, with, len);
}

static inline bool plain_contains(const char *text, const char *part)
{
    while (*text != '\0' && !plain_begins(text, part))
        text++;
    return *text != '\0';
}

/* As strtod and strtold. */
double plain_to_double(const char *text, char **end);
long double plain_to_long_double(const char *text, char **end);
/* As snprintf: every %f and %g goes through it. */
int plain_print(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Write a number so that it reads back as the same one. Return `out`. */
#define PLAIN_FLOAT_SIZE 32
const char *plain_float(double value, char out[PLAIN_FLOAT_SIZE]);

/* Return the words for an errno, a signal, or what getaddrinfo returned. Static storage. */
const char *plain_errno(int error);
const char *plain_signal(int number);
const char *plain_host_error(int error);

/* Have this thread, which is ours, do as in the C locale for good. Libraries need it: SQLite reads
 * numbers in JSON by strtod. Return the locale it had. */
locale_t plain_thread(void);

#endif
