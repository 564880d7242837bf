/* SPDX-License-Identifier: Apache-2.0 */
/* What a person sees on stdout: one line that is rewritten while work goes on (on a terminal only),
 * plain lines, and tables. */
#ifndef STOCKADE_TOOLS_TERM_H
#define STOCKADE_TOOLS_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"

struct term {
    bool live;    /* stdout is a terminal */
    size_t width; /* columns */
    bool unended; /* a progress line stands there */
};

/* Find out what stdout is. */
void term_open(struct term *term);
/* Rewrite the progress line; do nothing where stdout is no terminal. */
void term_progress(struct term *term, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Print a line that stays, or a few; what steers a terminal is escaped, as by term_shown(). */
void term_line(struct term *term, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Print a line on stderr: what went wrong. Whatever its texts hold, it is one line. */
void term_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Print lines on stdout. A terminal is shown them as term_shown() has it, or of JSON as \uNNNN;
 * programs get the bytes themselves. */
void term_print(struct bytes lines, bool json);
/* Remove the progress line. */
void term_clear(struct term *term);

/* Print rows of `columns` cells. The first row has the heads; the first column is set to the left.
 */
void term_table(struct term *term, const char *const *cells, size_t rows, size_t columns);

enum { TERM_NUMBER_MAX = 32, TERM_BAR_MAX = 64 };
/* Write 541909 as 541,909; return `out`. */
const char *term_number(int64_t number, char out[TERM_NUMBER_MAX]);
/* The same, as text that lasts until the end of the block. */
#define TERM_NUMBER(number) term_number((number), (char[TERM_NUMBER_MAX]){0})
/* Write "812 ms", "3.2 s", "4 min 12 s", "3 h 5 min" or "2 d 3 h"; return `out`. */
const char *term_duration(int64_t ms, char out[TERM_NUMBER_MAX]);
#define TERM_DURATION(ms) term_duration((ms), (char[TERM_NUMBER_MAX]){0})
/* Write a name that anybody may have chosen, escaped as log_quoted does but without quotes, cut to
 * `width` columns, at most TERM_NAME_MAX; return `out`. */
enum { TERM_NAME_MAX = 200 };
const char *term_name(struct bytes name, size_t width, char out[TERM_NAME_MAX + 1]);
#define TERM_NAME(name, width) term_name((name), (width), (char[TERM_NAME_MAX + 1]){0})
/* Return any text as a terminal may show it, of one line: bytes that are no printable UTF-8, and
 * characters that steer a terminal or turn the direction, as \xNN. Free it. */
char *term_shown(struct bytes text);
/* Write [#####.....] with `width` (at most 60) places; return `out`. */
const char *term_bar(int64_t done, int64_t total, int width, char out[TERM_BAR_MAX]);

#endif
