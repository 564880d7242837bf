/* SPDX-License-Identifier: Apache-2.0 */
/* Views of bytes, numbers; then the growing buffer. */
#include "fence/base/bytes.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "fence/base/plain.h"

struct bytes bytes_of(const char *text)
{
    return (struct bytes){text, strlen(text)};
}

bool bytes_equal(struct bytes a, struct bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

bool bytes_equal_steadily(struct bytes wanted, struct bytes given)
{
    unsigned differs = wanted.len != given.len;

    for (size_t i = 0; i < given.len; i++)
        differs |= (unsigned char)given.data[i] ^
                   (unsigned char)(wanted.len > 0 ? wanted.data[i % wanted.len] : 0);
    return differs == 0;
}

bool bytes_equal_nocase(struct bytes a, const char *text)
{
    return a.len == strlen(text) && (a.len == 0 || plain_equal_bytes(a.data, text, a.len));
}

int bytes_compare(struct bytes a, struct bytes b)
{
    size_t common = a.len < b.len ? a.len : b.len;
    int order = common == 0 ? 0 : memcmp(a.data, b.data, common);
    if (order != 0)
        return order;
    return (a.len > b.len) - (a.len < b.len);
}

bool bytes_to_int64(struct bytes text, int64_t *value)
{
    size_t at = 0;
    bool negative = text.len > 0 && text.data[0] == '-';
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX, number = 0;

    at += negative;
    if (at == text.len || text.len - at > 19)
        return false;
    if (text.data[at] == '0' && (negative || text.len > 1))
        return false;
    for (; at < text.len; at++) { /* 19 digits fit */
        unsigned digit = (unsigned)(unsigned char)text.data[at] - '0';
        if (digit > 9)
            return false;
        number = number * 10 + digit;
    }
    if (number > limit)
        return false;
    *value = negative ? (int64_t)(0 - number) : (int64_t)number;
    return true;
}

struct bytes bytes_of_int64(int64_t value, char text[INT64_TEXT_MAX])
{
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    size_t at = INT64_TEXT_MAX;

    do {
        text[--at] = (char)('0' + left % 10);
        left /= 10;
    } while (left != 0);
    if (value < 0)
        text[--at] = '-';
    return (struct bytes){text + at, INT64_TEXT_MAX - at};
}

char *buf_reserve(struct buf *buf, size_t more)
{
    check(more < SIZE_MAX / 4 - buf->len);
    if (buf->cap - buf->len < more) {
        size_t cap = buf->cap < 64 ? 64 : buf->cap * 2;
        if (cap < buf->len + more)
            cap = buf->len + more;
        buf->data = mem_realloc(buf->data, cap);
        buf->cap = cap;
    }
    return buf->data + buf->len;
}

void buf_append(struct buf *buf, const void *data, size_t len)
{
    if (len == 0)
        return;
    memcpy(buf_reserve(buf, len), data, len);
    buf->len += len;
}

void buf_append_bytes(struct buf *buf, struct bytes text)
{
    buf_append(buf, text.data, text.len);
}

void buf_append_text(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, format, args);
    check(len >= 0);
    vsnprintf(buf_reserve(buf, (size_t)len + 1), (size_t)len + 1, format, again);
    buf->len += (size_t)len;
    va_end(again);
    va_end(args);
}

void buf_consume(struct buf *buf, size_t len)
{
    check(len <= buf->len);
    buf->len -= len;
    if (buf->len > 0 && len > 0)
        memmove(buf->data, buf->data + len, buf->len);
}

void buf_fit(struct buf *buf)
{
    if (buf->len == 0) {
        buf_free(buf);
    } else if (buf->cap > buf->len) {
        buf->data = mem_realloc(buf->data, buf->len);
        buf->cap = buf->len;
    }
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
}

void buf_free(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}

struct bytes buf_bytes(const struct buf *buf)
{
    return (struct bytes){buf->data, buf->len};
}

int bytes_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

void bytes_to_hex(struct bytes bytes, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < bytes.len; i++) {
        unsigned char byte = (unsigned char)bytes.data[i];
        *out++ = digits[byte >> 4];
        *out++ = digits[byte & 15];
    }
}

void text_print(char *out, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(out, size, format, args);
    va_end(args);
}

const char *text_end(const char *text, size_t max)
{
    size_t len = strlen(text);

    return len > max ? text + len - max : text;
}
