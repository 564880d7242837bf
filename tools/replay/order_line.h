/* SPDX-License-Identifier: Apache-2.0 */
/* An order line as the orders file has it: invoice, invoiced_at (Unix seconds), sku, quantity
 * (negative: returned or cancelled), customer (may be empty). Pure, as csv.h is. */
#ifndef STOCKADE_TOOLS_REPLAY_ORDER_LINE_H
#define STOCKADE_TOOLS_REPLAY_ORDER_LINE_H

#include "tools/replay/csv.h"

enum { ORDER_SKU_MAX = 128, ORDER_INVOICE_MAX = 64, ORDER_QUANTITY_MAX = 1000000000 };

struct order_line {
    struct bytes invoice, sku; /* into the record */
    int64_t invoiced_at;       /* Unix seconds */
    int64_t quantity;          /* not 0, at most ORDER_QUANTITY_MAX either way */
};

/* Whether these are the names of the columns, in their order. */
bool order_line_is_header(const struct csv_record *record);
/* Returns NULL, or what is wrong with the record (static storage). */
const char *order_line_parse(const struct csv_record *record, struct order_line *line);

#endif
