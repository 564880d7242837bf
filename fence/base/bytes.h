/* SPDX-License-Identifier: Apache-2.0 */
/* Byte strings: `struct bytes` is a borrowed view (names and values are binary-safe, so nothing
 * counts on a terminating zero), `struct buf` owns memory that grows.
 *
 * Numbers are parsed here once for the whole project, strictly: no blanks, no sign '+', no leading
 * zeros, no overflow, the whole text or nothing. */
#ifndef STOCKADE_BASE_BYTES_H
#define STOCKADE_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes {
    const char *data; /* borrowed; may be NULL where len is 0 */
    size_t len;
};

#define BYTES_LITERAL(text) ((struct bytes){(text), sizeof(text) - 1})

/* The two arguments of printf's "%.*s": at most `max` bytes of a view. */
#define BYTES_CUT(view, max) (int)((view).len < (max) ? (view).len : (max)), (view).data

/* Return a view of a text, without its terminating zero. */
struct bytes bytes_of(const char *text);
/* Return whether two strings have the same bytes. */
bool bytes_equal(struct bytes a, struct bytes b);
/* The same in a time that does not tell where they differ: for passwords, `wanted` is the right
 * one. */
bool bytes_equal_steadily(struct bytes wanted, struct bytes given);
/* bytes_equal for any case of ASCII letters. */
bool bytes_equal_nocase(struct bytes a, const char *text);
/* Compare as memcmp does; where one is the beginning of the other, the shorter one is less. */
int bytes_compare(struct bytes a, struct bytes b);
/* Read the whole of `text` as a signed decimal. False: it is not one, or does not fit. */
bool bytes_to_int64(struct bytes text, int64_t *value);
/* Write it as a decimal that bytes_to_int64 reads, somewhere in `text`, and return where. */
enum { INT64_TEXT_MAX = 20 };
struct bytes bytes_of_int64(int64_t value, char text[INT64_TEXT_MAX]);

/* All zero is an empty buffer. Owned by whoever holds the struct; buf_free when done. */
struct buf {
    char *data;
    size_t len, cap;
};

/* Make room for `more` bytes behind the content, and return where they go; then add to len. */
char *buf_reserve(struct buf *buf, size_t more);
/* Append `len` bytes. */
void buf_append(struct buf *buf, const void *data, size_t len);
/* Append what a view shows. */
void buf_append_bytes(struct buf *buf, struct bytes text);
/* Append a text, without its terminating zero. */
void buf_append_text(struct buf *buf, const char *text);
/* Append what printf would print. */
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Remove the first `len` bytes. */
void buf_consume(struct buf *buf, size_t len);
/* Give back the memory that is not used. */
void buf_fit(struct buf *buf);
/* Make it empty, and keep the memory. */
void buf_clear(struct buf *buf);
/* Free the memory; the buffer is all zero again. */
void buf_free(struct buf *buf);
/* Return a view of the content, valid until the buffer changes. */
struct bytes buf_bytes(const struct buf *buf);

/* The value of a hexadecimal digit, or -1. */
int bytes_hex_digit(char c);
/* Write them as hexadecimal digits, two for each byte, without a zero at the end. */
void bytes_to_hex(struct bytes bytes, char *out);

/* As snprintf, for texts that people read: what does not fit is cut, and nobody has to know. */
void text_print(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The text, or its last `max` bytes: where a message has no room for a whole path, its end tells
 * most. */
const char *text_end(const char *text, size_t max);

#endif
