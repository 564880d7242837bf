/* SPDX-License-Identifier: Apache-2.0 */
/* An orders file, one line after another: bytes of a plain or gzipped file ─▶ lines ─▶ fields of
 * CSV ─▶ order lines. Lines may be of any length and hold any bytes; what is wrong with one is
 * reported, and the next one can be read. A file that is cut short or damaged is a failure, not an
 * early end. */
#ifndef STOCKADE_TOOLS_REPLAY_ORDERS_FILE_H
#define STOCKADE_TOOLS_REPLAY_ORDERS_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <zlib.h>

#include "fence/base/bytes.h"
#include "tools/failure.h"

enum { CSV_LINE_MAX = 4096, CSV_FIELDS_MAX = 16 };

struct line_reader {
    const char *path; /* borrowed */
    gzFile file;
    uint32_t number; /* of the line given last, from 1 */
    char text[CSV_LINE_MAX + 1];
};

/* Open the file. line_reader_close closes it, also where this returns false. */
bool line_reader_open(struct line_reader *reader, const char *path, struct failure *failure);
void line_reader_close(struct line_reader *reader);

enum line_result {
    LINE_READ,
    LINE_TOO_LONG, /* skipped up to its end; `line` is empty */
    LINE_END,      /* of the file */
    LINE_FAILED,   /* the file cannot be read further */
};

/* Read the next line, without its end; it is valid until the next call. */
enum line_result line_reader_next(struct line_reader *reader, struct bytes *line,
                                  struct failure *failure);

struct csv_record {
    size_t count;
    struct bytes fields[CSV_FIELDS_MAX]; /* into `text`, unquoted */
    char text[CSV_LINE_MAX];
};

/* Split one line of CSV (RFC 4180), without its end, into its fields. Pure: no memory of its own,
 * no input or output, any bytes are safe. Strict: a field is either bare, without any quote, or
 * wholly quoted, with quotes in it doubled, and does not go on beyond the line. Return NULL, or
 * what is wrong with the line (static storage); the record is then of no use. An empty line is one
 * empty field. */
const char *csv_parse(struct bytes line, struct csv_record *record);

enum { ORDER_SKU_MAX = 128, ORDER_INVOICE_MAX = 64, ORDER_QUANTITY_MAX = 1000000000 };

/* invoice, invoiced_at, sku, quantity (negative: returned or cancelled), customer (may be empty).
 */
struct order_line {
    struct bytes invoice, sku; /* into the record */
    int64_t invoiced_at;       /* Unix seconds */
    int64_t quantity;          /* not 0, at most ORDER_QUANTITY_MAX either way */
};

/* Return whether these are the names of the columns, in their order. */
bool order_line_is_header(const struct csv_record *record);
/* Read the record as an order line. Return NULL, or what is wrong with it (static storage). */
const char *order_line_parse(const struct csv_record *record, struct order_line *line);

#endif
