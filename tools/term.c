/* SPDX-License-Identifier: Apache-2.0 */
/* Output for people. A reader that has left (EPIPE) is no failure: the work goes on to its end. */
#include "tools/term.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fence/base/check.h"

enum { WIDTH_MAX = 200, WIDTH_DEFAULT = 80, BAR_WIDTH_MAX = 60 };

void term_open(struct term *term)
{
    struct winsize size;

    *term = (struct term){.live = isatty(STDOUT_FILENO) == 1, .width = WIDTH_DEFAULT};
    if (term->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
        term->width = size.ws_col < WIDTH_MAX ? size.ws_col : WIDTH_MAX;
    }
}

void term_clear(struct term *term)
{
    if (term->unended) {
        (void)fputs("\r\033[K", stdout);
        term->unended = false;
    }
}

void term_progress(struct term *term, const char *format, ...)
{
    char text[WIDTH_MAX];
    va_list args;

    if (!term->live) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(text, term->width, format, args); /* one column less than there are */
    va_end(args);
    term_clear(term);
    (void)fputs(text, stdout);
    (void)fflush(stdout);
    term->unended = true;
}

void term_line(struct term *term, const char *format, ...)
{
    va_list args;

    term_clear(term);
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)putchar('\n');
    (void)fflush(stdout);
}

void term_table(struct term *term, const char *const *cells, size_t rows, size_t columns)
{
    int widths[16] = {0};

    check(columns <= sizeof widths / sizeof *widths);
    for (size_t i = 0; i < rows * columns; i++) {
        int length = (int)strlen(cells[i]);
        if (length > widths[i % columns]) {
            widths[i % columns] = length;
        }
    }
    term_clear(term);
    for (size_t row = 0; row < rows; row++) {
        printf("%-*s", widths[0], cells[row * columns]);
        for (size_t column = 1; column < columns; column++) {
            printf("  %*s", widths[column], cells[row * columns + column]);
        }
        (void)putchar('\n');
    }
    (void)fflush(stdout);
}

const char *term_number(int64_t number, char out[TERM_NUMBER_MAX])
{
    char digits[TERM_NUMBER_MAX];
    int length = snprintf(digits, sizeof digits, "%" PRId64, number);
    int first = number < 0 ? 1 : 0;
    char *end = out;

    for (int i = 0; i < length; i++) {
        if (i > first && (length - i) % 3 == 0) {
            *end++ = ',';
        }
        *end++ = digits[i];
    }
    *end = '\0';
    return out;
}

const char *term_bar(int64_t done, int64_t total, int width, char out[TERM_BAR_MAX])
{
    int64_t full = total > 0 ? done * width / total : width;

    check(width > 0 && width <= BAR_WIDTH_MAX);
    out[0] = '[';
    for (int i = 0; i < width; i++) {
        out[i + 1] = i < full ? '#' : '.';
    }
    out[width + 1] = ']';
    out[width + 2] = '\0';
    return out;
}
