/* SPDX-License-Identifier: Apache-2.0 */
/* The Redis protocol, both ways, without sockets: an incremental request parser and a reply writer.
 *
 * The parser takes bytes as they come, in pieces of any size, and never holds more than the limits
 * allow: memory grows with what has arrived, not with what a header claims. What it hands out are
 * views into its own memory or into the caller's data, valid until the next call.
 *
 * Source: the RESP2 and RESP3 specifications (redis.io/docs/reference/protocol-spec). */
#ifndef STOCKADE_RESP_RESP_H
#define STOCKADE_RESP_RESP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fence/base/bytes.h"
#include "fence/base/err.h"

struct resp_limits {
    size_t args_max;    /* arguments in one request, the command's name among them */
    size_t bulk_max;    /* bytes in one argument */
    size_t request_max; /* bytes of arguments in one request */
    size_t inline_max;  /* bytes in an inline request, and in any header line */
    bool before_auth;   /* errors say that it is for want of authentication */
};

/* Before a connection has authenticated, and after. */
extern const struct resp_limits resp_limits_unauthenticated; /* 10 arguments, 16 KiB */
/* 1 Mi arguments, 16 MiB each, 17 MiB all: whatever else a request carries, the largest value fits
 * into it. Inline 64 KiB. */
extern const struct resp_limits resp_limits_default;

enum resp_status {
    RESP_MORE,    /* all bytes used, the request is not complete */
    RESP_REQUEST, /* argc and argv are ready; bytes behind it are not used */
    RESP_BROKEN,  /* resp_broken_text says why, in Redis's words; nothing more can be read */
};

struct resp_parser;

/* Make a parser, which the caller owns. */
struct resp_parser *resp_parser_new(void);
/* Free it, and the views that it gave. */
void resp_parser_free(struct resp_parser *parser);
/* How much memory it has. */
size_t resp_parser_bytes(const struct resp_parser *parser);
/* Parse up to the end of the first request; *used says how many of the `len` bytes were taken.
 * Empty requests (blank lines, *0, *-1) are skipped silently, as Redis does. Limits may differ from
 * call to call. `data` must stay where it is while the request is used. A call with no data frees
 * the memory that a large request has needed. */
enum resp_status resp_parse(struct resp_parser *parser, const struct resp_limits *limits,
                            const char *data, size_t len, size_t *used);
/* After RESP_REQUEST, return how many words the request has, at least 1. */
size_t resp_argc(const struct resp_parser *parser);
/* And the words, valid until the next resp_parse. */
const struct bytes *resp_argv(const struct resp_parser *parser);
/* After RESP_BROKEN, return "Protocol error: ...", valid as long as the parser lives. */
const char *resp_broken_text(const struct resp_parser *parser);

/* The writer: each function appends to a buffer. `resp3` chooses the form where the versions
 * differ. */
void resp_simple(struct buf *out, const char *text); /* +OK */
void resp_error(struct buf *out, enum stk_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4))); /* -CODE text; NULL: the usual */
void resp_verror(struct buf *out, enum stk_error error, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));           /* the same */
void resp_int(struct buf *out, int64_t value);       /* :1 */
void resp_bulk(struct buf *out, struct bytes value); /* $3 */
void resp_bulk_text(struct buf *out, const char *text);
void resp_bulk_int(struct buf *out, int64_t value);          /* $2 42 */
void resp_null(struct buf *out, bool resp3);                 /* $-1 or _ */
void resp_null_array(struct buf *out, bool resp3);           /* *-1 or _ */
void resp_array(struct buf *out, size_t count);              /* *n, elements follow */
void resp_map(struct buf *out, size_t pairs, bool resp3);    /* %n or *2n */
void resp_push(struct buf *out, size_t count, bool resp3);   /* >n or *n: it answers nothing */
void resp_set(struct buf *out, size_t count, bool resp3);    /* ~n or *n */
void resp_double(struct buf *out, double value, bool resp3); /* ,1.5 or a bulk string */
/* Append a whole value that was written by these functions for RESP3 or not (`value_resp3`), as a
 * client reads it that speaks RESP3 or not. */
void resp_append_value(struct buf *out, struct bytes value, bool value_resp3, bool resp3);
void resp_verbatim(struct buf *out, struct bytes text, bool resp3); /* =txt: or a bulk string */

#endif
