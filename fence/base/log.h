/* SPDX-License-Identifier: Apache-2.0 */
/* The log: one line for each event, on stderr, for people and for grep:
 *   2026-01-31T12:00:00.123Z warn lease service is down: connection refused
 * Thread-safe (a line is one write). Names from outside are escaped by log_quoted. */
#ifndef STOCKADE_BASE_LOG_H
#define STOCKADE_BASE_LOG_H

#include <stdbool.h>

#include "fence/base/bytes.h"

enum log_level { LOG_DEBUG_LEVEL, LOG_INFO_LEVEL, LOG_WARN_LEVEL, LOG_ERROR_LEVEL };

/* Made by main and handed down by pointer; a NULL logger is silent. */
struct log {
    enum log_level level; /* what is below is dropped */
    int fd;
};

/* Read a level: debug, info, warn or error. False: none of these. */
bool log_level_parse(const char *text, enum log_level *level);
/* Return whether lines of this level are written. */
bool log_takes(const struct log *log, enum log_level level);
/* Change the level from now on, for every thread. */
void log_set_level(struct log *log, enum log_level level);
/* Write one line, cut to 1 KiB, where the level is written. */
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Write `text` to `out` in quotes, unprintable bytes as \xNN, cut to fit; return `out`. */
const char *log_quoted(struct bytes text, char *out, size_t size);

/* log_line for each level. */
#define log_debug(log, ...) log_line((log), LOG_DEBUG_LEVEL, __VA_ARGS__)
#define log_info(log, ...)  log_line((log), LOG_INFO_LEVEL, __VA_ARGS__)
#define log_warn(log, ...)  log_line((log), LOG_WARN_LEVEL, __VA_ARGS__)
#define log_error(log, ...) log_line((log), LOG_ERROR_LEVEL, __VA_ARGS__)

#endif
