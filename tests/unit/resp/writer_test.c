/* SPDX-License-Identifier: Apache-2.0 */
/* The reply writer: each reply byte for byte, in both versions of the protocol. */
#include <math.h>

#include "proxy/resp/resp.h"
#include "tests/unit/test.h"

/* Compare what was written since the last call. */
static void expect(struct buf *out, const char *expected)
{
    assert_int_equal(out->len, strlen(expected));
    assert_memory_equal(out->data, expected, out->len);
    buf_clear(out);
}

TEST(replies_of_both_versions)
{
    struct buf out = {0};

    resp_simple(&out, "OK");
    expect(&out, "+OK\r\n");
    resp_bulk_text(&out, "a\r\nb");
    expect(&out, "$4\r\na\r\nb\r\n");
    resp_bulk(&out, (struct bytes){NULL, 0});
    expect(&out, "$0\r\n\r\n");
    resp_array(&out, 0);
    resp_array(&out, 12);
    expect(&out, "*0\r\n*12\r\n");
    buf_free(&out);
}

TEST(numbers_are_written_whole)
{
    struct buf out = {0};

    resp_int(&out, 0);
    resp_int(&out, 42);
    resp_int(&out, -1);
    expect(&out, ":0\r\n:42\r\n:-1\r\n");
    resp_int(&out, 9);
    resp_int(&out, 10);
    resp_int(&out, 99);
    resp_int(&out, 100);
    expect(&out, ":9\r\n:10\r\n:99\r\n:100\r\n");
    resp_int(&out, INT64_MAX);
    resp_int(&out, INT64_MIN);
    expect(&out, ":9223372036854775807\r\n:-9223372036854775808\r\n");
    resp_bulk_int(&out, INT64_MIN);
    resp_bulk_int(&out, 7);
    expect(&out, "$20\r\n-9223372036854775808\r\n$1\r\n7\r\n");
    buf_free(&out);
}

TEST(resp3_has_types_of_its_own)
{
    struct buf out = {0};

    for (int resp3 = 0; resp3 <= 1; resp3++) {
        resp_null(&out, resp3);
        resp_null_array(&out, resp3);
        expect(&out, resp3 ? "_\r\n_\r\n" : "$-1\r\n*-1\r\n");
        resp_map(&out, 3, resp3);
        resp_set(&out, 3, resp3);
        resp_push(&out, 3, resp3);
        expect(&out, resp3 ? "%3\r\n~3\r\n>3\r\n" : "*6\r\n*3\r\n*3\r\n");
        resp_verbatim(&out, BYTES_LITERAL("a b"), resp3);
        expect(&out, resp3 ? "=7\r\ntxt:a b\r\n" : "$3\r\na b\r\n");
    }
    buf_free(&out);
}

TEST(doubles_read_back_as_the_same_number)
{
    struct buf out = {0};

    resp_double(&out, 0.1, true);
    resp_double(&out, 3, true);
    resp_double(&out, 0.1 + 0.2, true);
    expect(&out, ",0.1\r\n,3\r\n,0.30000000000000004\r\n");
    resp_double(&out, -INFINITY, true);
    resp_double(&out, INFINITY, true);
    resp_double(&out, NAN, true);
    expect(&out, ",-inf\r\n,inf\r\n,nan\r\n");
    resp_double(&out, 1.5, false);
    expect(&out, "$3\r\n1.5\r\n");
    buf_free(&out);
}

TEST(an_error_is_one_line_that_starts_with_its_code)
{
    struct buf out = {0};
    char longest[2000];

    resp_error(&out, STK_RANGE, NULL);
    expect(&out, "-RANGE the result would leave MIN..MAX; nothing was changed\r\n");
    resp_error(&out, STK_ERR, "unknown command '%s'", "a\r\n+OK\r\n");
    expect(&out, "-ERR unknown command 'a  +OK  '\r\n");
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    resp_error(&out, STK_ERR, "%s", longest);
    assert_true(out.len > 500 && out.len < 600);
    assert_memory_equal(out.data + out.len - 3, "x\r\n", 3);
    buf_free(&out);
}
