/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line for each event, as text for people and for grep, or as a JSON object:
 *   2026-01-31T12:00:00.123Z warn lease service is down: connection refused
 *   {"time":"2026-01-31T12:00:00.123Z","level":"warn","message":"lease service is down: ..."}
 * Thread-safe: lines never mix. Names from outside are escaped by log_quoted.
 *
 * How it fails: nobody waits for the log. A line that cannot be written at once (a full disk, a
 * pipe that nobody reads) is dropped and counted; the next line that can be written says how many
 * were lost. What was written of a line that broke off is ended, so that the next line stands by
 * itself. */
#ifndef STOCKADE_BASE_LOG_H
#define STOCKADE_BASE_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "fence/base/bytes.h"

enum log_level { LOG_DEBUG_LEVEL, LOG_INFO_LEVEL, LOG_WARN_LEVEL, LOG_ERROR_LEVEL };
enum log_format { LOG_TEXT, LOG_JSON };

/* Where the lines go. Made with LOG_FILE(fd); outlives the logs that use it. */
struct log_file {
    int fd; /* the owner opens and closes it */
    pthread_mutex_t lock;
    /* Under the lock. */
    bool broken_off;      /* the last line has no end */
    uint64_t lost_unsaid; /* lines lost since one could be written */
    uint64_t lines_lost;  /* all of them; log_lines_lost reads it */
};

#define LOG_FILE(descriptor)                                                                       \
    ((struct log_file){.fd = (descriptor), .lock = PTHREAD_MUTEX_INITIALIZER})

/* Made by main and handed down by pointer; a NULL logger is silent. */
struct log {
    enum log_level level; /* what is below is dropped */
    struct log_file *file;
    enum log_format format;
};

/* Read a level: debug, info, warn or error. False: none of these. */
bool log_level_parse(const char *text, enum log_level *level);
/* Return whether lines of this level are written. */
bool log_takes(const struct log *log, enum log_level level);
/* Change the level from now on, for every thread. */
void log_set_level(struct log *log, enum log_level level);
/* Change the format from now on, for every thread. */
void log_set_format(struct log *log, enum log_format format);

/* Open a file to append lines to. -1: errno says why. */
int log_file_open(const char *path);
/* Open `path` again, and write there from now on, as its file was moved away. False: errno says
 * why, and lines go where they went before. */
bool log_file_reopen(struct log_file *file, const char *path);
/* Return how many lines could not be written so far. */
uint64_t log_lines_lost(const struct log *log);

/* Write one line, cut to 1 KiB, where the level is written. */
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with fields for programs: `members` is what stands between the braces of a JSON object,
 * such as "token":7,"late_ms":20. They follow time, level and message, whose names they must not
 * have. The text format leaves them out, so the message has to say what people need. */
void log_fields(const struct log *log, enum log_level level, struct bytes members,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Write `text` to `out` in quotes, unprintable bytes as \xNN, cut to fit; return `out`. */
const char *log_quoted(struct bytes text, char *out, size_t size);

/* log_line for each level. */
#define log_debug(log, ...) log_line((log), LOG_DEBUG_LEVEL, __VA_ARGS__)
#define log_info(log, ...)  log_line((log), LOG_INFO_LEVEL, __VA_ARGS__)
#define log_warn(log, ...)  log_line((log), LOG_WARN_LEVEL, __VA_ARGS__)
#define log_error(log, ...) log_line((log), LOG_ERROR_LEVEL, __VA_ARGS__)

#endif
