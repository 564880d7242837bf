/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds orders files, plain or gzipped, to the replay.
 *
 * - A CSV line that parses, written out again with every field quoted, parses to the same fields.
 * - What is loaded is in range, its chains hold each order once, invoices stand in order of time,
 *   and each SKU's demand is the sum of its sales.
 * - A plain file has as many orders and malformed lines as a simple reader counts, and a strict
 *   load fails just where there is a malformed line.
 * - Stops are planned no more often than asked.
 *
 * An input is an orders file; where it has no header of its own it gets one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fence/base/check.h"
#include "fence/base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tools/replay/orders.h"
#include "tools/replay/orders_file.h"

static const char header[] = "invoice,invoiced_at,sku,quantity,customer\n";

struct rig {
    struct fuzz_file file; /* the orders */
    FILE *nowhere;         /* for the lines that the loader complains of */
};

/* Parse a copy of the line, so that a sanitizer sees where the parser reads beyond. */
static const char *parse(struct bytes line, struct csv_record *record)
{
    char *own = mem_alloc(line.len + 1);

    if (line.len > 0)
        memcpy(own + 1, line.data, line.len);
    const char *why = csv_parse((struct bytes){own + 1, line.len}, record);
    free(own);
    return why;
}

static void check_record(const struct csv_record *record)
{
    static struct csv_record again;
    struct buf line = {0};

    check(record->count >= 1 && record->count <= CSV_FIELDS_MAX);
    for (size_t i = 0; i < record->count; i++) {
        struct bytes field = record->fields[i];
        check(field.data >= record->text);
        check(field.data + field.len <= record->text + sizeof record->text);
        buf_append_text(&line, i == 0 ? "\"" : ",\"");
        for (size_t at = 0; at < field.len; at++) {
            buf_append(&line, &field.data[at], 1);
            if (field.data[at] == '"')
                buf_append(&line, "\"", 1);
        }
        buf_append_text(&line, "\"");
    }
    if (line.len <= CSV_LINE_MAX) {
        check(parse(buf_bytes(&line), &again) == NULL && again.count == record->count);
        for (size_t i = 0; i < record->count; i++)
            check(bytes_equal(again.fields[i], record->fields[i]));
    }
    buf_free(&line);
}

/* Return whether the line is an order. */
static bool check_line(struct bytes line)
{
    static struct csv_record record;
    struct order_line order;

    if (parse(line, &record) != NULL)
        return false;
    check_record(&record);
    if (order_line_parse(&record, &order) != NULL)
        return false;
    check(order.quantity != 0 && order.quantity <= ORDER_QUANTITY_MAX &&
          order.quantity >= -ORDER_QUANTITY_MAX);
    check(order.invoiced_at >= 0 && order.sku.len >= 1 && order.sku.len <= ORDER_SKU_MAX);
    check(order.invoice.len >= 1 && order.invoice.len <= ORDER_INVOICE_MAX);
    return true;
}

/* Count orders as a simple reader would. */
static void count_lines(struct bytes rest, size_t *orders, size_t *malformed)
{
    (void)fuzz_cut(&rest, '\n'); /* the header */
    while (rest.len > 0) {
        struct bytes line = fuzz_cut(&rest, '\n');
        line.len -= line.len > 0 && line.data[line.len - 1] == '\r';
        bool is_order = line.len <= CSV_LINE_MAX && check_line(line);
        *orders += is_order;
        *malformed += !is_order;
    }
}

static void check_orders(struct orders *orders)
{
    size_t chained = 0;
    int64_t *demand = mem_zalloc((orders->sku_count + 1) * sizeof *demand);

    for (size_t i = 0; i < orders->invoice_count; i++) {
        const struct invoice *invoice = &orders->invoices[i];
        check(i == 0 || invoice[-1].invoiced_at <= invoice->invoiced_at);
        int32_t last = ORDER_NONE;
        for (int32_t at = invoice->first; at != ORDER_NONE; at = orders->orders[at].next) {
            check((size_t)at < orders->order_count && at > last && ++chained);
            const struct order *order = &orders->orders[at];
            check(order->sku < orders->sku_count && order->quantity != 0);
            demand[order->sku] += order->quantity > 0 ? order->quantity : 0;
            last = at;
        }
        check(last == invoice->last);
    }
    check(chained == orders->order_count && orders->order_count > 0);
    for (size_t i = 0; i < orders->sku_count; i++)
        check(demand[i] == orders->skus[i].demand);
    free(demand);
    size_t every = 1 + orders->order_count / 3;
    check(orders_plan_stops(orders, every) <= orders->order_count / every);
}

static bool load(const struct rig *rig, struct orders *orders, bool strict)
{
    struct failure failure = {{0}};
    FILE *said = stderr;

    stderr = rig->nowhere;
    bool loaded = orders_load(orders, rig->file.path, 0, strict, &failure);
    stderr = said;
    return loaded;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct rig rig;
    struct buf file = {0};
    struct orders orders;
    size_t lines = 0, malformed = 0;
    bool zipped = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;

    if (rig.nowhere == NULL)
        rig.nowhere = fopen("/dev/null", "w");
    check(rig.nowhere != NULL);
    if (!zipped && (size < 8 || memcmp(data, header, 8) != 0))
        buf_append_text(&file, header);
    buf_append(&file, data, size);
    fuzz_file_write(&rig.file, buf_bytes(&file));
    bool loaded = load(&rig, &orders, false);
    if (loaded)
        check_orders(&orders);
    if (!zipped)
        count_lines(buf_bytes(&file), &lines, &malformed);
    if (loaded && !zipped)
        check(orders.order_count == lines && orders.malformed == malformed);
    malformed = orders.malformed;
    orders_free(&orders);
    bool strict = load(&rig, &orders, true);
    check(strict == (loaded && malformed == 0));
    orders_free(&orders);
    buf_free(&file);
    return 0;
}
