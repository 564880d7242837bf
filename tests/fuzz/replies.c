/* SPDX-License-Identifier: Apache-2.0 */
/* A recursive reader of RESP2 and RESP3 values. */
#include "tests/fuzz/replies.h"

#include <ctype.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { DEPTH_MAX = 8 };

_Noreturn static void wrong(struct bytes rest, const char *why)
{
    fuzz_wrong("not a valid reply, %s: %.*s", why, (int)(rest.len < 200 ? rest.len : 200),
               rest.data);
}

static struct bytes take_line(struct bytes *rest)
{
    struct bytes before = *rest, line = fuzz_cut(rest, '\n');

    if (line.len + 1 > before.len || line.len == 0 || line.data[line.len - 1] != '\r')
        wrong(before, "its line has no end");
    line.len--;
    for (size_t i = 0; i < line.len; i++)
        if (line.data[i] == '\r' || line.data[i] == '\0')
            wrong(before, "its line has bytes that cut it short");
    return line;
}

static int64_t take_count(struct bytes line, int64_t min)
{
    int64_t count;

    if (!bytes_to_int64(line, &count) || count < min)
        wrong(line, "a number");
    return count;
}

static struct bytes take_bulk(struct bytes *rest, int64_t len)
{
    struct bytes text = {rest->data, (size_t)len};

    if (rest->len < text.len + 2 || memcmp(rest->data + len, "\r\n", 2) != 0)
        wrong(*rest, "a bulk string is not as long as it says");
    *rest = (struct bytes){rest->data + len + 2, rest->len - text.len - 2};
    return text;
}

/* CODE and a text behind a blank, or the code alone. */
static void check_error(struct bytes line)
{
    size_t at = 0;

    while (at < line.len && isupper((unsigned char)line.data[at]))
        at++;
    if (at < 2 || (at < line.len && line.data[at] != ' '))
        wrong(line, "an error without its code");
}

static void take_value(struct bytes *rest, struct reply *reply, int depth)
{
    struct bytes from = *rest, line = take_line(rest);
    struct reply part;

    if (line.len == 0 || depth > DEPTH_MAX)
        wrong(from, "no type, or too deep");
    *reply = (struct reply){.type = line.data[0]};
    line = (struct bytes){line.data + 1, line.len - 1};
    int64_t count = 0;
    switch (reply->type) {
    case '-': check_error(line); /* fall through */
    case '+': reply->text = line; break;
    case ':':
        if (!bytes_to_int64(line, &count))
            wrong(from, "no integer");
        reply->text = line;
        count = 0;
        break;
    case '_':
    case '#':
    case ',':
        reply->resp3 = true;
        if (reply->type == '_' ? line.len != 0 : line.len == 0)
            wrong(from, "a simple RESP3 value");
        reply->text = line;
        break;
    case '$':
    case '=':
        reply->resp3 = reply->type == '=';
        count = take_count(line, reply->type == '=' ? 4 : -1);
        if (count >= 0)
            reply->text = take_bulk(rest, count);
        count = 0;
        break;
    case '%':
    case '~':
    case '>':
    case '*':
        reply->resp3 = reply->type != '*';
        count = take_count(line, reply->type == '*' ? -1 : 0);
        count *= reply->type == '%' ? 2 : 1;
        break;
    default: wrong(from, "an unknown type");
    }
    for (; count > 0; count--) {
        take_value(rest, &part, depth + 1);
        reply->resp3 |= part.resp3;
    }
    reply->whole = (struct bytes){from.data, from.len - rest->len};
}

bool reply_next(struct bytes *rest, struct reply *reply)
{
    if (rest->len == 0)
        return false;
    take_value(rest, reply, 0);
    return true;
}
