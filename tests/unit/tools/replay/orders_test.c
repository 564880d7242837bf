/* SPDX-License-Identifier: Apache-2.0 */
/* Orders files, plain and gzipped, as real files in a temporary folder. */
#include <unistd.h>

#include <zlib.h>

#include "fence/base/bytes.h"
#include "tests/unit/test.h"
#include "tools/replay/orders.h"
#include "tools/replay/orders_file.h"

#define HEADER "invoice,invoiced_at,sku,quantity,customer\n"

static char path[] = "/tmp/orders_test-XXXXXX";

static int make_file(void **state)
{
    int fd = mkstemp(path);

    (void)state;
    (void)close(fd);
    return fd >= 0 ? 0 : -1;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_plain(const char *data, size_t len)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void write_gzip(const char *text)
{
    gzFile file = gzopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, (unsigned)strlen(text)), (int)strlen(text));
    assert_int_equal(gzclose(file), Z_OK);
}

static void load(struct orders *orders, const char *text)
{
    struct failure failure = {.text = ""};

    write_plain(text, strlen(text));
    if (!orders_load(orders, path, 0, false, &failure))
        fail_msg("%s", failure.text);
}

/* Load so many invoices of a line each, which take turns with so many SKUs. */
static void load_lines(struct orders *orders, int count, int skus)
{
    struct buf text = {.data = NULL};

    buf_append_text(&text, HEADER);
    for (int i = 0; i < count; i++)
        buf_printf(&text, "%d,100,SKU%d,1,\n", i, i % skus);
    buf_append(&text, "", 1);
    load(orders, text.data);
    buf_free(&text);
}

static void expect_failure(int64_t limit, bool strict, const char *part)
{
    struct orders orders;
    struct failure failure = {.text = ""};

    assert_false(orders_load(&orders, path, limit, strict, &failure));
    if (strstr(failure.text, part) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", failure.text, part);
    orders_free(&orders);
}

TEST(lines_become_invoices_and_skus_with_their_demand)
{
    struct orders orders;

    load(&orders, HEADER "1,100,A,5,\n1,100,B,2,\n2,101,A,4,\nC3,102,A,-3,\n");
    assert_int_equal(orders.order_count, 4);
    assert_int_equal(orders.invoice_count, 3);
    assert_int_equal(orders.orders[0].next, 1);
    assert_int_equal(orders.orders[1].next, ORDER_NONE);
    assert_int_equal(orders.sku_count, 2);
    assert_string_equal(orders.skus[0].name, "A");
    assert_int_equal(orders.skus[0].demand, 9);
    assert_int_equal(orders.orders[3].quantity, -3);
    assert_int_equal(orders.orders[3].line, 5);
    orders_free(&orders);
}

TEST(invoices_come_in_order_of_time_and_else_as_in_the_file)
{
    struct orders orders;

    load(&orders, HEADER "late,300,A,1,\nfirst,100,B,1,\nsame,100,C,1,\nmiddle,200,D,1,\n");
    assert_int_equal(orders.invoices[0].first, 1);
    assert_int_equal(orders.invoices[1].first, 2);
    assert_int_equal(orders.invoices[2].first, 3);
    assert_int_equal(orders.invoices[3].first, 0);
    orders_free(&orders);
}

TEST(lines_of_an_invoice_need_not_stand_together)
{
    struct orders orders;

    load(&orders, HEADER "1,100,A,1,\n2,100,B,1,\n1,160,C,1,\n");
    assert_int_equal(orders.invoice_count, 2);
    assert_int_equal(orders.invoices[0].invoiced_at, 100);
    assert_int_equal(orders.orders[0].next, 2);
    assert_int_equal(orders.orders[2].next, ORDER_NONE);
    assert_int_equal(orders.orders[1].next, ORDER_NONE);
    orders_free(&orders);
}

TEST(gzip_and_line_ends_of_both_kinds_are_read)
{
    struct orders orders;
    struct failure failure;

    write_gzip("invoice,invoiced_at,sku,quantity,customer\r\n1,100,A,5,\r\n2,101,A,4,9");
    assert_true(orders_load(&orders, path, 0, true, &failure));
    assert_int_equal(orders.order_count, 2);
    assert_int_equal(orders.skus[0].demand, 9);
    orders_free(&orders);
}

TEST(a_malformed_line_is_skipped_and_counted_or_with_strict_the_end)
{
    static const char text[] = HEADER "1,100,A,5,\n1,100,A\n2,101,A,4,\n2,101,A,x,\n";
    struct orders orders;

    load(&orders, text);
    assert_int_equal(orders.order_count, 2);
    assert_int_equal(orders.malformed, 2);
    assert_int_equal(orders.orders[1].line, 4);
    orders_free(&orders);
    expect_failure(0, true, "line 3 ");
}

TEST(an_endless_line_and_zero_bytes_are_malformed_and_no_more)
{
    struct buf text = {.data = NULL};
    struct orders orders;
    struct failure failure;

    buf_append_text(&text, HEADER "1,100,A,5,\n");
    for (int i = 0; i < 40000; i++)
        buf_append_text(&text, "xxxxxxxxxx");
    buf_append_text(&text, "\n2,101,B,4,\n");
    buf_append(&text, "3,102,\0,1,\n", 11);
    buf_append_text(&text, "4,103,C,2,\n");
    write_plain(text.data, text.len);
    buf_free(&text);
    assert_true(orders_load(&orders, path, 0, false, &failure));
    assert_int_equal(orders.order_count, 3);
    assert_int_equal(orders.malformed, 2);
    assert_int_equal(orders.orders[1].line, 4);
    assert_int_equal(orders.orders[2].line, 6);
    orders_free(&orders);
}

TEST(the_limit_counts_lines_below_the_header)
{
    struct orders orders;
    struct failure failure;

    static const char text[] = HEADER "1,1,A,1,\nbad\n2,2,B,1,\n3,3,C,1,\n";

    write_plain(text, strlen(text));
    assert_true(orders_load(&orders, path, 3, false, &failure));
    assert_int_equal(orders.order_count, 2);
    assert_int_equal(orders.malformed, 1);
    orders_free(&orders);
}

TEST(files_that_are_no_orders_are_refused)
{
    write_plain("", 0);
    expect_failure(0, false, "is no orders file");
    write_plain("a,b\n1,2\n", 8);
    expect_failure(0, false, "is no orders file");
    write_plain(HEADER, strlen(HEADER));
    expect_failure(0, false, "no order line");
    write_plain(HEADER "bad\n", strlen(HEADER "bad\n"));
    expect_failure(0, false, "no order line");
}

TEST(a_gzip_file_that_is_cut_short_is_a_failure)
{
    struct buf text = {.data = NULL};

    buf_append_text(&text, HEADER);
    for (int i = 0; i < 2000; i++)
        buf_printf(&text, "%d,100,SKU%d,%d,\n", i, i * 7919 % 1000, i % 9 + 1);
    buf_append(&text, "", 1);
    write_gzip(text.data);
    buf_free(&text);
    assert_int_equal(truncate(path, 4000), 0);
    expect_failure(0, false, "cannot read");
}

TEST(thousands_of_skus_are_told_apart)
{
    struct orders orders;

    load_lines(&orders, 20000, 10000);
    assert_int_equal(orders.sku_count, 10000);
    for (size_t i = 0; i < orders.sku_count; i++)
        assert_int_equal(orders.skus[i].demand, 2);
    orders_free(&orders);
}

TEST(stops_are_planned_where_another_invoice_asks_next)
{
    struct orders orders;

    load(&orders,
         HEADER "1,100,A,1,\n1,100,A,1,\n2,101,B,1,\n3,102,A,1,\n4,103,C,1,\n4,103,C,1,\n");
    assert_int_equal(orders_plan_stops(&orders, 1), 2);
    assert_true(orders.orders[0].stop);
    assert_true(orders.orders[1].stop);
    assert_false(orders.orders[2].stop); /* never asked for again */
    assert_false(orders.orders[3].stop);
    assert_false(orders.orders[4].stop); /* only by the same invoice */
    orders_free(&orders);
}

TEST(stops_are_as_rare_as_asked_for)
{
    struct orders orders;

    load_lines(&orders, 1000, 5);
    assert_int_equal(orders_plan_stops(&orders, 100), 9); /* the tenth has no successor */
    orders_free(&orders);
}

AROUND_ALL_TESTS(make_file, remove_file);
