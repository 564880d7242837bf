/* SPDX-License-Identifier: Apache-2.0 */
/* The reply writer: appends to a buffer and cannot fail. Each function reserves once. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/plain.h"
#include "proxy/resp/resp.h"

enum { HEADER_MAX = 1 + INT64_TEXT_MAX + 2, ERROR_TEXT_MAX = 512 };

static char *put_text(char *at, const char *text, size_t len)
{
    if (len > 0)
        memcpy(at, text, len);
    return at + len;
}

static char *put_end(char *at)
{
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

/* Most numbers of a reply are lengths, and those are short. */
static char *put_int(char *at, int64_t value)
{
    char text[INT64_TEXT_MAX];

    if (value >= 0 && value < 100) {
        if (value >= 10)
            *at++ = (char)('0' + value / 10);
        *at++ = (char)('0' + value % 10);
        return at;
    }
    struct bytes digits = bytes_of_int64(value, text);
    return put_text(at, digits.data, digits.len);
}

static char *put_header(char *at, char type, int64_t number)
{
    *at++ = type;
    return put_end(put_int(at, number));
}

static void end_at(struct buf *out, const char *at)
{
    out->len = (size_t)(at - out->data);
    check(out->len <= out->cap);
}

static void header(struct buf *out, char type, int64_t number)
{
    end_at(out, put_header(buf_reserve(out, HEADER_MAX), type, number));
}

static void line(struct buf *out, char type, const char *text, size_t len)
{
    char *at = buf_reserve(out, len + 3);
    *at++ = type;
    end_at(out, put_end(put_text(at, text, len)));
}

void resp_simple(struct buf *out, const char *text)
{
    line(out, '+', text, strlen(text));
}

void resp_error(struct buf *out, enum stk_error error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    resp_verror(out, error, format, args);
    va_end(args);
}

void resp_verror(struct buf *out, enum stk_error error, const char *format, va_list args)
{
    char text[ERROR_TEXT_MAX];
    int len = snprintf(text, sizeof text, "%s ", stk_error_code(error));

    check(error > STK_OK && error < STK_ERRORS);
    check(len > 0 && (size_t)len < sizeof text);
    if (format == NULL)
        snprintf(text + len, sizeof text - (size_t)len, "%s", stk_error_text(error));
    else
        vsnprintf(text + len, sizeof text - (size_t)len, format, args);
    /* One line, whatever a client put into it. */
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\r' || *c == '\n')
            *c = ' ';
    line(out, '-', text, strlen(text));
}

void resp_int(struct buf *out, int64_t value)
{
    header(out, ':', value);
}

void resp_bulk(struct buf *out, struct bytes value)
{
    char *at = buf_reserve(out, HEADER_MAX + value.len + 2);
    at = put_header(at, '$', (int64_t)value.len);
    end_at(out, put_end(put_text(at, value.data, value.len)));
}

void resp_bulk_text(struct buf *out, const char *text)
{
    resp_bulk(out, bytes_of(text));
}

void resp_bulk_int(struct buf *out, int64_t value)
{
    char text[INT64_TEXT_MAX];
    resp_bulk(out, bytes_of_int64(value, text));
}

void resp_null(struct buf *out, bool resp3)
{
    buf_append_text(out, resp3 ? "_\r\n" : "$-1\r\n");
}

void resp_null_array(struct buf *out, bool resp3)
{
    buf_append_text(out, resp3 ? "_\r\n" : "*-1\r\n");
}

void resp_array(struct buf *out, size_t count)
{
    header(out, '*', (int64_t)count);
}

void resp_map(struct buf *out, size_t pairs, bool resp3)
{
    header(out, resp3 ? '%' : '*', (int64_t)(resp3 ? pairs : pairs * 2));
}

void resp_push(struct buf *out, size_t count, bool resp3)
{
    header(out, resp3 ? '>' : '*', (int64_t)count);
}

void resp_set(struct buf *out, size_t count, bool resp3)
{
    header(out, resp3 ? '~' : '*', (int64_t)count);
}

void resp_double(struct buf *out, double value, bool resp3)
{
    char text[32];

    if (isnan(value))
        snprintf(text, sizeof text, "nan");
    else if (isinf(value))
        snprintf(text, sizeof text, "%s", value < 0 ? "-inf" : "inf");
    else /* the shortest that reads back as the same number */
        for (int digits = 15; digits <= 17; digits++) {
            plain_print(text, sizeof text, "%.*g", digits, value);
            if (plain_to_double(text, NULL) == value)
                break;
        }
    if (resp3)
        line(out, ',', text, strlen(text));
    else
        resp_bulk_text(out, text);
}

void resp_verbatim(struct buf *out, struct bytes text, bool resp3)
{
    if (!resp3) {
        resp_bulk(out, text);
        return;
    }
    char *at = buf_reserve(out, HEADER_MAX + 4 + text.len + 2);
    at = put_text(put_header(at, '=', (int64_t)text.len + 4), "txt:", 4);
    end_at(out, put_end(put_text(at, text.data, text.len)));
}

/* A reply that was written for one version of the protocol goes to a client of another. Every RESP3
 * client reads RESP2 as it is; the other way round, each type that RESP2 lacks becomes what a RESP2
 * client would have been sent. */

/* Return the end of the line that starts at `at`, behind its CRLF. */
static const char *line_end(const char *at, const char *end)
{
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    return lf != NULL ? lf + 1 : end;
}

/* Return the number behind the type of a header line. */
static int64_t number_of(const char *at, const char *next)
{
    int64_t number = 0;
    (void)bytes_to_int64((struct bytes){at + 1, (size_t)(next - at) - 3}, &number);
    return number;
}

/* Copy the element at `at` (of an aggregate, its header), and return where the next one begins. */
static const char *convert(struct buf *out, const char *at, const char *end)
{
    const char *next = line_end(at, end);
    struct bytes text = {at + 1, next - at >= 3 ? (size_t)(next - at) - 3 : 0};
    size_t len;

    switch (*at) {
    case '_': resp_null(out, false); return next;
    case '%': resp_map(out, (size_t)number_of(at, next), false); return next;
    case '~': resp_array(out, (size_t)number_of(at, next)); return next;
    case ',': resp_bulk(out, text); return next;
    case '#': resp_int(out, at[1] == 't'); return next;
    case '=': /* with its "txt:" */
        len = (size_t)number_of(at, next);
        resp_bulk(out, (struct bytes){next + 4, len - 4});
        return next + len + 2;
    case '$':
        len = number_of(at, next) < 0 ? 0 : (size_t)number_of(at, next) + 2;
        buf_append(out, at, (size_t)(next - at) + len);
        return next + len;
    default: buf_append(out, at, (size_t)(next - at)); return next;
    }
}

void resp_append_value(struct buf *out, struct bytes value, bool value_resp3, bool resp3)
{
    const char *at = value.data, *end = value.data + value.len;

    if (!value_resp3 || resp3) {
        buf_append_bytes(out, value);
        return;
    }
    while (at < end)
        at = convert(out, at, end);
}
