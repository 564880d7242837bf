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

void term_open(struct term *term);
/* Rewrites the progress line; does nothing where stdout is no terminal. */
void term_progress(struct term *term, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A line that stays. */
void term_line(struct term *term, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Removes the progress line. */
void term_clear(struct term *term);

/* Rows of `columns` cells, the first row being the heads; the first column is set to the left. */
void term_table(struct term *term, const char *const *cells, size_t rows, size_t columns);

enum { TERM_NUMBER_MAX = 32, TERM_BAR_MAX = 64 };
/* 541909 as 541,909; returns `out`. */
const char *term_number(int64_t number, char out[TERM_NUMBER_MAX]);
/* [#####.....] of `width` (at most 60) places; returns `out`. */
const char *term_bar(int64_t done, int64_t total, int width, char out[TERM_BAR_MAX]);

#endif
