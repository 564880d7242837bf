/* SPDX-License-Identifier: Apache-2.0 */
/* The CSV parser. Each line is given in a block of exactly its size, so that a sanitizer sees every
 * byte read behind it. */
#include "fence/base/mem.h"
#include "tests/unit/test.h"
#include "tools/replay/orders_file.h"

static const char *parse(const char *text, size_t len, struct csv_record *record)
{
    char *block = mem_alloc(len == 0 ? 1 : len);

    memcpy(block, text, len);
    const char *wrong = csv_parse((struct bytes){block, len}, record);
    free(block); /* the record must not point into it */
    return wrong;
}

static void expect_fields(const char *text, size_t count, const char *const *fields)
{
    struct csv_record record;

    assert_null(parse(text, strlen(text), &record));
    assert_int_equal(record.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(record.fields[i].len, strlen(fields[i]));
        assert_memory_equal(record.fields[i].data, fields[i], strlen(fields[i]));
    }
}

#define EXPECT(text, ...)                                                                          \
    do {                                                                                           \
        static const char *const fields[] = {__VA_ARGS__};                                         \
        expect_fields(text, sizeof fields / sizeof *fields, fields);                               \
    } while (0)

static void expect_wrong(const char *text)
{
    struct csv_record record;

    if (parse(text, strlen(text), &record) == NULL) {
        fail_msg("taken for good: %s", text);
    }
}

TEST(bare_fields_are_taken_as_they_are)
{
    EXPECT("a,b,c", "a", "b", "c");
    EXPECT(" a , b", " a ", " b");
    EXPECT("one", "one");
}

TEST(empty_fields_count)
{
    EXPECT("", "");
    EXPECT(",", "", "");
    EXPECT("a,,", "a", "", "");
    EXPECT("\"\",\"\"", "", "");
}

TEST(quoted_fields_lose_their_quotes)
{
    EXPECT("1,\"BANK CHARGES\",2", "1", "BANK CHARGES", "2");
    EXPECT("\"a,b\",c", "a,b", "c");
    EXPECT("\"say \"\"hi\"\"\"", "say \"hi\"");
    EXPECT("\"\"\"\"", "\"");
}

TEST(stray_and_unclosed_quotes_are_wrong)
{
    expect_wrong("\"");
    expect_wrong("\"abc");
    expect_wrong("a,\"b");
    expect_wrong("\"a\"b");
    expect_wrong("\"a\" ,b");
    expect_wrong("a\"b");
    expect_wrong("a\"\"");
    expect_wrong("\"a\"\"");
}

TEST(any_bytes_are_safe_in_a_field)
{
    static const char text[] = {'a', '\0', 'b', ',', (char)0xff, '\r'};
    struct csv_record record;

    assert_null(parse(text, sizeof text, &record));
    assert_int_equal(record.count, 2);
    assert_int_equal(record.fields[0].len, 3);
    assert_memory_equal(record.fields[0].data, "a\0b", 3);
    assert_memory_equal(record.fields[1].data, "\xff\r", 2);
}

TEST(the_longest_line_fits_and_one_byte_more_is_wrong)
{
    static char text[CSV_LINE_MAX + 1];
    struct csv_record record;

    memset(text, 'x', sizeof text);
    assert_null(parse(text, CSV_LINE_MAX, &record));
    assert_int_equal(record.fields[0].len, CSV_LINE_MAX);
    assert_non_null(parse(text, CSV_LINE_MAX + 1, &record));
}

TEST(as_many_fields_as_there_is_room_for_and_no_more)
{
    static char text[CSV_FIELDS_MAX];
    struct csv_record record;

    memset(text, ',', sizeof text);
    assert_null(parse(text, CSV_FIELDS_MAX - 1, &record));
    assert_int_equal(record.count, CSV_FIELDS_MAX);
    assert_non_null(parse(text, CSV_FIELDS_MAX, &record));
}
