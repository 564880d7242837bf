/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds bytes to the request parser: whole, byte by byte, and cut at places that the input chooses.
 * The commands and the end must be the same however the bytes were cut, within the limits, and
 * memory must follow what has arrived, not what a header claims.
 *
 * An input is:  limits byte  cuts byte  bytes. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "proxy/resp/resp.h"
#include "tests/fuzz/fuzz.h"

/* What a parser may hold for each byte that arrived: two growing arrays of an argument's place, and
 * the bytes themselves, all doubling; and to begin with. */
enum { MEMORY_PER_BYTE = 64, MEMORY_FIRST = 4096 };

/* AddressSanitizer's; there is none in a build without it. */
size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

/* Small enough to be reached; in the second, a bulk string may be longer than a line. */
static const struct resp_limits tight = {
    .args_max = 3, .bulk_max = 8, .request_max = 12, .inline_max = 24};

static const struct resp_limits narrow = {
    .args_max = 4, .bulk_max = 24, .request_max = 32, .inline_max = 12};

static size_t allocated(void)
{
    return __sanitizer_get_current_allocated_bytes == NULL
               ? 0
               : __sanitizer_get_current_allocated_bytes();
}

static void check_request(const struct resp_parser *parser, const struct resp_limits *limits)
{
    size_t argc = resp_argc(parser), sum = 0;
    const struct bytes *argv = resp_argv(parser);
    size_t most =
        limits->request_max > limits->inline_max ? limits->request_max : limits->inline_max;

    check(argc >= 1 && argc <= limits->args_max);
    for (size_t i = 0; i < argc; i++) {
        check(argv[i].len <= limits->bulk_max || argv[i].len <= limits->inline_max);
        sum += argv[i].len;
    }
    check(sum <= most);
}

/* Write the request as text. */
static void write_request(struct buf *out, const struct resp_parser *parser)
{
    buf_printf(out, "%zu:", resp_argc(parser));
    for (size_t i = 0; i < resp_argc(parser); i++) {
        buf_printf(out, " %zu=", resp_argv(parser)[i].len);
        buf_append_bytes(out, resp_argv(parser)[i]);
    }
    buf_append_text(out, "\n");
}

/* Give the parser a copy of a piece, so that a sanitizer sees where it reads beyond. */
static bool feed(struct resp_parser *parser, const struct resp_limits *limits, struct bytes piece,
                 struct buf *out)
{
    char *copy = malloc(piece.len + 1);
    size_t at = 0;
    bool on = true;

    check(copy != NULL);
    char *data = copy + 1; /* odd, and no byte behind it */
    memcpy(data, piece.data, piece.len);
    while (on) {
        size_t used = SIZE_MAX;
        enum resp_status status = resp_parse(parser, limits, data + at, piece.len - at, &used);
        check(used <= piece.len - at);
        at += used;
        if (status == RESP_REQUEST) {
            check_request(parser, limits);
            write_request(out, parser);
        } else if (status == RESP_BROKEN) {
            check(strncmp(resp_broken_text(parser), "Protocol error: ", 16) == 0);
            buf_append_text(out, resp_broken_text(parser));
            on = false;
        } else {
            check(status == RESP_MORE && at == piece.len);
            break;
        }
    }
    free(copy);
    return on;
}

/* cuts 0: whole; 1: byte by byte; else at places that follow from it. */
static struct buf parse(struct bytes data, const struct resp_limits *limits, uint32_t cuts)
{
    size_t before = allocated(), arrived = 0;
    struct resp_parser *parser = resp_parser_new();
    struct buf out = {0};
    bool on = true;

    while (on && arrived < data.len) {
        size_t left = data.len - arrived, len = cuts == 0 ? left : 1;
        if (cuts > 1) {
            cuts = cuts * 1664525 + 1013904223;
            len = 1 + (cuts >> 16) % (cuts >> 30 == 0 ? 64 : 8);
            len = len < left ? len : left;
            cuts |= 2;
        }
        on = feed(parser, limits, (struct bytes){data.data + arrived, len}, &out);
        arrived += len;
        size_t now = allocated();
        check(now == 0 || now <= before + out.cap + MEMORY_FIRST + MEMORY_PER_BYTE * arrived);
    }
    size_t used;
    if (!on) /* broken for good */
        check(resp_parse(parser, limits, "PING\r\n", 6, &used) == RESP_BROKEN);
    resp_parser_free(parser);
    return out;
}

static void compare(const struct buf *whole, struct buf *cut, const char *how)
{
    if (!bytes_equal(buf_bytes(whole), buf_bytes(cut)))
        fuzz_wrong("whole:\n%.*s\n%s:\n%.*s", (int)whole->len, whole->data, how, (int)cut->len,
                   cut->data);
    buf_free(cut);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct resp_limits *const all[] = {&resp_limits_default,
                                                    &resp_limits_unauthenticated, &tight, &narrow};
    struct bytes rest = {(const char *)data, size};
    const struct resp_limits *limits = all[fuzz_byte(&rest) % 4];
    uint32_t cuts = 2 + fuzz_byte(&rest);

    struct buf whole = parse(rest, limits, 0);
    struct buf cut = parse(rest, limits, 1);
    compare(&whole, &cut, "byte by byte");
    for (int i = 0; i < 2; i++) {
        cut = parse(rest, limits, cuts + 256 * (uint32_t)i);
        compare(&whole, &cut, "cut");
    }
    buf_free(&whole);
    return 0;
}
