/* SPDX-License-Identifier: Apache-2.0 */
/* Lines on a file descriptor. A line that cannot be written is dropped silently: the service
 * matters more than its log. */
#include "fence/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};

bool log_level_parse(const char *text, enum log_level *level)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++)
        if (strcmp(text, level_names[i]) == 0) {
            *level = (enum log_level)i;
            return true;
        }
    return false;
}

bool log_takes(const struct log *log, enum log_level level)
{
    return log != NULL && level >= __atomic_load_n(&log->level, __ATOMIC_RELAXED);
}

void log_set_level(struct log *log, enum log_level level)
{
    __atomic_store_n(&log->level, level, __ATOMIC_RELAXED);
}

void log_line(const struct log *log, enum log_level level, const char *format, ...)
{
    char line[1024];
    struct timespec now;
    struct tm utc;
    va_list args;

    if (!log_takes(log, level))
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t len = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &utc);
    len += (size_t)snprintf(line + len, sizeof line - len, ".%03ldZ %s ", now.tv_nsec / 1000000,
                            level_names[level]);
    va_start(args, format);
    int more = vsnprintf(line + len, sizeof line - len - 1, format, args);
    va_end(args);
    if (more > 0)
        len += (size_t)more < sizeof line - len - 1 ? (size_t)more : sizeof line - len - 2;
    line[len++] = '\n';
    ssize_t ignored = write(log->fd, line, len);
    (void)ignored;
}

const char *log_quoted(struct bytes text, char *out, size_t size)
{
    size_t at = 0;

    if (size < 8) {
        if (size > 0)
            out[0] = '\0';
        return out;
    }
    out[at++] = '"';
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (at + 9 > size) { /* the longest escape, "...", the quote and the end */
            memcpy(out + at, "...", 3);
            at += 3;
            break;
        }
        if (c >= ' ' && c < 127 && c != '"' && c != '\\')
            out[at++] = (char)c;
        else
            at += (size_t)snprintf(out + at, size - at, "\\x%02x", c);
    }
    out[at++] = '"';
    out[at] = '\0';
    return out;
}
