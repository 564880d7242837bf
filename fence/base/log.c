/* SPDX-License-Identifier: Apache-2.0 */
/* A line is composed, then written in parts that a pipe takes whole, each only where the descriptor
 * says that it would not block: it may be shared with other processes, so it is not set to
 * non-blocking. */
#include "fence/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fence/base/check.h"
#include "fence/base/json.h"
#include "fence/base/utf8.h"

/* Of a line as text, and of a message as JSON. */
#define LINE_MAX_BYTES 1024
#define TIME_SIZE      32

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

void log_set_format(struct log *log, enum log_format format)
{
    __atomic_store_n(&log->format, format, __ATOMIC_RELAXED);
}

int log_file_open(const char *path)
{
    /* To open a pipe that nobody reads must fail, not wait. */
    return open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0600);
}

bool log_file_reopen(struct log_file *file, const char *path)
{
    int fd = log_file_open(path);

    if (fd < 0)
        return false;
    pthread_mutex_lock(&file->lock);
    check(dup3(fd, file->fd, O_CLOEXEC) == file->fd);
    file->broken_off = false;
    pthread_mutex_unlock(&file->lock);
    close(fd);
    return true;
}

uint64_t log_lines_lost(const struct log *log)
{
    return log == NULL ? 0 : __atomic_load_n(&log->file->lines_lost, __ATOMIC_RELAXED);
}

/* Write without waiting. Return how many bytes went out. */
static size_t write_now(int fd, const char *data, size_t len)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    size_t done = 0;

    while (done < len && poll(&room, 1, 0) == 1 && (room.revents & POLLOUT) != 0) {
        size_t part = len - done < PIPE_BUF ? len - done : PIPE_BUF;
        ssize_t written = write(fd, data + done, part);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    return done;
}

/* The lock is held. False: the line is lost. */
static bool put(struct log_file *file, struct bytes line)
{
    if (file->broken_off) {
        if (write_now(file->fd, "\n", 1) != 1)
            return false;
        file->broken_off = false;
    }
    size_t done = write_now(file->fd, line.data, line.len);
    file->broken_off = done > 0 && done < line.len;
    return done == line.len;
}

static void print_time(char out[TIME_SIZE])
{
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    text_print(out, TIME_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ", utc.tm_year + 1900,
               utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
               now.tv_nsec / 1000000);
}

/* One line that a terminal may show, whatever a server's error has in it; it gets no longer. */
static void blank(struct buf *line)
{
    for (size_t at = 0, len; at < line->len; at += len) {
        len = utf8_len(buf_bytes(line), at);
        bool shown = len > 0 && utf8_is_shown(utf8_number(buf_bytes(line), at, len));
        len = len > 0 ? len : 1;
        if (!shown)
            memset(line->data + at, len == 1 && (unsigned char)line->data[at] < 0x80 ? ' ' : '?',
                   len);
    }
}

static void compose(const struct log *log, enum log_level level, struct bytes members,
                    const char *message, struct buf *line)
{
    char time[TIME_SIZE];
    const char *name = level_names[level];

    print_time(time);
    if (__atomic_load_n(&log->format, __ATOMIC_RELAXED) == LOG_TEXT) {
        int room = LINE_MAX_BYTES - (int)(strlen(time) + 1 + strlen(name) + 1 + 1);
        buf_printf(line, "%s %s %.*s", time, name, room, message);
        blank(line);
        buf_append_text(line, "\n");
        return;
    }
    buf_printf(line, "{\"time\":\"%s\",\"level\":\"%s\",\"message\":", time, name);
    json_string(line, bytes_of(message));
    if (members.len > 0) {
        buf_append_text(line, ",");
        buf_append_bytes(line, members);
    }
    buf_append_text(line, "}\n");
}

/* The lock is held. False: the line is lost. */
static bool say(const struct log *log, enum log_level level, struct bytes members,
                const char *message)
{
    struct buf line = {0};

    compose(log, level, members, message, &line);
    bool said = put(log->file, buf_bytes(&line));
    buf_free(&line);
    return said;
}

/* The lock is held. */
static void say_lost(const struct log *log)
{
    struct log_file *file = log->file;
    char message[96];

    if (file->lost_unsaid == 0)
        return;
    snprintf(message, sizeof message, "lines of this log that could not be written before: %llu",
             (unsigned long long)file->lost_unsaid);
    if (say(log, LOG_WARN_LEVEL, (struct bytes){NULL, 0}, message))
        file->lost_unsaid = 0;
}

static void log_message(const struct log *log, enum log_level level, struct bytes members,
                        const char *format, va_list args)
{
    char message[LINE_MAX_BYTES];
    struct log_file *file = log->file;

    vsnprintf(message, sizeof message, format, args);
    pthread_mutex_lock(&file->lock);
    say_lost(log);
    if (!say(log, level, members, message)) {
        file->lost_unsaid++;
        __atomic_fetch_add(&file->lines_lost, 1, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&file->lock);
}

void log_line(const struct log *log, enum log_level level, const char *format, ...)
{
    va_list args;

    if (!log_takes(log, level))
        return;
    va_start(args, format);
    log_message(log, level, (struct bytes){NULL, 0}, format, args);
    va_end(args);
}

void log_fields(const struct log *log, enum log_level level, struct bytes members,
                const char *format, ...)
{
    va_list args;

    if (!log_takes(log, level))
        return;
    va_start(args, format);
    log_message(log, level, members, format, args);
    va_end(args);
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
