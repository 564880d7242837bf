/* SPDX-License-Identifier: Apache-2.0 */
/* What a record must be to be an order line. */
#include "tools/replay/order_line.h"

enum { COLUMNS = 5 };

bool order_line_is_header(const struct csv_record *record)
{
    static const char *const names[COLUMNS] = {"invoice", "invoiced_at", "sku", "quantity",
                                               "customer"};

    if (record->count != COLUMNS) {
        return false;
    }
    for (size_t i = 0; i < COLUMNS; i++) {
        if (!bytes_equal(record->fields[i], bytes_of(names[i]))) {
            return false;
        }
    }
    return true;
}

/* A name becomes part of a key and of messages: printable, and not without end. */
static bool is_name(struct bytes text, size_t len_max)
{
    if (text.len == 0 || text.len > len_max) {
        return false;
    }
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.data[i];
        if (byte < ' ' || byte == 127) {
            return false;
        }
    }
    return true;
}

const char *order_line_parse(const struct csv_record *record, struct order_line *line)
{
    if (record->count != COLUMNS) {
        return "it has not five columns";
    }
    line->invoice = record->fields[0];
    line->sku = record->fields[2];
    if (!is_name(line->invoice, ORDER_INVOICE_MAX)) {
        return "the invoice is empty, too long or not printable";
    }
    if (!bytes_to_int64(record->fields[1], &line->invoiced_at) || line->invoiced_at < 0) {
        return "the time is not in Unix seconds";
    }
    if (!is_name(line->sku, ORDER_SKU_MAX)) {
        return "the SKU is empty, too long or not printable";
    }
    if (!bytes_to_int64(record->fields[3], &line->quantity) ||
        line->quantity > ORDER_QUANTITY_MAX || line->quantity < -ORDER_QUANTITY_MAX) {
        return "the quantity is not a number, or too large";
    }
    if (line->quantity == 0) {
        return "the quantity is 0";
    }
    return NULL;
}
