/* SPDX-License-Identifier: Apache-2.0 */
/* The request parser: a state machine over a window of bytes that begins where the request begins.
 *
 *            '*n'                '$len'              len bytes, CR LF
 *   START ─────────▶ BULK_HEADER ─────▶ BULK_BODY ─────────────────▶ BULK_HEADER or done
 *     └─ anything else: an inline command, done at the end of its line
 *
 * A request that lies whole in the caller's data is never copied: the window is that data. One that
 * does not is kept in `held`, and from then on the window is `held`, which takes from later data
 * just what this request still needs. So a request's positions are offsets into the window, and
 * become views only when it is complete.
 *
 * How it fails: what breaks the protocol breaks the stream, for good. The outcome does not depend
 * on how the bytes were cut into pieces. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "proxy/resp/resp.h"

/* Memory up to this size is kept from one request to the next. */
enum { HELD_KEPT_MAX = 4096, ARGS_KEPT_MAX = 128, ARGS_FIRST = 8 };

/* Where even Redis would refuse the length, it is refused in Redis's words. */
enum { REDIS_BULK_MAX = 512 * 1024 * 1024 };

const struct resp_limits resp_limits_unauthenticated = {
    .args_max = 10,
    .bulk_max = 16 * 1024,
    .request_max = 16 * 1024,
    .inline_max = 16 * 1024,
    .before_auth = true,
};
const struct resp_limits resp_limits_default = {
    .args_max = 1024 * 1024,
    .bulk_max = 16 * 1024 * 1024,
    .request_max = 17 * 1024 * 1024,
    .inline_max = 64 * 1024,
};

enum state { START, BULK_HEADER, BULK_BODY, COMPLETE, BROKEN };

struct resp_parser {
    enum state state;
    struct buf held;    /* the request so far, where it came in pieces */
    size_t at;          /* the window is parsed up to here */
    size_t scanned;     /* no line feed between `at` and here */
    size_t args_left;   /* announced and not begun */
    size_t body_len;    /* BULK_BODY: without its CR LF */
    size_t request_len; /* arguments so far, in bytes */
    size_t argc, args_cap;
    struct bytes *argv; /* lengths; the views are set when the request is complete */
    size_t *starts;     /* where each argument begins in the window */
    char broken_text[96];
};

enum step {
    STEP_ON,      /* go on in the new state */
    STEP_MORE,    /* the window ends too early */
    STEP_EMPTY,   /* a request without arguments ends at `at` */
    STEP_REQUEST, /* a request ends at `at` */
    STEP_BROKEN,
};

struct resp_parser *resp_parser_new(void)
{
    return mem_zalloc(sizeof(struct resp_parser));
}

void resp_parser_free(struct resp_parser *parser)
{
    buf_free(&parser->held);
    free(parser->argv);
    free(parser->starts);
    free(parser);
}

size_t resp_parser_bytes(const struct resp_parser *parser)
{
    return sizeof *parser + parser->held.cap +
           parser->args_cap * (sizeof *parser->argv + sizeof *parser->starts);
}

size_t resp_argc(const struct resp_parser *parser)
{
    return parser->argc;
}

const struct bytes *resp_argv(const struct resp_parser *parser)
{
    return parser->argv;
}

const char *resp_broken_text(const struct resp_parser *parser)
{
    return parser->broken_text;
}

static enum step broken(struct resp_parser *parser, const char *why)
{
    snprintf(parser->broken_text, sizeof parser->broken_text, "Protocol error: %s", why);
    parser->state = BROKEN;
    return STEP_BROKEN;
}

static enum step too_long(struct resp_parser *parser, const struct resp_limits *limits,
                          const char *what)
{
    char why[48];
    snprintf(why, sizeof why, "%s %s length", limits->before_auth ? "unauthenticated" : "invalid",
             what);
    return broken(parser, why);
}

static enum step too_large(struct resp_parser *parser, const char *what, size_t max)
{
    char why[80];
    snprintf(why, sizeof why, "%s at most %zu bytes", what, max);
    return broken(parser, why);
}

/* Get ready for the next request; a buffer that one large request needed goes back. */
static void begin(struct resp_parser *parser)
{
    if (parser->held.cap > HELD_KEPT_MAX)
        buf_free(&parser->held);
    buf_clear(&parser->held);
    if (parser->args_cap > ARGS_KEPT_MAX) {
        free(parser->argv);
        free(parser->starts);
        parser->argv = NULL;
        parser->starts = NULL;
        parser->args_cap = 0;
    }
    parser->state = START;
    parser->at = parser->scanned = 0;
    parser->argc = parser->request_len = 0;
}

static void add_arg(struct resp_parser *parser, size_t start, size_t len)
{
    if (parser->argc == parser->args_cap) {
        size_t cap = parser->args_cap == 0 ? ARGS_FIRST : parser->args_cap * 2;
        parser->argv = mem_realloc(parser->argv, cap * sizeof *parser->argv);
        parser->starts = mem_realloc(parser->starts, cap * sizeof *parser->starts);
        parser->args_cap = cap;
    }
    parser->starts[parser->argc] = start;
    parser->argv[parser->argc].len = len;
    parser->argc++;
}

/* Take the line at `at`, without its line feed; or return STEP_MORE, or fail with `too_big`. */
static enum step take_line(struct resp_parser *parser, const struct resp_limits *limits,
                           struct bytes window, const char *too_big, struct bytes *line)
{
    const char *begin_at = window.data + parser->at;
    size_t from = parser->scanned > parser->at ? parser->scanned : parser->at;
    const char *feed =
        window.len == from ? NULL : memchr(window.data + from, '\n', window.len - from);
    size_t len = feed == NULL ? window.len - parser->at : (size_t)(feed - begin_at);

    if (len > limits->inline_max)
        return broken(parser, too_big);
    if (feed == NULL) {
        parser->scanned = window.len;
        return STEP_MORE;
    }
    *line = (struct bytes){begin_at, len};
    parser->at += len + 1;
    return STEP_ON;
}

/* Read the number in a header line "*12\r" or "$12\r". */
static bool header_number(struct bytes line, int64_t *number)
{
    return line.len >= 2 && line.data[line.len - 1] == '\r' &&
           bytes_to_int64((struct bytes){line.data + 1, line.len - 2}, number);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Take a header line of one digit or two, as most are, where all of it is there. */
static bool take_short(struct resp_parser *parser, struct bytes window, int64_t *number)
{
    const char *at = window.data + parser->at;
    size_t left = window.len - parser->at;

    if (left >= 4 && is_digit(at[1]) && at[2] == '\r' && at[3] == '\n') {
        *number = at[1] - '0';
        parser->at += 4;
        return true;
    }
    if (left >= 5 && at[1] != '0' && is_digit(at[1]) && is_digit(at[2]) && at[3] == '\r' &&
        at[4] == '\n') {
        *number = (at[1] - '0') * 10 + at[2] - '0';
        parser->at += 5;
        return true;
    }
    return false;
}

/* Take the header line at `at`, with its number; fail with `too_big` or `invalid`. */
static enum step take_header(struct resp_parser *parser, const struct resp_limits *limits,
                             struct bytes window, const char *too_big, const char *invalid,
                             int64_t *number)
{
    struct bytes line;

    if (take_short(parser, window, number))
        return STEP_ON;
    enum step step = take_line(parser, limits, window, too_big, &line);
    return step == STEP_ON && !header_number(line, number) ? broken(parser, invalid) : step;
}

static enum step step_array_header(struct resp_parser *parser, const struct resp_limits *limits,
                                   struct bytes window)
{
    int64_t count;
    enum step step = take_header(parser, limits, window, "too big mbulk count string",
                                 "invalid multibulk length", &count);

    if (step != STEP_ON)
        return step;
    if (count <= 0)
        return STEP_EMPTY;
    if ((uint64_t)count > limits->args_max)
        return too_long(parser, limits, "multibulk");
    parser->args_left = (size_t)count;
    parser->state = BULK_HEADER;
    return STEP_ON;
}

static enum step step_bulk_header(struct resp_parser *parser, const struct resp_limits *limits,
                                  struct bytes window)
{
    static const char invalid[] = "invalid bulk length";
    int64_t len;

    if (parser->at == window.len)
        return STEP_MORE;
    char first = window.data[parser->at];
    if (first != '$') {
        char why[32];
        bool printable = first >= ' ' && first <= '~';
        snprintf(why, sizeof why,
                 printable ? "expected '$', got '%c'" : "expected '$', got '\\x%02x'",
                 (unsigned char)first);
        return broken(parser, why);
    }
    enum step step =
        take_header(parser, limits, window, "too big bulk count string", invalid, &len);
    if (step != STEP_ON)
        return step;
    if (len < 0)
        return broken(parser, invalid);
    if ((uint64_t)len > limits->bulk_max) {
        if (limits->before_auth || len > REDIS_BULK_MAX)
            return too_long(parser, limits, "bulk");
        return too_large(parser, "an argument has", limits->bulk_max);
    }
    if (parser->request_len + (size_t)len > limits->request_max)
        return too_large(parser, "the arguments of a request have", limits->request_max);
    parser->body_len = (size_t)len;
    parser->request_len += (size_t)len;
    parser->state = BULK_BODY;
    return STEP_ON;
}

static enum step step_bulk_body(struct resp_parser *parser, struct bytes window)
{
    size_t len = parser->body_len, left = window.len - parser->at;

    if (left < len + 2) {
        /* A wrong terminator is told as soon as it shows. */
        if (left == len + 1 && window.data[window.len - 1] != '\r')
            return broken(parser, "expected CRLF behind a bulk string");
        return STEP_MORE;
    }
    const char *end = window.data + parser->at + len;
    if (end[0] != '\r' || end[1] != '\n')
        return broken(parser, "expected CRLF behind a bulk string");
    add_arg(parser, parser->at, len);
    parser->at += len + 2;
    parser->state = BULK_HEADER;
    return --parser->args_left == 0 ? STEP_REQUEST : STEP_ON;
}

/* Inline commands: words between blanks, as people type them into telnet. Double quotes take the
 * escapes \n \r \t \b \a \xHH, and a backslash in front of any other byte stands for that byte;
 * single quotes take \' alone. A quote may open in the middle of a word, and must close at its end.
 * A zero byte is a byte like any other. Decoding never makes a word longer than its source.
 *
 * Source: redis.io/docs/reference/protocol-spec, and redis-cli's quoting, which is the same. */

enum inline_word {
    INLINE_WORD,       /* `word` is the next one */
    INLINE_END,        /* there are no more */
    INLINE_UNBALANCED, /* a quote is not closed, or something follows a closing quote directly */
};

struct cursor {
    char *line;
    size_t len, at, out; /* next byte to read, next to write: out <= at */
};

static bool blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool ends_word(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Return the byte that the escape at the cursor, just behind its backslash, stands for. */
static char unescape(struct cursor *cursor)
{
    const char *p = cursor->line + cursor->at;

    if (cursor->len - cursor->at >= 3 && p[0] == 'x' && bytes_hex_digit(p[1]) >= 0 &&
        bytes_hex_digit(p[2]) >= 0) {
        cursor->at += 3;
        return (char)(bytes_hex_digit(p[1]) * 16 + bytes_hex_digit(p[2]));
    }
    cursor->at++;
    switch (p[0]) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'b': return '\b';
    case 'a': return '\a';
    default: return p[0];
    }
}

/* Read up to the closing quote; the opening one is just behind us. False: it is not closed, or is
 * not at the word's end. */
static bool quoted(struct cursor *cursor, char quote)
{
    while (cursor->at < cursor->len) {
        char c = cursor->line[cursor->at++];
        bool more = cursor->at < cursor->len;
        if (c == quote)
            return !more || blank(cursor->line[cursor->at]);
        if (c == '\\' && more && quote == '"')
            c = unescape(cursor);
        else if (c == '\\' && more && cursor->line[cursor->at] == '\'')
            c = cursor->line[cursor->at++];
        cursor->line[cursor->out++] = c;
    }
    return false;
}

/* Take the next word of `line` from *at on, and move *at behind it. Words are decoded in place,
 * over bytes that were read already, so `word` is valid as long as the line. */
static enum inline_word inline_next(char *line, size_t len, size_t *at, struct bytes *word)
{
    while (*at < len && blank(line[*at]))
        (*at)++;
    if (*at == len)
        return INLINE_END;

    struct cursor cursor = {line, len, *at, *at};
    size_t begin = *at;
    while (cursor.at < len && !ends_word(line[cursor.at])) {
        char c = line[cursor.at++];
        if (c != '"' && c != '\'') {
            line[cursor.out++] = c;
            continue;
        }
        if (!quoted(&cursor, c))
            return INLINE_UNBALANCED;
        break;
    }
    *at = cursor.at;
    *word = (struct bytes){line + begin, cursor.out - begin};
    return INLINE_WORD;
}

/* Decode the line in `held`, where it may be changed. */
static enum step step_inline(struct resp_parser *parser, const struct resp_limits *limits,
                             struct bytes window)
{
    struct bytes line, word;
    size_t at = 0;
    enum step step = take_line(parser, limits, window, "too big inline request", &line);

    if (step != STEP_ON)
        return step;
    if (line.data != parser->held.data)
        buf_append_bytes(&parser->held, line);
    for (;;) {
        char *held = parser->held.data;
        enum inline_word found = inline_next(held, line.len, &at, &word);
        if (found == INLINE_UNBALANCED)
            return broken(parser, "unbalanced quotes in request");
        if (found == INLINE_END)
            break;
        if (parser->argc == limits->args_max)
            return too_long(parser, limits, "multibulk");
        add_arg(parser, (size_t)(word.data - held), word.len);
    }
    return parser->argc == 0 ? STEP_EMPTY : STEP_REQUEST;
}

/* Parse the window as far as it goes. */
static enum step advance(struct resp_parser *parser, const struct resp_limits *limits,
                         struct bytes window)
{
    enum step step = STEP_ON;

    while (step == STEP_ON)
        switch (parser->state) {
        case START:
            if (window.len == 0)
                return STEP_MORE;
            step = window.data[0] == '*' ? step_array_header(parser, limits, window)
                                         : step_inline(parser, limits, window);
            break;
        case BULK_HEADER: step = step_bulk_header(parser, limits, window); break;
        case BULK_BODY: step = step_bulk_body(parser, window); break;
        default: check(false);
        }
    return step;
}

/* Return how much of the new data belongs, as far as one can tell, to the request in `held`. */
static size_t wanted(const struct resp_parser *parser, const char *data, size_t len)
{
    if (parser->state == BULK_BODY) {
        size_t missing = parser->at + parser->body_len + 2 - parser->held.len;
        return len < missing ? len : missing;
    }
    const char *feed = len == 0 ? NULL : memchr(data, '\n', len);
    return feed == NULL ? len : (size_t)(feed - data) + 1;
}

static void complete(struct resp_parser *parser, const char *base)
{
    for (size_t i = 0; i < parser->argc; i++)
        parser->argv[i].data = base + parser->starts[i];
    parser->state = COMPLETE;
}

enum resp_status resp_parse(struct resp_parser *parser, const struct resp_limits *limits,
                            const char *data, size_t len, size_t *used)
{
    size_t from = 0; /* data is used up to here */

    if (parser->state == COMPLETE)
        begin(parser);
    *used = len;
    if (parser->state == BROKEN)
        return RESP_BROKEN;
    for (;;) {
        bool holding = parser->held.len > 0;
        struct bytes window =
            holding ? buf_bytes(&parser->held) : (struct bytes){data + from, len - from};
        size_t take;
        switch (advance(parser, limits, window)) {
        case STEP_BROKEN: return RESP_BROKEN;
        case STEP_REQUEST:
            *used = holding ? from : from + parser->at;
            /* Inline words were decoded in `held`, whatever the window was. */
            complete(parser, parser->held.len > 0 ? parser->held.data : window.data);
            return RESP_REQUEST;
        case STEP_EMPTY:
            from += holding ? 0 : parser->at;
            begin(parser);
            break;
        default:
            take = holding ? wanted(parser, data + from, len - from) : len - from;
            if (take == 0)
                return RESP_MORE;
            buf_append(&parser->held, data + from, take);
            from += take;
            if (!holding)
                return RESP_MORE;
        }
    }
}
