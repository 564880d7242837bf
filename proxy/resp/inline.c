/* SPDX-License-Identifier: Apache-2.0 */
/* Inline commands: words between blanks, as people type them into telnet. Double quotes take the
 * escapes \n \r \t \b \a \xHH and backslash before anything else for that byte itself; single
 * quotes take \' alone. A quote may open in the middle of a word, and must close at its end. A zero
 * byte is a byte like any other.
 *
 * Decoding never makes a word longer than its source, hence in place.
 *
 * Source: redis.io/docs/reference/protocol-spec, and redis-cli's quoting, which is the same. */
#include "proxy/resp/inline.h"

#include <stdbool.h>

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

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The byte that the escape at the cursor, just behind its backslash, stands for. */
static char unescape(struct cursor *cursor)
{
    const char *p = cursor->line + cursor->at;

    if (cursor->len - cursor->at >= 3 && p[0] == 'x' && hex_digit(p[1]) >= 0 &&
        hex_digit(p[2]) >= 0) {
        cursor->at += 3;
        return (char)(hex_digit(p[1]) * 16 + hex_digit(p[2]));
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

/* Reads to the closing quote, which opened just before the cursor. False: it is not closed, or is
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

enum inline_word inline_next(char *line, size_t len, size_t *at, struct bytes *word)
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
