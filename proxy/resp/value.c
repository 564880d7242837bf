/* SPDX-License-Identifier: Apache-2.0 */
/* A reply that was written for one version of the protocol, for a client of another. RESP2 is
 * understood by every RESP3 client as it is; the other way, the types that RESP2 lacks become those
 * that a RESP2 client would have been sent. */
#include <string.h>

#include "proxy/resp/resp.h"

/* The end of the line that starts at `at`: behind its CRLF. */
static const char *line_end(const char *at, const char *end)
{
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    return lf != NULL ? lf + 1 : end;
}

/* The number behind the type of a header line. */
static int64_t number_of(const char *at, const char *next)
{
    int64_t number = 0;
    (void)bytes_to_int64((struct bytes){at + 1, (size_t)(next - at) - 3}, &number);
    return number;
}

/* Copies the one element at `at` (of an aggregate, its header); returns where the next begins. */
static const char *convert(struct buf *out, const char *at, const char *end)
{
    const char *next = line_end(at, end);
    struct bytes text = {at + 1, next - at >= 3 ? (size_t)(next - at) - 3 : 0};
    size_t len;

    switch (*at) {
    case '_': resp_null(out, false); return next;
    case '%': resp_map(out, (size_t)number_of(at, next), false); return next;
    case '~': resp_array(out, (size_t)number_of(at, next)); return next;
    case ',': resp_bulk(out, text); return next;
    case '#': resp_int(out, at[1] == 't'); return next;
    case '=': /* with its "txt:" */
        len = (size_t)number_of(at, next);
        resp_bulk(out, (struct bytes){next + 4, len - 4});
        return next + len + 2;
    case '$':
        len = number_of(at, next) < 0 ? 0 : (size_t)number_of(at, next) + 2;
        buf_append(out, at, (size_t)(next - at) + len);
        return next + len;
    default: buf_append(out, at, (size_t)(next - at)); return next;
    }
}

void resp_append_value(struct buf *out, struct bytes value, bool value_resp3, bool resp3)
{
    const char *at = value.data, *end = value.data + value.len;

    if (!value_resp3 || resp3) {
        buf_append_bytes(out, value);
        return;
    }
    while (at < end)
        at = convert(out, at, end);
}
