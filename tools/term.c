/* SPDX-License-Identifier: Apache-2.0 */
/* Output for people. A reader that has left (EPIPE) is no failure: the work goes on to its end. */
#include "tools/term.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/log.h"
#include "fence/base/utf8.h"

enum { WIDTH_MAX = 200, WIDTH_DEFAULT = 80, BAR_WIDTH_MAX = 60 };
enum { SECOND_MS = 1000, MINUTE_MS = 60 * SECOND_MS, HOUR_MS = 60 * MINUTE_MS };
enum { DAY_MS = 24 * HOUR_MS, QUOTED_MAX = 4 * 512 + 16 };

void term_open(struct term *term)
{
    struct winsize size;

    *term = (struct term){.live = isatty(STDOUT_FILENO) == 1, .width = WIDTH_DEFAULT};
    if (term->live && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        term->width = size.ws_col < WIDTH_MAX ? size.ws_col : WIDTH_MAX;
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

    if (!term->live)
        return;
    va_start(args, format);
    (void)vsnprintf(text, term->width, format, args); /* one column less than there are */
    va_end(args);
    term_clear(term);
    (void)fputs(text, stdout);
    (void)fflush(stdout);
    term->unended = true;
}

void term_table(struct term *term, const char *const *cells, size_t rows, size_t columns)
{
    int widths[16] = {0};

    check(columns <= sizeof widths / sizeof *widths);
    for (size_t i = 0; i < rows * columns; i++) {
        int length = (int)strlen(cells[i]);
        if (length > widths[i % columns])
            widths[i % columns] = length;
    }
    term_clear(term);
    for (size_t row = 0; row < rows; row++) {
        printf("%-*s", widths[0], cells[row * columns]);
        for (size_t column = 1; column < columns; column++)
            printf("  %*s", widths[column], cells[row * columns + column]);
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
        if (i > first && (length - i) % 3 == 0)
            *end++ = ',';
        *end++ = digits[i];
    }
    *end = '\0';
    return out;
}

const char *term_duration(int64_t ms, char out[TERM_NUMBER_MAX])
{
    if (ms < SECOND_MS)
        (void)snprintf(out, TERM_NUMBER_MAX, "%" PRId64 " ms", ms);
    else if (ms < MINUTE_MS)
        (void)snprintf(out, TERM_NUMBER_MAX, "%" PRId64 ".%" PRId64 " s", ms / 1000,
                       ms % 1000 / 100);
    else if (ms < HOUR_MS)
        (void)snprintf(out, TERM_NUMBER_MAX, "%" PRId64 " min %" PRId64 " s", ms / MINUTE_MS,
                       ms % MINUTE_MS / SECOND_MS);
    else if (ms < DAY_MS)
        (void)snprintf(out, TERM_NUMBER_MAX, "%" PRId64 " h %" PRId64 " min", ms / HOUR_MS,
                       ms % HOUR_MS / MINUTE_MS);
    else
        (void)snprintf(out, TERM_NUMBER_MAX, "%" PRId64 " d %" PRId64 " h", ms / DAY_MS,
                       ms % DAY_MS / HOUR_MS);
    return out;
}

const char *term_name(struct bytes name, size_t width, char out[TERM_NAME_MAX + 1])
{
    char quoted[QUOTED_MAX];
    const char *text = log_quoted(name, quoted, sizeof quoted) + 1;
    size_t length = strlen(text) - 1;

    width = width < TERM_NAME_MAX ? width : TERM_NAME_MAX;
    if (length <= width) {
        memcpy(out, text, length);
        out[length] = '\0';
    } else {
        size_t dots = width < 3 ? width : 3;
        memcpy(out, text, width - dots);
        memcpy(out + width - dots, "...", dots);
        out[width] = '\0';
    }
    return out;
}

enum form {
    FORM_LINE,  /* ends of lines are no exception */
    FORM_LINES, /* these stay */
    FORM_JSON,  /* and what is escaped means the same */
};

static void append_escaped(struct buf *out, const char *data, size_t len, uint32_t code,
                           enum form form)
{
    if (form == FORM_JSON && code >= 0x10000)
        buf_printf(out, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (code >> 10)),
                   (unsigned)(0xdc00 + (code & 0x3ff)));
    else if (form == FORM_JSON)
        buf_printf(out, "\\u%04x", (unsigned)code);
    else
        for (size_t i = 0; i < len; i++) {
            buf_printf(out, "\\x%02x", (unsigned char)data[i]);
        }
}

static struct buf shown(struct bytes text, enum form form)
{
    struct buf out = {0};
    uint32_t code = 0;

    while (text.len > 0) {
        size_t len = utf8_len(text, 0);
        code = len > 0 ? utf8_number(text, 0, len) : (unsigned char)text.data[0];
        if (len > 0 && (utf8_is_shown(code) || (code == '\n' && form != FORM_LINE))) {
            buf_append(&out, text.data, len);
        } else {
            len = len > 0 ? len : 1;
            append_escaped(&out, text.data, len, code, form);
        }
        text.data += len;
        text.len -= len;
    }
    return out;
}

char *term_shown(struct bytes text)
{
    struct buf out = shown(text, FORM_LINE);

    buf_append(&out, "", 1);
    return out.data;
}

static __attribute__((format(printf, 2, 0))) void say(FILE *file, const char *format,
                                                      enum form form, va_list args)
{
    char *text;
    int len = vasprintf(&text, format, args);

    if (len < 0)
        return;
    struct buf line = shown((struct bytes){text, (size_t)len}, form);
    (void)fprintf(file, "%.*s\n", (int)line.len, line.data);
    (void)fflush(file);
    buf_free(&line);
    free(text);
}

void term_line(struct term *term, const char *format, ...)
{
    va_list args;

    term_clear(term);
    va_start(args, format);
    say(stdout, format, FORM_LINES, args);
    va_end(args);
}

void term_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    say(stderr, format, FORM_LINE, args);
    va_end(args);
}

void term_print(struct bytes lines, bool json)
{
    struct buf out = {0};

    if (isatty(STDOUT_FILENO) == 1) {
        out = shown(lines, json ? FORM_JSON : FORM_LINES);
        lines = buf_bytes(&out);
    }
    (void)fwrite(lines.data, 1, lines.len, stdout);
    buf_free(&out);
}

const char *term_bar(int64_t done, int64_t total, int width, char out[TERM_BAR_MAX])
{
    int64_t full = total > 0 ? done * width / total : width;

    check(width > 0 && width <= BAR_WIDTH_MAX);
    out[0] = '[';
    for (int i = 0; i < width; i++)
        out[i + 1] = i < full ? '#' : '.';
    out[width + 1] = ']';
    out[width + 2] = '\0';
    return out;
}
