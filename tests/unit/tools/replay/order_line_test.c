/* SPDX-License-Identifier: Apache-2.0 */
/* Which records are order lines. */
#include "tests/unit/test.h"
#include "tools/replay/orders_file.h"

static const char *parse(const char *text, struct csv_record *record, struct order_line *line)
{
    assert_null(csv_parse(bytes_of(text), record));
    return order_line_parse(record, line);
}

static void expect_wrong(const char *text)
{
    struct csv_record record;
    struct order_line line;

    if (parse(text, &record, &line) == NULL) {
        fail_msg("taken for good: %s", text);
    }
}

TEST(a_sale_and_a_return_are_read)
{
    struct csv_record record;
    struct order_line line;

    assert_null(parse("536365,1291191960,85123A,6,17850", &record, &line));
    assert_true(bytes_equal(line.invoice, bytes_of("536365")));
    assert_true(bytes_equal(line.sku, bytes_of("85123A")));
    assert_int_equal(line.invoiced_at, 1291191960);
    assert_int_equal(line.quantity, 6);
    assert_null(parse("C537572,1291723200,\"BANK CHARGES\",-1,", &record, &line));
    assert_true(bytes_equal(line.sku, bytes_of("BANK CHARGES")));
    assert_int_equal(line.quantity, -1);
}

TEST(the_number_of_columns_must_be_five)
{
    expect_wrong("1,2,A,3");
    expect_wrong("1,2,A,3,4,5");
    expect_wrong("");
}

TEST(invoice_and_sku_must_be_printable_names)
{
    char text[400];

    expect_wrong(",2,A,3,");
    expect_wrong("1,2,,3,");
    expect_wrong("1,2,A\tB,3,");
    expect_wrong("1\x7f,2,A,3,");
    memset(text, 'x', sizeof text);
    strcpy(text + ORDER_INVOICE_MAX + 1, ",2,A,3,");
    expect_wrong(text);
    memset(text, 'x', sizeof text);
    memcpy(text, "1,2,", 4);
    strcpy(text + 4 + ORDER_SKU_MAX + 1, ",3,");
    expect_wrong(text);
}

TEST(numbers_must_be_numbers_in_range)
{
    expect_wrong("1,x,A,3,");
    expect_wrong("1,-5,A,3,");
    expect_wrong("1,2,A,three,");
    expect_wrong("1,2,A,3.5,");
    expect_wrong("1,2,A,1e3,");
    expect_wrong("1,2,A,,");
    expect_wrong("1,2,A,0,");
    expect_wrong("1,2,A,1000000001,");
    expect_wrong("1,2,A,-1000000001,");
    expect_wrong("1,2,A,99999999999999999999,");
}

TEST(only_the_five_names_in_order_are_the_header)
{
    struct csv_record record;

    assert_null(csv_parse(bytes_of("invoice,invoiced_at,sku,quantity,customer"), &record));
    assert_true(order_line_is_header(&record));
    assert_null(csv_parse(bytes_of("invoice,sku,invoiced_at,quantity,customer"), &record));
    assert_false(order_line_is_header(&record));
    assert_null(csv_parse(bytes_of("invoice,invoiced_at,sku,quantity"), &record));
    assert_false(order_line_is_header(&record));
}
