/* SPDX-License-Identifier: Apache-2.0 */
/* Views of bytes, numbers as text, and growing buffers. */
#include "fence/base/bytes.h"
#include "tests/unit/test.h"

static const struct bytes nothing = {NULL, 0};

TEST(equality_is_of_length_and_bytes)
{
    assert_true(bytes_equal(bytes_of("abc"), BYTES_LITERAL("abc")));
    assert_false(bytes_equal(bytes_of("abc"), bytes_of("abd")));
    assert_false(bytes_equal(bytes_of("abc"), bytes_of("ab")));
    assert_false(bytes_equal(BYTES_LITERAL("a\0b"), BYTES_LITERAL("a\0c")));
    assert_true(bytes_equal(nothing, bytes_of("")));
    assert_true(bytes_equal_nocase(bytes_of("aCqUiRe"), "ACQUIRE"));
    assert_false(bytes_equal_nocase(bytes_of("ACQUIR"), "ACQUIRE"));
    assert_false(bytes_equal_nocase(bytes_of("ACQUIRES"), "ACQUIRE"));
    assert_true(bytes_equal_nocase(nothing, ""));
}

TEST(order_is_bytewise_and_shorter_first)
{
    static const struct bytes rising[] = {
        {NULL, 0},          BYTES_LITERAL("\0"),   BYTES_LITERAL("A"),
        BYTES_LITERAL("a"), BYTES_LITERAL("a\0"),  BYTES_LITERAL("ab"),
        BYTES_LITERAL("b"), BYTES_LITERAL("\xff"),
    };
    enum { COUNT = sizeof rising / sizeof *rising };

    for (size_t i = 0; i < COUNT; i++)
        for (size_t j = 0; j < COUNT; j++) {
            int order = bytes_compare(rising[i], rising[j]);
            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
}

TEST(numbers_are_read_whole_or_not_at_all)
{
    static const struct {
        const char *text;
        int64_t value;
    } right[] = {
        {"0", 0},
        {"7", 7},
        {"-7", -7},
        {"86400000", 86400000},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
    };
    static const char *const wrong[] = {
        "",
        "-",
        "+1",
        " 1",
        "1 ",
        "01",
        "-0",
        "-01",
        "00",
        "1.0",
        "1e3",
        "0x1",
        "12abc",
        "--1",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "10000000000000000000",
        "99999999999999999999",
    };
    int64_t value;

    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        value = 42;
        assert_true(bytes_to_int64(bytes_of(right[i].text), &value));
        assert_int_equal(value, right[i].value);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (bytes_to_int64(bytes_of(wrong[i]), &value))
            fail_msg("\"%s\" was read as a number", wrong[i]);
    assert_false(bytes_to_int64(BYTES_LITERAL("1\0"), &value));
    assert_false(bytes_to_int64(nothing, &value));
}

TEST(every_number_survives_being_written_and_read)
{
    char text[32], own[INT64_TEXT_MAX];
    int64_t value;

    for (int shift = 0; shift < 63; shift++)
        for (int64_t near = -2; near <= 2; near++)
            for (int sign = -1; sign <= 1; sign += 2) {
                int64_t number = sign * ((INT64_C(1) << shift) + near);
                snprintf(text, sizeof text, "%lld", (long long)number);
                assert_true(bytes_to_int64(bytes_of(text), &value));
                assert_int_equal(value, number);
                assert_true(bytes_equal(bytes_of_int64(number, own), bytes_of(text)));
            }
    assert_true(bytes_equal(bytes_of_int64(INT64_MIN, own), bytes_of("-9223372036854775808")));
    assert_true(bytes_equal(bytes_of_int64(INT64_MAX, own), bytes_of("9223372036854775807")));
}

TEST(a_buffer_grows_and_keeps_its_content)
{
    struct buf buf = {0};
    char expected[16];

    for (int i = 0; i < 10000; i++)
        buf_printf(&buf, "%05d,", i);
    assert_int_equal(buf.len, 60000);
    for (int i = 0; i < 10000; i++) {
        snprintf(expected, sizeof expected, "%05d,", i);
        assert_memory_equal(buf.data + (size_t)i * 6, expected, 6);
    }
    buf_clear(&buf);
    assert_int_equal(buf.len, 0);
    buf_append(&buf, NULL, 0);
    buf_append_bytes(&buf, BYTES_LITERAL("a\0b"));
    buf_append_text(&buf, "cd");
    assert_true(bytes_equal(buf_bytes(&buf), BYTES_LITERAL("a\0bcd")));
    buf_free(&buf);
    assert_null(buf.data);
    assert_int_equal(buf.len + buf.cap, 0);
}

TEST(a_buffer_is_consumed_from_the_front)
{
    struct buf buf = {0};

    buf_append_text(&buf, "hello world");
    buf_consume(&buf, 0);
    buf_consume(&buf, 6);
    assert_true(bytes_equal(buf_bytes(&buf), bytes_of("world")));
    buf_consume(&buf, 5);
    assert_int_equal(buf.len, 0);
    buf_append_text(&buf, "again");
    assert_true(bytes_equal(buf_bytes(&buf), bytes_of("again")));
    buf_free(&buf);
}

TEST(reserved_room_is_there_to_be_written)
{
    struct buf buf = {0};

    buf_append_text(&buf, "x");
    for (size_t more = 1; more < 100000; more *= 3) {
        memset(buf_reserve(&buf, more), 'y', more);
        assert_true(buf.cap - buf.len >= more);
    }
    assert_memory_equal(buf.data, "x", 1);
    assert_int_equal(buf.len, 1);
    buf_free(&buf);
}
