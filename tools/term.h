/* SPDX-License-Identifier: Apache-2.0 */
/* What a person sees on stdout: one line that is rewritten while work goes on (on a terminal only),
 * plain lines, and tables. */
#ifndef STOCKADE_TOOLS_TERM_H
#define STOCKADE_TOOLS_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
/* Print a line that stays. */
void term_line(struct term *term, const char *format, ...) __attribute__((format(printf, 2, 3)));
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
/* Write [#####.....] with `width` (at most 60) places; return `out`. */
const char *term_bar(int64_t done, int64_t total, int width, char out[TERM_BAR_MAX]);

#endif
