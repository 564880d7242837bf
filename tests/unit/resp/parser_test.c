/* SPDX-License-Identifier: Apache-2.0 */
/* The request parser. Most tests compare transcripts: the requests that came out, as text. Data is
 * fed from blocks of exactly its size that are freed after the call, so that a sanitizer sees every
 * byte that is read past the end or too late. */
#include <malloc.h>

#include "fence/base/mem.h"
#include "proxy/resp/resp.h"
#include "tests/unit/test.h"

static const struct resp_limits small = {
    .args_max = 4, .bulk_max = 8, .request_max = 12, .inline_max = 24};

static void describe_request(const struct resp_parser *parser, struct buf *transcript)
{
    for (size_t i = 0; i < resp_argc(parser); i++) {
        struct bytes arg = resp_argv(parser)[i];
        buf_printf(transcript, "%zu:", arg.len);
        buf_append_bytes(transcript, arg);
        buf_append_text(transcript, " ");
    }
    buf_append_text(transcript, "\n");
}

/* Feed one piece. Return the status after its last byte. */
static enum resp_status feed(struct resp_parser *parser, const struct resp_limits *limits,
                             const char *data, size_t len, struct buf *transcript)
{
    char *piece = mem_alloc(len == 0 ? 1 : len);
    enum resp_status status;
    size_t at = 0, used;

    if (len > 0)
        memcpy(piece, data, len);
    do {
        status = resp_parse(parser, limits, piece + at, len - at, &used);
        assert_true(used <= len - at);
        at += used;
        if (status == RESP_REQUEST)
            describe_request(parser, transcript);
    } while (status == RESP_REQUEST);
    assert_int_equal(at, len);
    if (status == RESP_BROKEN)
        buf_append_text(transcript, resp_broken_text(parser));
    free(piece);
    return status;
}

struct cutter {
    size_t (*next)(struct cutter *cutter, size_t left); /* length of the next piece */
    size_t first;
    uint64_t seed;
};

static size_t cut_whole(struct cutter *cutter, size_t left)
{
    (void)cutter;
    return left;
}

static size_t cut_bytes(struct cutter *cutter, size_t left)
{
    (void)cutter;
    (void)left;
    return 1;
}

static size_t cut_once(struct cutter *cutter, size_t left)
{
    size_t len = cutter->first == 0 ? left : cutter->first;
    cutter->first = 0;
    return len;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

static size_t cut_random(struct cutter *cutter, size_t left)
{
    (void)left;
    return 1 + next_random(&cutter->seed) % 40;
}

/* Return all that comes out of the stream. */
static struct buf transcript_of(struct bytes stream, const struct resp_limits *limits,
                                struct cutter cutter)
{
    struct resp_parser *parser = resp_parser_new();
    struct buf transcript = {0};
    enum resp_status status = RESP_MORE;

    for (size_t at = 0, len; at < stream.len && status != RESP_BROKEN; at += len) {
        len = cutter.next(&cutter, stream.len - at);
        if (len > stream.len - at)
            len = stream.len - at;
        status = feed(parser, limits, stream.data + at, len, &transcript);
    }
    resp_parser_free(parser);
    buf_append(&transcript, "", 1);
    return transcript;
}

static void expect(struct bytes stream, const struct resp_limits *limits, const char *expected)
{
    const struct cutter cutters[] = {{.next = cut_whole}, {.next = cut_bytes}};
    for (size_t i = 0; i < 2; i++) {
        struct buf transcript = transcript_of(stream, limits, cutters[i]);
        assert_string_equal(transcript.data, expected);
        buf_free(&transcript);
    }
}

static void expect_text(const char *stream, const char *expected)
{
    expect(bytes_of(stream), &resp_limits_default, expected);
}

static const char mixed_stream[] = "*1\r\n$4\r\nPING\r\n"
                                   "*3\r\n$3\r\nSET\r\n$5\r\nsku:1\r\n$0\r\n\r\n"
                                   "\r\n\n   \r\n*0\r\n*-1\r\n"
                                   "set \"a b\" 'c d' e\\x\r\n"
                                   "*2\r\n$4\r\nECHO\r\n$6\r\n\r\n$1\r\n\r\n"
                                   "ping\n*2\r\n$4\r\nECHO\r\n$12\r\n0123456789ab\r\n";
static const char mixed_transcript[] = "4:PING \n3:SET 5:sku:1 0: \n3:set 3:a b 3:c d 3:e\\x \n"
                                       "4:ECHO 6:\r\n$1\r\n \n4:ping \n4:ECHO 12:0123456789ab \n";

TEST(pipelined_requests_come_out_in_order)
{
    expect_text(mixed_stream, mixed_transcript);
}

TEST(a_stream_cut_in_two_at_any_byte_gives_the_same_requests)
{
    struct bytes stream = bytes_of(mixed_stream);
    for (size_t first = 1; first < stream.len; first++) {
        struct cutter cutter = {.next = cut_once, .first = first};
        struct buf transcript = transcript_of(stream, &resp_limits_default, cutter);
        assert_string_equal(transcript.data, mixed_transcript);
        buf_free(&transcript);
    }
}

TEST(arguments_may_hold_any_byte)
{
    struct resp_parser *parser = resp_parser_new();
    char stream[16 + 256 + 2], all[256];
    int head = snprintf(stream, sizeof stream, "*1\r\n$256\r\n");
    size_t used, len = (size_t)head + sizeof all + 2;

    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    memcpy(stream + head, all, sizeof all);
    memcpy(stream + head + sizeof all, "\r\n", 2);
    for (size_t cut = 0; cut < len; cut++) {
        if (cut > 0)
            assert_int_equal(resp_parse(parser, &resp_limits_default, stream, cut, &used),
                             RESP_MORE);
        assert_int_equal(resp_parse(parser, &resp_limits_default, stream + cut, len - cut, &used),
                         RESP_REQUEST);
        assert_int_equal(resp_argc(parser), 1);
        assert_int_equal(resp_argv(parser)[0].len, sizeof all);
        assert_memory_equal(resp_argv(parser)[0].data, all, sizeof all);
    }
    resp_parser_free(parser);
}

TEST(inline_quotes_follow_redis_rules)
{
    expect_text("set k \"a\\n\\r\\t\\b\\a\\\"\\\\\\x41\\q\"\n",
                "3:set 1:k 10:a\n\r\t\b\a\"\\Aq \n");
    expect_text("set k 'it\\'s \\n'\r\n", "3:set 1:k 7:it's \\n \n");
    expect_text("set \"\" ''\r\n", "3:set 0: 0: \n");
    expect_text("  a\t b \v c\r\n", "1:a 1:b 1:c \n");
    expect_text("fo\"o bar\" x\r\n", "7:foo bar 1:x \n");
    expect_text("a \"\\x4\"\r\n", "1:a 2:x4 \n");
    expect_text("a \"\\xzz\"\r\n", "1:a 3:xzz \n");
    expect((struct bytes){"a \"b\0c\" d\0e\r\n", 13}, &resp_limits_default, "1:a 3:b");
    expect_text("a \"b\r\n", "Protocol error: unbalanced quotes in request");
    expect_text("a 'b\r\n", "Protocol error: unbalanced quotes in request");
    expect_text("a \"b\"c\r\n", "Protocol error: unbalanced quotes in request");
    expect_text("a 'b'c\r\n", "Protocol error: unbalanced quotes in request");
    expect_text("a \"b\\\"\r\n", "Protocol error: unbalanced quotes in request");
}

TEST(malformed_headers_break_the_stream_in_redis_words)
{
    static const char *const counts[] = {
        "*\r\n",    "*x\r\n", "*+1\r\n", "* 1\r\n",   "*01\r\n",      "*1 \r\n",
        "*1.5\r\n", "*1\n",   "*\n",     "*1\r1\r\n", "*1048577\r\n", "*99999999999999999999\r\n"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        expect_text(counts[i], "Protocol error: invalid multibulk length");

    static const char *const lengths[] = {"$\r\n",   "$-1\r\n",        "$x\r\n",
                                          "$+4\r\n", "$04\r\n",        "$4\n",
                                          "$4x\r\n", "$536870913\r\n", "$9223372036854775808\r\n"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char stream[64];
        snprintf(stream, sizeof stream, "*1\r\n%s", lengths[i]);
        expect_text(stream, "Protocol error: invalid bulk length");
    }
    expect_text("*2\r\n$4\r\nECHO\r\nhello\r\n", "Protocol error: expected '$', got 'h'");
    expect_text("*1\r\n\r\n", "Protocol error: expected '$', got '\\x0d'");
    expect_text("*1\r\n*1\r\n", "Protocol error: expected '$', got '*'");
    expect_text("*1\r\n$4\r\nPINGx", "Protocol error: expected CRLF behind a bulk string");
    expect_text("*1\r\n$4\r\nPING\rx", "Protocol error: expected CRLF behind a bulk string");
    expect_text("*1\r\n$4\r\nPING\n*", "Protocol error: expected CRLF behind a bulk string");
    expect_text("ping\r\n*x\r\nping\r\n", "4:ping \nProtocol error: invalid multibulk length");
}

TEST(a_broken_stream_stays_broken)
{
    struct resp_parser *parser = resp_parser_new();
    size_t used;

    assert_int_equal(resp_parse(parser, &resp_limits_default, "*x\r\n", 4, &used), RESP_BROKEN);
    assert_int_equal(resp_parse(parser, &resp_limits_default, "PING\r\n", 6, &used), RESP_BROKEN);
    assert_int_equal(used, 6);
    assert_string_equal(resp_broken_text(parser), "Protocol error: invalid multibulk length");
    resp_parser_free(parser);
}

TEST(limits_are_exact)
{
    struct {
        const char *stream, *expected;
    } cases[] = {
        {"*4\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n", "1:a 1:b 1:c 1:d \n"},
        {"*5\r\n", "Protocol error: invalid multibulk length"},
        {"*1\r\n$8\r\n12345678\r\n", "8:12345678 \n"},
        {"*1\r\n$9\r\n", "Protocol error: an argument has at most 8 bytes"},
        {"*2\r\n$8\r\n12345678\r\n$4\r\n1234\r\n", "8:12345678 4:1234 \n"},
        {"*2\r\n$8\r\n12345678\r\n$5\r\n",
         "Protocol error: the arguments of a request have at most 12 bytes"},
        {"a b c d\r\n", "1:a 1:b 1:c 1:d \n"},
        {"a b c d e\r\n", "Protocol error: invalid multibulk length"},
        {"012345678901234567890123\n", "24:012345678901234567890123 \n"},
        {"0123456789012345678901234", "Protocol error: too big inline request"},
        {"*000000000000000000000000", "Protocol error: too big mbulk count string"},
        {"*1\r\n$000000000000000000000000", "Protocol error: too big bulk count string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(bytes_of(cases[i].stream), &small, cases[i].expected);
}

TEST(little_is_read_before_authentication)
{
    const struct resp_limits *limits = &resp_limits_unauthenticated;
    expect(BYTES_LITERAL("*10\r\n"), limits, "");
    expect(BYTES_LITERAL("*11\r\n"), limits, "Protocol error: unauthenticated multibulk length");
    expect(BYTES_LITERAL("*1\r\n$16384\r\n"), limits, "");
    expect(BYTES_LITERAL("*1\r\n$16385\r\n"), limits,
           "Protocol error: unauthenticated bulk length");
    expect(BYTES_LITERAL("1 2 3 4 5 6 7 8 9 10 11\r\n"), limits,
           "Protocol error: unauthenticated multibulk length");
}

TEST(an_endless_line_is_cut_off)
{
    struct buf stream = {0};
    const char *const heads[] = {"", "*", "*1\r\n$"};
    const char *const errors[] = {"Protocol error: too big inline request",
                                  "Protocol error: too big mbulk count string",
                                  "Protocol error: too big bulk count string"};
    for (size_t i = 0; i < 3; i++) {
        buf_clear(&stream);
        buf_append_text(&stream, heads[i]);
        memset(buf_reserve(&stream, 70000), '1', 70000);
        stream.len += 70000;
        expect(buf_bytes(&stream), &resp_limits_default, errors[i]);
    }
    buf_free(&stream);
}

TEST(a_huge_request_passes_in_pieces)
{
    struct resp_parser *parser = resp_parser_new();
    struct buf stream = {0};
    size_t used, body = 16 * 1024 * 1024 - 3, at = 0;
    enum resp_status status = RESP_MORE;

    buf_printf(&stream, "*2\r\n$3\r\nSET\r\n$%zu\r\n", body);
    memset(buf_reserve(&stream, body + 2), 'x', body);
    stream.len += body;
    buf_append_text(&stream, "\r\n");
    while (status == RESP_MORE) {
        size_t len = stream.len - at < 65536 ? stream.len - at : 65536;
        status = resp_parse(parser, &resp_limits_default, stream.data + at, len, &used);
        at += used;
    }
    assert_int_equal(status, RESP_REQUEST);
    assert_int_equal(at, stream.len);
    assert_int_equal(resp_argv(parser)[1].len, body);
    assert_int_equal(resp_argv(parser)[1].data[body - 1], 'x');
    resp_parser_free(parser);
    buf_free(&stream);
}

static size_t memory_in_use(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

TEST(the_memory_of_a_huge_request_is_given_back)
{
    struct resp_parser *parser = resp_parser_new();
    size_t used, body = 1024 * 1024, before = memory_in_use();
    char *data = mem_zalloc(body);

    if (memory_in_use() == before) { /* a sanitizer's malloc does not count */
        free(data);
        resp_parser_free(parser);
        skip();
        return;
    }
    for (int round = 0; round < 2; round++) {
        resp_parse(parser, &resp_limits_default, "*1\r\n$1048576\r\n", 14, &used);
        assert_int_equal(resp_parse(parser, &resp_limits_default, data, body, &used), RESP_MORE);
        assert_int_equal(resp_parse(parser, &resp_limits_default, "\r\n", 2, &used), RESP_REQUEST);
        assert_true(memory_in_use() > before + 2 * body);
        assert_int_equal(resp_parse(parser, &resp_limits_default, data, 0, &used), RESP_MORE);
        assert_true(memory_in_use() < before + body + 4096);
    }
    free(data);
    resp_parser_free(parser);
}

TEST(the_memory_of_many_arguments_is_given_back)
{
    enum { COUNT = 100000 };
    struct resp_parser *parser = resp_parser_new();
    struct buf stream = {0};
    size_t used;

    buf_printf(&stream, "*%d\r\n", COUNT);
    for (size_t i = 0; i < COUNT; i++)
        buf_append_text(&stream, "$1\r\na\r\n");
    size_t before = memory_in_use();
    assert_int_equal(resp_parse(parser, &resp_limits_default, stream.data, stream.len, &used),
                     RESP_REQUEST);
    assert_int_equal(resp_argc(parser), COUNT);
    assert_int_equal(resp_parse(parser, &resp_limits_default, "", 0, &used), RESP_MORE);
    assert_true(memory_in_use() < before + 4096);
    resp_parser_free(parser);
    buf_free(&stream);
}

TEST(many_arguments_pass)
{
    struct resp_parser *parser = resp_parser_new();
    struct buf stream = {0};
    size_t used, count = 1024 * 1024;

    buf_printf(&stream, "*%zu\r\n", count);
    for (size_t i = 0; i < count; i++)
        buf_append_text(&stream, "$1\r\na\r\n");
    size_t first = stream.len / 2;
    assert_int_equal(resp_parse(parser, &resp_limits_default, stream.data, first, &used),
                     RESP_MORE);
    assert_int_equal(
        resp_parse(parser, &resp_limits_default, stream.data + first, stream.len - first, &used),
        RESP_REQUEST);
    assert_int_equal(resp_argc(parser), count);
    for (size_t i = 0; i < count; i++)
        assert_true(bytes_equal(resp_argv(parser)[i], BYTES_LITERAL("a")));
    resp_parser_free(parser);
    buf_free(&stream);
}

/* Garbage with enough structure to get past the first header. */
static void fill_garbage(struct buf *stream, uint64_t *seed)
{
    static const char *const parts[] = {
        "*", "$",    "\r\n", "\n", "\r",   "1", "2",      "3",           "-1",
        "0", "PING", "\"",   "'",  "\\x4", " ", "*1\r\n", "$1\r\na\r\n", "*2\r\n$4\r\nECHO\r\n"};
    size_t count = 1 + next_random(seed) % 40;

    buf_clear(stream);
    for (size_t i = 0; i < count; i++) {
        size_t pick = next_random(seed) % (sizeof parts / sizeof *parts + 2);
        char byte = (char)next_random(seed);
        if (pick < sizeof parts / sizeof *parts)
            buf_append_text(stream, parts[pick]);
        else
            buf_append(stream, &byte, 1);
    }
}

TEST(garbage_has_one_meaning_however_it_is_cut)
{
    uint64_t seed = 20240131;
    struct buf stream = {0};
    size_t requests = 0, broken = 0;

    for (int round = 0; round < 20000; round++) {
        const struct resp_limits *limits = round % 2 ? &small : &resp_limits_default;
        fill_garbage(&stream, &seed);
        struct buf whole =
            transcript_of(buf_bytes(&stream), limits, (struct cutter){.next = cut_whole});
        struct cutter cutter = {.next = round % 3 ? cut_random : cut_bytes, .seed = seed};
        struct buf pieces = transcript_of(buf_bytes(&stream), limits, cutter);
        if (!bytes_equal(buf_bytes(&whole), buf_bytes(&pieces)))
            fail_msg("round %d: \"%s\" or \"%s\"", round, whole.data, pieces.data);
        requests += memchr(whole.data, '\n', whole.len) != NULL;
        broken += strstr(whole.data, "Protocol error") != NULL;
        buf_free(&whole);
        buf_free(&pieces);
    }
    /* The garbage was good enough for requests and bad enough for errors. */
    assert_true(requests > 1000 && broken > 1000);
    buf_free(&stream);
}
