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

struct bytes bytes_of(const char *text); /* up to, not with, the terminating zero */
bool bytes_equal(struct bytes a, struct bytes b);
bool bytes_equal_nocase(struct bytes a, const char *text); /* ASCII letters only */
/* As memcmp; where one is the beginning of the other, the shorter is less. */
int bytes_compare(struct bytes a, struct bytes b);
/* The whole of `text` as a signed decimal. False: not a number in that form, or out of int64. */
bool bytes_to_int64(struct bytes text, int64_t *value);
/* Redis's glob: * ? [a-z] [^a] and backslash; binary-safe, at most pattern times text steps. */
bool bytes_match_glob(struct bytes pattern, struct bytes text);

/* All zero is an empty buffer. Owned by whoever holds the struct; buf_free when done. */
struct buf {
    char *data;
    size_t len, cap;
};

/* Room for `more` bytes behind the content; returns where they go (then add to len). */
char *buf_reserve(struct buf *buf, size_t more);
void buf_append(struct buf *buf, const void *data, size_t len);
void buf_append_bytes(struct buf *buf, struct bytes text);
void buf_append_text(struct buf *buf, const char *text);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Removes the first `len` bytes. */
void buf_consume(struct buf *buf, size_t len);
void buf_fit(struct buf *buf);   /* gives back memory that is not used */
void buf_clear(struct buf *buf); /* keeps the memory */
void buf_free(struct buf *buf);  /* back to all zero */
struct bytes buf_bytes(const struct buf *buf);

#endif
