/* SPDX-License-Identifier: Apache-2.0 */
/* The config file, read through inih: lines of name = value; # and ; begin a comment, in front of a
 * line or behind a blank. A line that inih would cut silently is refused instead. The first
 * mistake ends the reading, and is told with its line number. */
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

#include "fence/base/log.h"
#include "proxy/server/options_load.h"

enum { LINE_MAX_BYTES = 1024 };

struct reading {
    struct options *options;
    FILE *file;
    const char *path; /* as messages show it */
    int line;
    bool failed;
    struct buf *message;
};

static void fail(struct reading *reading, const char *why)
{
    if (!reading->failed)
        buf_printf(reading->message, "%s:%d: %s", reading->path, reading->line, why);
    reading->failed = true;
}

/* As fgets; blanks in front go, for inih takes an indented line as more of the one before. */
static char *read_line(char *out, int size, void *context)
{
    struct reading *reading = context;

    if (reading->failed || fgets(out, size, reading->file) == NULL)
        return NULL;
    reading->line++;
    size_t len = strlen(out);
    if ((len == 0 || out[len - 1] != '\n') && !feof(reading->file)) {
        fail(reading, "the line is too long, or holds a zero byte");
        return NULL;
    }
    size_t blanks = strspn(out, " \t");
    memmove(out, out + blanks, len - blanks + 1);
    return out;
}

static int take(void *context, const char *section, const char *name, const char *value)
{
    struct reading *reading = context;
    char origin[512], quoted[128];
    enum option option = option_find(bytes_of(name));

    if (reading->failed)
        return 1;
    if (*section != '\0') {
        fail(reading, "a config file has no [sections]");
    } else if (option == OPTIONS) {
        snprintf(origin, sizeof origin, "%s: no such option; stockaded --help lists them",
                 log_quoted(bytes_of(name), quoted, sizeof quoted));
        fail(reading, origin);
    } else if (option == OPTION_CONFIG) {
        fail(reading, "a config file cannot name another one");
    } else {
        snprintf(origin, sizeof origin, "%s:%d: %s", reading->path, reading->line, name);
        reading->failed =
            !option_set(reading->options, option, SOURCE_FILE, origin, value, reading->message);
    }
    return 1;
}

/* A message is one line, whatever the path holds. Returns `path` or `quoted`. */
static const char *shown_path(const char *path, char *quoted, size_t size)
{
    for (const char *c = path; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            return log_quoted(bytes_of(path), quoted, size);
    return path;
}

bool options_load_file(struct options *options, const char *path, struct buf *message)
{
    char quoted[256];
    struct reading reading = {
        .options = options, .path = shown_path(path, quoted, sizeof quoted), .message = message};

    reading.file = fopen(path, "re");
    if (reading.file == NULL) {
        buf_printf(message, "%s %s: %s", options_origin(options, OPTION_CONFIG), reading.path,
                   strerror(errno));
        return false;
    }
    ini_use_stack = false;
    ini_max_line = ini_initial_alloc = LINE_MAX_BYTES;
    ini_allow_multiline = false;
    ini_inline_comment_prefixes = ini_start_comment_prefixes;
    int wrong_line = ini_parse_stream(read_line, &reading, take, &reading);
    if (wrong_line != 0 && !reading.failed) {
        reading.line = wrong_line;
        fail(&reading, "expected name = value");
    }
    if (ferror(reading.file) && !reading.failed) {
        buf_printf(message, "%s %s: cannot be read", options_origin(options, OPTION_CONFIG),
                   reading.path);
        reading.failed = true;
    }
    fclose(reading.file);
    return !reading.failed;
}
