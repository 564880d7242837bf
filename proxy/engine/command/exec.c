/* SPDX-License-Identifier: Apache-2.0 */
/* What the data commands share. Where Redis has an error, its text is used: clients and people know
 * it. */
#include "proxy/engine/command/exec.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/glob.h"
#include "fence/base/plain.h"
#include "proxy/engine/session/replies.h"

/* At most so many bytes are around a bulk string: "$12345678\r\n" and "\r\n". */
enum { BULK_FRAME_MAX = 32 };

bool exec_wrong_type(struct exec *exec, enum value_type type)
{
    if (exec->resource.type == VALUE_NONE || exec->resource.type == type)
        return false;
    resp_error(exec->out, STK_WRONGTYPE, NULL);
    return true;
}

enum stk_error exec_error(struct exec *exec, const char *text)
{
    resp_error(exec->out, STK_ERR, "%s", text);
    return STK_OK;
}

enum stk_error exec_room(struct exec *exec, size_t more)
{
    size_t bytes = exec->out->len + more;

    return bytes <= REPLY_SMALL || replies_take(exec->replies, exec->share, bytes) ? STK_OK
                                                                                   : STK_BUSY;
}

enum stk_error exec_bulk(struct exec *exec, struct bytes value)
{
    enum stk_error error = exec_room(exec, value.len + BULK_FRAME_MAX);

    if (error == STK_OK)
        resp_bulk(exec->out, value);
    return error;
}

enum stk_error exec_error_instead(struct exec *exec, const char *text)
{
    exec->out->len = exec->at;
    return exec_error(exec, text);
}

enum stk_error exec_syntax(struct exec *exec)
{
    return exec_error(exec, "syntax error");
}

/* "wrong number of arguments", of the command as Redis names it. */
static void exec_misfit(struct exec *exec)
{
    char name[32];
    size_t len = 0;

    for (; len < exec->argv[0].len && len + 1 < sizeof name; len++)
        name[len] = plain_lower(exec->argv[0].data[len]);
    name[len] = '\0';
    resp_error(exec->out, STK_ERR, "wrong number of arguments for '%s' command", name);
}

bool exec_add_parse(struct exec *exec, size_t at, struct exec_add *add)
{
    const char *wrong = "value is not an integer or out of range";

    *add = (struct exec_add){.min = INT64_MIN, .max = INT64_MAX};
    for (size_t i = at + 1; i < exec->argc; i += 2) { /* where Redis takes no more words */
        if (!exec_is_word(exec, i, "MIN") && !exec_is_word(exec, i, "MAX")) {
            exec_misfit(exec);
            return false;
        }
        if (i + 1 == exec->argc) {
            exec_syntax(exec);
            return false;
        }
    }
    if (!bytes_to_int64(exec->argv[at], &add->delta)) {
        exec_error(exec, wrong);
        return false;
    }
    for (size_t i = at + 1; i < exec->argc; i += 2) {
        bool is_min = exec_is_word(exec, i, "MIN");
        if (!bytes_to_int64(exec->argv[i + 1], is_min ? &add->min : &add->max)) {
            exec_error(exec, "MIN or MAX is not an integer or out of range");
            return false;
        }
    }
    return true;
}

bool exec_add_apply(struct exec *exec, const struct exec_add *add, bool found, struct bytes old,
                    const char *not_integer, int64_t *sum)
{
    int64_t value = 0;

    if (found && !bytes_to_int64(old, &value)) {
        exec_error(exec, not_integer);
        return false;
    }
    if (__builtin_add_overflow(value, add->delta, sum)) {
        exec_error(exec, "increment or decrement would overflow");
        return false;
    }
    if (*sum < add->min || *sum > add->max) {
        bool less = *sum < add->min;
        resp_error(exec->out, STK_RANGE, "%lld would become %lld, %s %lld; nothing was changed",
                   (long long)value, (long long)*sum, less ? "less than MIN" : "more than MAX",
                   (long long)(less ? add->min : add->max));
        return false;
    }
    return true;
}

/* Read a number as strtold does. False: some of the text is left, or it is out of range. */
static bool parse_float(struct bytes text, long double *value)
{
    char copy[EXEC_FLOAT_SIZE], *end;

    if (text.len == 0 || text.len >= sizeof copy || plain_is_space(text.data[0]))
        return false;
    memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    errno = 0;
    *value = plain_to_long_double(copy, &end);
    bool out_of_range = errno == ERANGE && (isinf(*value) || *value == 0);
    return end == copy + text.len && !out_of_range && !isnan(*value);
}

bool exec_is_float(struct bytes text, bool *finite)
{
    long double value;
    bool is = parse_float(text, &value);

    *finite = is && isfinite(value);
    return is;
}

/* Write a number without an exponent, however large it is. */
static struct bytes write_float(long double value, char text[EXEC_FLOAT_SIZE])
{
    int len = plain_print(text, EXEC_FLOAT_SIZE, "%.17Lf", value);

    check(len > 0 && len < EXEC_FLOAT_SIZE);
    while (text[len - 1] == '0')
        len--;
    if (text[len - 1] == '.')
        len--;
    if (len == 2 && text[0] == '-' && text[1] == '0') {
        text[0] = '0';
        len = 1;
    }
    return (struct bytes){text, (size_t)len};
}

bool exec_add_float(struct exec *exec, struct bytes delta, bool found, struct bytes old,
                    const char *not_float, char text[EXEC_FLOAT_SIZE], struct bytes *sum)
{
    long double value = 0, more;

    if (found && !parse_float(old, &value)) {
        exec_error(exec, not_float);
        return false;
    }
    if (!parse_float(delta, &more)) {
        exec_error(exec, EXEC_NOT_FLOAT);
        return false;
    }
    if (!isfinite(value + more)) {
        exec_error(exec, "increment would produce NaN or Infinity");
        return false;
    }
    *sum = write_float(value + more, text);
    return true;
}

bool exec_collect(struct exec_collect *collect, struct bytes element)
{
    if (collect->body.len + element.len > REPLY_BYTES_MAX) {
        collect->too_large = true;
        return false;
    }
    if (exec_room(collect->exec, collect->body.len + element.len) != STK_OK) {
        collect->no_room = true;
        return false;
    }
    resp_bulk(&collect->body, element);
    collect->count++;
    return true;
}

enum stk_error exec_collect_end(struct exec_collect *collect, bool pairs)
{
    struct exec *exec = collect->exec;

    if (collect->too_large) {
        exec_error_instead(exec, "the reply is too large; read it in parts with SCAN or HSCAN");
    } else if (!collect->no_room) {
        if (pairs)
            resp_map(exec->out, collect->count / 2, exec->resp3);
        else
            resp_array(exec->out, collect->count);
        buf_append_bytes(exec->out, buf_bytes(&collect->body));
    }
    buf_free(&collect->body);
    return collect->no_room ? STK_BUSY : STK_OK;
}

static enum value_type parse_type(struct bytes text)
{
    if (bytes_equal_nocase(text, "string"))
        return VALUE_STRING;
    return bytes_equal_nocase(text, "hash") ? VALUE_HASH : VALUE_NONE; /* which no key has */
}

/* Read the option at argv[i]. False: an error was replied. */
static bool take_option(struct exec *exec, size_t i, bool takes_type, struct exec_scan *scan)
{
    bool has_value = i + 1 < exec->argc;

    if (has_value && exec_is_word(exec, i, "MATCH")) {
        if (exec->argv[i + 1].len > GLOB_MAX) {
            exec_error(exec, GLOB_TOO_LONG);
            return false;
        }
        glob_free(scan->match);
        scan->match = glob_new(exec->argv[i + 1]);
    } else if (has_value && exec_is_word(exec, i, "COUNT")) {
        if (!bytes_to_int64(exec->argv[i + 1], &scan->count)) {
            exec_error(exec, "value is not an integer or out of range");
            return false;
        }
        if (scan->count < 1) {
            exec_syntax(exec);
            return false;
        }
    } else if (has_value && takes_type && exec_is_word(exec, i, "TYPE")) {
        scan->typed = true;
        scan->type = parse_type(exec->argv[i + 1]);
    } else {
        exec_syntax(exec);
        return false;
    }
    return true;
}

bool exec_scan_parse(struct exec *exec, size_t at, bool takes_type, struct exec_scan *scan)
{
    *scan = (struct exec_scan){.count = 10};
    for (size_t i = at; i < exec->argc; i += 2)
        if (!take_option(exec, i, takes_type, scan)) {
            glob_free(scan->match);
            return false;
        }
    return true;
}
