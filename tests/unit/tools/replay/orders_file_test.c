/* SPDX-License-Identifier: Apache-2.0 */
/* CSV lines, and which of them are order lines. Each line is given in a block of exactly its size,
 * so that a sanitizer sees every byte read behind it. */
#include "fence/base/mem.h"
#include "tests/unit/test.h"
#include "tools/replay/orders_file.h"

static const char *parse(struct bytes line, struct csv_record *record)
{
    char *block = mem_alloc(line.len == 0 ? 1 : line.len);

    memcpy(block, line.data, line.len);
    const char *wrong = csv_parse((struct bytes){block, line.len}, record);
    free(block); /* the record must not point into it */
    return wrong;
}

static const char *parse_order(const char *text, struct csv_record *record, struct order_line *line)
{
    assert_null(parse(bytes_of(text), record));
    return order_line_parse(record, line);
}

TEST(fields_lose_their_quotes_and_nothing_else)
{
    static const struct {
        const char *line, *fields; /* with a | behind each */
    } cases[] = {
        {"a,b,c", "a|b|c|"},
        {" a , b", " a | b|"},
        {"one", "one|"},
        {"", "|"},
        {",", "||"},
        {"a,,", "a|||"},
        {"\"\",\"\"", "||"},
        {"1,\"BANK CHARGES\",2", "1|BANK CHARGES|2|"},
        {"\"a,b\",c", "a,b|c|"},
        {"\"say \"\"hi\"\"\"", "say \"hi\"|"},
        {"\"\"\"\"", "\"|"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct csv_record record;
        struct buf fields = {0};
        assert_null(parse(bytes_of(cases[i].line), &record));
        for (size_t f = 0; f < record.count; f++) {
            buf_append_bytes(&fields, record.fields[f]);
            buf_append_text(&fields, "|");
        }
        buf_append(&fields, "", 1);
        assert_string_equal(fields.data, cases[i].fields);
        buf_free(&fields);
    }
}

TEST(stray_and_unclosed_quotes_are_wrong)
{
    static const char *const wrong[] = {"\"",       "\"abc", "a,\"b", "\"a\"b",
                                        "\"a\" ,b", "a\"b",  "a\"\"", "\"a\"\""};
    struct csv_record record;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (parse(bytes_of(wrong[i]), &record) == NULL)
            fail_msg("taken for good: %s", wrong[i]);
}

TEST(any_bytes_are_safe_in_a_field)
{
    struct csv_record record;

    assert_null(parse(BYTES_LITERAL("a\0b,\xff\r"), &record));
    assert_int_equal(record.count, 2);
    assert_true(bytes_equal(record.fields[0], BYTES_LITERAL("a\0b")));
    assert_true(bytes_equal(record.fields[1], BYTES_LITERAL("\xff\r")));
}

TEST(the_longest_line_and_the_most_fields_fit_and_no_more)
{
    static char text[CSV_LINE_MAX + 1];
    struct csv_record record;

    memset(text, 'x', sizeof text);
    assert_null(parse((struct bytes){text, CSV_LINE_MAX}, &record));
    assert_int_equal(record.fields[0].len, CSV_LINE_MAX);
    assert_non_null(parse((struct bytes){text, CSV_LINE_MAX + 1}, &record));
    memset(text, ',', CSV_FIELDS_MAX);
    assert_null(parse((struct bytes){text, CSV_FIELDS_MAX - 1}, &record));
    assert_int_equal(record.count, CSV_FIELDS_MAX);
    assert_non_null(parse((struct bytes){text, CSV_FIELDS_MAX}, &record));
}

TEST(a_sale_and_a_return_are_read)
{
    struct csv_record record;
    struct order_line line;

    assert_null(parse_order("536365,1291191960,85123A,6,17850", &record, &line));
    assert_true(bytes_equal(line.invoice, bytes_of("536365")));
    assert_true(bytes_equal(line.sku, bytes_of("85123A")));
    assert_int_equal(line.invoiced_at, 1291191960);
    assert_int_equal(line.quantity, 6);
    assert_null(parse_order("C537572,1291723200,\"BANK CHARGES\",-1,", &record, &line));
    assert_true(bytes_equal(line.sku, bytes_of("BANK CHARGES")));
    assert_int_equal(line.quantity, -1);
}

TEST(an_order_line_has_five_columns_printable_names_and_numbers_in_range)
{
    char invoice[400], sku[400];
    const char *const wrong[] = {
        "1,2,A,3",
        "1,2,A,3,4,5",
        "",
        ",2,A,3,",
        "1,2,,3,",
        "1,x,A,3,",
        "1,-5,A,3,",
        "1,2,A,3.5,",
        "1,2,A,1e3,",
        "1,2,A,,",
        "1,2,A,0,",
        invoice,
        sku,
        "1,2,A\tB,3,",
        "1\x7f,2,A,3,",
        "1,2,A,three,",
        "1,2,A,1000000001,",
        "1,2,A,-1000000001,",
        "1,2,A,99999999999999999999,",
    };
    struct csv_record record;
    struct order_line line;

    snprintf(invoice, sizeof invoice, "%0*d,2,A,3,", ORDER_INVOICE_MAX + 1, 0);
    snprintf(sku, sizeof sku, "1,2,%0*d,3,", ORDER_SKU_MAX + 1, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (parse_order(wrong[i], &record, &line) == NULL)
            fail_msg("taken for good: %s", wrong[i]);
}

TEST(only_the_five_names_in_order_are_the_header)
{
    struct csv_record record;

    assert_null(parse(bytes_of("invoice,invoiced_at,sku,quantity,customer"), &record));
    assert_true(order_line_is_header(&record));
    assert_null(parse(bytes_of("invoice,sku,invoiced_at,quantity,customer"), &record));
    assert_false(order_line_is_header(&record));
    assert_null(parse(bytes_of("invoice,invoiced_at,sku,quantity"), &record));
    assert_false(order_line_is_header(&record));
}
